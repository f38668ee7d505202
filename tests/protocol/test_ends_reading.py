"""The ways to read: batches with a timeout, records, Arrow, a callback, an async iterator."""

from __future__ import annotations

import asyncio
import logging
import select
import threading
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from gridstat.endpoint import Receiver, Sender
from gridstat.model.errors import Misuse
from gridstat.model.identifiers import VariableId
from gridstat.model.rate_law import Period
from gridstat.model.status import Field, FieldKind, RecordType, StatusVariable
from gridstat.net.codec.value import ValueCodec
from tests.protocol.ends import MS, NOW_NS, columns, eventually, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.endpoint import Samples

KILOHERTZ = Period(1, 1_000)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Expects variable 0 a thousand times a second, and 1 whenever it comes; keeps options."""
    with Receiver(option_bytes=1 << 16) as opened:
        opened.expect(0, KILOHERTZ)
        opened.expect(1, None)
        opened.start()
        yield opened


@pytest.fixture
def sender(receiver: Receiver) -> Iterator[Sender]:
    with Sender(7, ("127.0.0.1", *receiver.ports)) as opened:
        yield opened


def test_reading_without_events_ends_with_the_timeout(receiver: Receiver) -> None:
    assert len(receiver.read(timeout_s=0)) == 0
    assert len(receiver.read(timeout_s=0.02)) == 0


def test_a_reader_that_waits_is_woken_by_the_first_event(
    receiver: Receiver, sender: Sender
) -> None:
    threading.Timer(0.02, sender.send, (1, 5)).start()
    assert receiver.read(timeout_s=None)["value"].tolist() == [5]


def test_a_descriptor_for_select_is_readable_only_while_events_wait(
    receiver: Receiver, sender: Sender
) -> None:
    assert select.select([receiver.fileno()], [], [], 0)[0] == []
    for slot in range(3):
        sender.send(0, slot, created_ns=NOW_NS + slot * MS)
        assert select.select([receiver.fileno()], [], [], 10)[0]
        while len(receiver.read()):
            pass
        assert select.select([receiver.fileno()], [], [], 0)[0] == []


def test_the_descriptor_stays_readable_while_a_reader_has_left_events(
    receiver: Receiver, sender: Sender
) -> None:
    for first in range(0, 60, 3):
        thread = threading.Thread(target=receiver.read, args=(1, None))
        thread.start()
        eventually(lambda: _complaint_until_asleep(thread))  # noqa: B023
        sender.send_many(*(column[first : first + 3] for column in columns(60)))
        thread.join()
        for left in (2, 1):
            assert select.select([receiver.fileno()], [], [], 0)[0], f"{left} wait unseen"
            assert len(receiver.read(events_max=1)) == 1
        assert len(receiver.read()) == 0
        assert select.select([receiver.fileno()], [], [], 0)[0] == []


@pytest.mark.parametrize("end", ["stop", "close"])
def test_a_reader_that_waits_is_woken_when_the_receiver_ends(receiver: Receiver, end: str) -> None:
    taken: list[Samples] = []
    thread = threading.Thread(target=lambda: taken.append(receiver.read(timeout_s=None)))
    thread.start()
    getattr(receiver, end)()
    thread.join(10.0)
    assert not thread.is_alive()
    assert [len(batch) for batch in taken] == [0]


def test_several_readers_share_the_events_without_taking_one_twice(
    receiver: Receiver, sender: Sender
) -> None:
    taken: list[int] = []

    def read() -> None:
        while len(batch := receiver.read(events_max=17, timeout_s=None)):
            taken.extend(batch["value"].tolist())

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    sender.send_many(*columns(5_000))
    wait_for(receiver, delivered=5_000)
    eventually(lambda: None if len(taken) == 5_000 else f"{len(taken)} taken")
    receiver.stop()
    for thread in threads:
        thread.join()
    assert sorted(taken) == list(range(5_000))


@pytest.mark.feature("S0-15", "S0-20")
def test_a_user_record_arrives_as_it_was_published(receiver: Receiver, sender: Sender) -> None:
    phasor = RecordType(
        "phasor",
        (Field("magnitude", FieldKind.FLOAT64), Field("angle", FieldKind.FLOAT64)),
    )
    codec = ValueCodec(
        StatusVariable(VariableId(1), "cloud/bus-7/pmu-1/voltage", phasor, period=None)
    )
    values = [{"magnitude": 1.0 + step, "angle": -0.5 * step} for step in range(20)]
    for value in values:
        sender.send(1, codec.encode(value))
        sender.send(1, 42)
    wait_for(receiver, delivered=40)
    records = receiver.read_records()
    assert [sample.option_count for sample, _ in records] == [1, 0] * 20
    assert [codec.decode(payload).value for _, payload in records[::2]] == values
    assert all(payload == (42).to_bytes(8, "big") for _, payload in records[1::2])


@pytest.mark.feature("S0-15")
@pytest.mark.parametrize("size", [8, 9, 1_500, 6_128])
def test_a_record_of_any_size_survives_the_way(
    receiver: Receiver, sender: Sender, size: int
) -> None:
    record = np.random.default_rng(size).bytes(size)
    for _ in range(30):  # More than the ring of options holds at once, so it wraps.
        sender.send(1, record)
        ((sample, payload),) = receiver.read_records(timeout_s=10.0)
        assert payload == record.ljust(len(payload), b"\0")
        assert len(payload) == 8 + 24 * sample.option_count


def test_plain_batches_skip_the_options_of_their_events(receiver: Receiver, sender: Sender) -> None:
    for step in range(100):
        sender.send(1, step.to_bytes(8, "big") + bytes([step]) * 240)
        wait_for(receiver, delivered=step + 1)
        if step % 2:
            ((_, payload),) = receiver.read_records()
            assert payload[8:] == bytes([step]) * 240
        else:
            assert receiver.read()["value"].tolist() == [step]


def test_events_whose_options_find_no_room_are_counted() -> None:
    with Receiver(option_bytes=1_024) as receiver:
        receiver.expect(1, None)
        receiver.start()
        with Sender(7, ("127.0.0.1", *receiver.ports)) as sender:
            for _ in range(10):
                sender.send(1, bytes(8 + 240))
            wait_for(receiver, **{"in": 10})
        counters = receiver.counters()
        assert (counters["delivered"], counters["ring_full"]) == (4, 6)
        assert [len(payload) for _, payload in receiver.read_records()] == [248] * 4


def test_options_that_are_not_kept_cannot_be_read() -> None:
    with Receiver() as receiver, pytest.raises(Misuse, match="option_bytes"):
        receiver.read_records()


def test_arrow_batches_have_the_columns_of_a_sample(receiver: Receiver, sender: Sender) -> None:
    sender.send(0, -3, created_ns=NOW_NS, flags=4)
    sender.send(1, bytes(8) + b"x" * 24, created_ns=NOW_NS)
    wait_for(receiver, delivered=2)
    batch = receiver.read_arrow()
    assert batch.schema.names[-1] == "options"
    assert batch.column("created_ns").to_pylist() == [NOW_NS] * 2
    assert batch.column("value").to_pylist() == [-3, 0]
    assert batch.column("flags").to_pylist() == [4, 0]
    assert batch.column("options").to_pylist() == [b"", b"x" * 24]
    assert batch.schema.field("variable_id").type == pa.uint32()
    batch.validate(full=True)
    assert receiver.read_arrow().num_rows == 0


def test_arrow_batches_without_options_have_no_such_column() -> None:
    with Receiver() as receiver:
        receiver.expect(0, KILOHERTZ)
        receiver.start()
        with Sender(7, ("127.0.0.1", *receiver.ports)) as sender:
            sender.send_many(*columns(100))
            wait_for(receiver, delivered=100)
        batch = receiver.read_arrow()
    assert "options" not in batch.schema.names
    assert batch.column("value").to_pylist() == list(range(100))


def test_a_callback_gets_every_event_from_one_thread(receiver: Receiver, sender: Sender) -> None:
    taken: list[int] = []
    threads = set()

    def take(batch: Samples) -> None:
        threads.add(threading.current_thread().name)
        taken.extend(batch["value"].tolist())

    receiver.on_batch(take)
    for at in range(0, 2_000, 100):
        variable_ids, values, created_ns = columns(2_000)
        part = slice(at, at + 100)
        sender.send_many(variable_ids[part], values[part], created_ns[part])
    wait_for(receiver, delivered=2_000)
    receiver.stop()
    assert taken == list(range(2_000))
    assert threads == {"gs-callback"}


def test_a_callback_that_raises_is_logged_and_called_again(
    receiver: Receiver, sender: Sender, caplog: pytest.LogCaptureFixture
) -> None:
    taken: list[int] = []

    def take(batch: Samples) -> None:
        taken.extend(batch["value"].tolist())
        if taken == [0]:
            message = "no"
            raise ValueError(message)

    receiver.on_batch(take)
    with caplog.at_level(logging.ERROR):
        for slot in range(2):
            sender.send(0, slot, created_ns=NOW_NS + slot * MS)
            eventually(lambda: None if len(taken) == slot + 1 else f"{taken}")  # noqa: B023
    assert "callback failed events=1" in caplog.text


def test_a_callback_given_before_the_start_is_called_after_it() -> None:
    taken: list[int] = []
    with Receiver() as receiver:
        receiver.expect(0, KILOHERTZ)
        receiver.on_batch(lambda batch: taken.extend(batch["value"].tolist()))
        with pytest.raises(Misuse, match="callback already"):
            receiver.on_batch(print)
        with Sender(7, ("127.0.0.1", *receiver.ports)) as sender:
            for slot in range(2):
                receiver.start()
                sender.send(0, slot, created_ns=NOW_NS + slot * MS)
                wait_for(receiver, delivered=slot + 1)
                receiver.stop()
    assert taken == [0, 1]


def test_a_callback_may_stop_its_own_receiver(receiver: Receiver, sender: Sender) -> None:
    receiver.on_batch(lambda _: receiver.stop())
    sender.send(0, 1)
    eventually(lambda: "still running" if receiver.is_running else None)


def test_the_async_iterator_yields_batches_until_the_receiver_stops(
    receiver: Receiver, sender: Sender
) -> None:
    async def take() -> list[int]:
        taken: list[int] = []
        async for batch in receiver.batches():
            taken += batch["value"].tolist()
            if taken[-1] == 999:
                receiver.stop()
            elif taken[-1] == 499:
                sender.send_many(*(column[500:] for column in columns(1_000)))
        return taken

    sender.send_many(*(column[:500] for column in columns(1_000)))
    assert asyncio.run(take()) == list(range(1_000))


def test_an_async_iterator_that_waits_ends_with_the_receiver(receiver: Receiver) -> None:
    async def wait() -> int:
        asyncio.get_running_loop().call_later(0.01, receiver.close)
        return sum([1 async for _ in receiver.batches()])

    assert asyncio.run(wait()) == 0


def test_leaving_the_async_iterator_early_leaves_nothing_behind(
    receiver: Receiver, sender: Sender
) -> None:
    async def take_one() -> int:
        async with aclosing(receiver.batches()) as batches:
            async for batch in batches:
                return len(batch)
        return 0

    sender.send(0, 1)
    assert asyncio.run(take_one()) == 1


def _complaint_until_asleep(thread: threading.Thread) -> str | None:
    """A complaint until the kernel has put the thread to sleep."""
    stat = Path(f"/proc/self/task/{thread.native_id}/stat").read_text()
    state = stat.rpartition(")")[2].split()[0]
    return None if state == "S" else f"in state {state}"
