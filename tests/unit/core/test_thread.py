"""The core with its own thread and real sockets: who does what, and that nothing leaks."""

from __future__ import annotations

import itertools
import os
import re
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from gridstat.core._core import Core, allocations
from gridstat.core.rows import STAMP_NEAR_NS, ChannelSpec, Limits, Route, Row, Term
from gridstat.model.errors import LayoutError, LinkDown, Misuse
from gridstat.model.rate_law import Period
from tests.protocol.grids import datagram, event
from tests.unit.core.running import LIMITS, MICROSECOND, SOURCE, Hop, eventually, hop

MakeHop = Callable[..., AbstractContextManager[Hop]]
CORE = Path(__file__).parents[3] / "gridstat" / "core"
MADE_BY_CYTHON = ("_core", "_ends")
STAMP_NS = 1_700_000_000_000_000_000


@pytest.fixture(params=[False, True], ids=["linux", "posix"])
def make_hop(request: pytest.FixtureRequest) -> MakeHop:
    """Every test runs with Linux's extras, and again with POSIX calls alone."""
    return partial(hop, posix=request.param)


def thread_ids() -> set[int]:
    return {int(entry.name) for entry in Path("/proc/self/task").iterdir()}


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.feature("S3-30")
def test_an_event_crosses_a_running_core(make_hop: MakeHop, host: str) -> None:
    with make_hop(host=host) as made:
        made.core.commit([made.row(7)])
        made.core.start()
        made.send(7, STAMP_NS)
        received = made.subscribers[0].recv(2_000)
        assert received == datagram(1, event(7, STAMP_NS), counter=1)


@pytest.mark.feature("S3-9")
def test_one_thread_receives_forwards_and_sends(make_hop: MakeHop) -> None:
    before = thread_ids()
    with make_hop() as made:
        made.core.commit([made.row(7)])
        made.core.start()
        (thread,) = thread_ids() - before
        made.send(7, STAMP_NS)
        made.subscribers[0].recv(2_000)
        assert thread_ids() - before == {thread}
        assert made.core.thread_cpu_ns() > 0
        assert made.core.channel_counters(1)["queued"] == 0


def processor_of(thread: int) -> int:
    """The processor that a thread of this process last ran on (proc(5): stat, field 39)."""
    stat = Path(f"/proc/self/task/{thread}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[39 - 3])


def started_on(made: Hop, cpu: int | None) -> int:
    """The thread of a core that has just been started there."""
    before = thread_ids()
    assert made.core.start(cpu=cpu) is None
    (thread,) = thread_ids() - before
    return thread


@contextmanager
def flooded(made: Hop) -> Iterator[Callable[[], int]]:
    """Send faster than the core can forward; yield a function that counts pending events."""
    ending = threading.Event()
    identifiers = np.full(4_096, 7, np.uint32)
    values = np.zeros(4_096, np.int64)
    steps_ns = np.arange(4_096, dtype=np.uint64) * np.uint64(1_000)
    with made.sender() as sender:

        def behind() -> int:
            return sender.counters()["sent"] - made.core.counters()["in"]

        def keep_sending() -> None:
            for turn in itertools.count():
                if ending.is_set():
                    return
                stamps = steps_ns + np.uint64(STAMP_NS + turn * 4_096_000)
                sender.send_many(identifiers, values, stamps)

        thread = threading.Thread(target=keep_sending)
        thread.start()
        try:
            eventually(lambda: None if behind() > 100_000 else "the core keeps pace")
            yield behind
        finally:
            ending.set()
            thread.join()


def test_cores_on_processors_of_their_own_forward_all_while_another_core_is_saturated(
    make_hop: MakeHop,
) -> None:
    processors = sorted(os.sched_getaffinity(0))
    chosen = (processors[0], processors[-1])
    with make_hop(subscribers=40) as busy, make_hop() as first, make_hop() as second:
        busy.core.commit([busy.row(7, channels=40)])
        started_on(busy, None)
        threads = [started_on(made, cpu) for made, cpu in zip((first, second), chosen, strict=True)]
        for made in (first, second):
            made.core.commit([made.row(7)])
        with flooded(busy) as behind:
            backlog = behind()
            for slot in range(200):
                first.send(7, STAMP_NS + slot * 1_000)
                second.send(7, STAMP_NS + slot * 1_000)
            for made in (first, second):
                eventually(made.settled(200))
            eventually(lambda: None if behind() > backlog else "the busy core has caught up")
        for made, thread, cpu in zip((first, second), threads, chosen, strict=True):
            assert made.core.counters()["dispatched"] == 200
            assert made.core.channel_counters(1)["sent"] == 200
            assert os.sched_getaffinity(thread) == {cpu}
            assert processor_of(thread) == cpu


@pytest.mark.feature("S3-15")
@pytest.mark.timeout(300)
def test_a_million_datagrams_pass_and_no_memory_is_taken(make_hop: MakeHop) -> None:
    """One in 13 leaves by three channels; few are under way at a time, so that none is lost."""
    million, at_once, variables = 1_000_000, 250, 50
    identifiers = np.arange(at_once, dtype=np.uint32) % variables
    values = np.zeros(at_once, np.int64)
    steps_ns = np.arange(at_once, dtype=np.uint64) * np.uint64(1_000)
    with make_hop(subscribers=3) as made, made.sender() as sender:
        made.core.commit([made.row(number, every=13, channels=3) for number in range(variables)])
        made.core.start()
        made.send(3, STAMP_NS - 1_000)
        eventually(made.settled(1))
        before, pool = allocations(), made.core.pool_free()
        for sent in range(0, million, at_once):
            stamps = steps_ns + np.uint64(STAMP_NS + sent * 1_000)
            assert sender.send_many(identifiers, values, stamps, events_per_datagram=1) == at_once
            eventually(made.settled(1 + sent + at_once), pause_s=0)
        made.core.stop()
        assert made.core.counters()["datagrams_in"] == 1 + million
        assert allocations() == before
        assert made.core.pool_free() == pool == (LIMITS.pool_small, LIMITS.pool_large)


@pytest.mark.feature("S3-14", "S1-55")
def test_changes_under_traffic_lose_nothing_of_untouched_variables(make_hop: MakeHop) -> None:
    """A pair of rows is always changed together; no batch may see only one of the two."""
    with make_hop(subscribers=2) as made:
        core = made.core
        core.commit([made.row(1), made.row(2, channels=2), made.row(3)])
        core.start()
        total = 4_000
        for slot in range(total):
            pair = datagram(
                SOURCE, event(2, STAMP_NS + slot * 1_000), event(3, STAMP_NS + slot * 1_000)
            )
            made.send(1, STAMP_NS + slot * 1_000)
            made.publisher.sendto(pair, (made.host, made.ports[0]))
            to_both = slot % 2 == 0
            channels = 2 if to_both else 1
            core.commit([made.row(2, channels=channels), made.row(3, channels=3 - channels)])
            if slot % 64 == 0:
                eventually(made.settled(3 * (slot + 1)))
        eventually(made.settled(3 * total))
        counters = core.counters()
        assert counters["dispatched"] == 3 * total == counters["in"]
        assert counters["duplicate"] == 0
        # Channel 1 gets every event of all three; channel 2 exactly one of each pair.
        assert core.channel_counters(1)["due"] == 3 * total
        assert core.channel_counters(2)["due"] == total
        core.stop()
        assert core.retired() == 0


@pytest.mark.feature("S0-71")
def test_buffers_come_home_from_full_and_from_closed_queues() -> None:
    core = Core(LIMITS)
    for channel_id in (1, 2):
        core.open_channel(ChannelSpec(channel_id, bandwidth_bytes_per_s=1_000, queue_events_max=20))
    core.open_source(SOURCE)
    routes = tuple(Route(channel_id, (Term(1),)) for channel_id in (1, 2))
    core.commit([Row(1, MICROSECOND, routes=routes)])
    for slot in range(20_000):
        now_ns = STAMP_NS + slot * 1_000
        core.inject(datagram(SOURCE, event(1, now_ns)), now_ns=now_ns)
        assert core.pool_free()[0] >= LIMITS.pool_small - 21
    assert core.channel_counters(1)["queue_full"] > 19_000
    core.close_channel(1)
    core.pump(STAMP_NS + 10**12)
    assert core.channel_counters(2)["queued"] == 0
    assert core.pool_free() == (LIMITS.pool_small, LIMITS.pool_large)
    core.close()


@pytest.mark.feature("S3-21")
@pytest.mark.parametrize("size", [1_473, 6_160, 9_000, 65_507])
def test_garbage_of_any_size_is_malformed_padding_is_ignored_and_nothing_overflows(
    make_hop: MakeHop, size: int
) -> None:
    """The thread goes on: what follows in the same socket is forwarded byte by byte."""
    good = datagram(SOURCE, event(7, STAMP_NS))
    full = datagram(SOURCE, event(7, STAMP_NS + 1_000, options=255))
    with make_hop() as made:
        made.core.commit([made.row(7)])
        made.core.start()
        for raw in (b"\xff" * size, good + b"\xff" * (size - len(good)), full):
            made.publisher.sendto(raw, (made.host, made.ports[0]))
        eventually(made.settled(3))
        made.core.stop()
        counters = made.core.counters()
        assert counters["malformed_version"] == counters["malformed"] == 1
        assert counters["dispatched"] == 2
        assert counters["bytes_in"] == 2 * size + len(full)
        assert made.subscribers[0].recv(65_536) == datagram(1, good[16:], counter=1)
        assert made.subscribers[0].recv(65_536) == datagram(1, full[16:], counter=2)


def test_urgent_events_come_on_their_own_port_and_leave_on_the_peers_own_port(
    make_hop: MakeHop,
) -> None:
    with make_hop(subscribers=2) as made:
        data, urgent = (subscriber.getsockname()[1] for subscriber in made.subscribers)
        made.core.open_channel(ChannelSpec(9, address=("127.0.0.1", data, urgent)))
        route = (Route(9, (Term(1),)),)
        made.core.commit(
            [Row(7, None, is_urgent=True, routes=route), Row(8, MICROSECOND, routes=route)]
        )
        made.core.start()
        made.send(7, STAMP_NS, port=1)
        made.send(8, STAMP_NS, port=0)
        made.send(8, STAMP_NS + 1_000, port=1)
        assert made.subscribers[1].recv(2_000)[16:] == event(7, STAMP_NS)
        assert made.subscribers[0].recv(2_000)[16:] == event(8, STAMP_NS)
        eventually(made.settled(3))
        assert made.core.counters()["policed_port"] == 1


def test_a_paced_channel_drains_by_its_timer_without_new_events(make_hop: MakeHop) -> None:
    with make_hop() as made:
        port = made.subscribers[0].getsockname()[1]
        made.core.open_channel(
            ChannelSpec(9, bandwidth_bytes_per_s=20_000, address=("127.0.0.1", port, port))
        )
        made.core.commit([Row(7, Period(1, 1_000_000), routes=(Route(9, (Term(1),)),))])
        made.core.start()
        for slot in range(150):
            made.send(7, STAMP_NS + slot * 1_000)
        eventually(lambda: None if made.core.channel_counters(9)["sent"] == 150 else "not drained")
        assert made.core.channel_counters(9)["queued"] == 0
        assert made.core.pool_free() == (LIMITS.pool_small, LIMITS.pool_large)


def test_a_channel_closes_under_traffic_and_opens_again(make_hop: MakeHop) -> None:
    with make_hop() as made:
        core = made.core
        core.commit([made.row(7)])
        core.start()
        for slot in range(300):
            made.send(7, STAMP_NS + slot * 1_000)
            if slot % 10 == 5:
                core.close_channel(1)
                port = made.subscribers[0].getsockname()[1]
                core.open_channel(ChannelSpec(1, address=("127.0.0.1", port, port)))
        eventually(made.settled(300))
        counters = core.counters()
        assert counters["dispatched"] + counters["not_due"] == 300


def test_a_port_that_is_taken_is_named(make_hop: MakeHop) -> None:
    with make_hop() as made:
        other = Core(LIMITS)
        with pytest.raises(LinkDown, match=str(made.ports[0])):
            other.listen("127.0.0.1", made.ports[0])
        other.close()


def test_a_closed_core_and_a_running_one_refuse_what_they_cannot_do() -> None:
    core = Core(LIMITS)
    core.listen("127.0.0.1")
    core.start()
    with pytest.raises(Misuse, match="running"):
        core.inject(b"", now_ns=STAMP_NS)
    core.stop()
    core.stop()
    with pytest.raises(LayoutError):
        core.inject(b"", now_ns=0)
    core.close()
    core.close()
    with pytest.raises(Misuse, match="closed"):
        core.counters()


def test_a_forked_child_may_drop_the_core_and_the_parent_goes_on(make_hop: MakeHop) -> None:
    with make_hop() as made:
        made.core.commit([made.row(7)])
        made.core.start()
        child = os.fork()
        if child == 0:
            made.core.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        made.send(7, STAMP_NS)
        assert select.select([made.subscribers[0]], [], [], 10)[0]


def test_real_time_options_are_granted_or_named_as_refused() -> None:
    core = Core(Limits(variables_max=64, rings_max=4, channels_max=4, pool_small=4, pool_large=1))
    core.listen("127.0.0.1")
    refused = core.start(cpu=0, fifo_priority=1)
    assert refused is None or "permitted" in refused
    core.close()


@pytest.mark.feature("S3-30")
def test_only_the_platform_file_includes_what_linux_alone_has() -> None:
    wanted = re.compile(
        r"^\s*#\s*include\s*[<\"](.*(?:epoll|eventfd|linux/|netinet/udp\.h).*)[>\"]", re.M
    )
    found = {
        source.name: wanted.findall(source.read_text())
        for source in sorted(CORE.glob("*.[ch]"))
        if source.stem not in MADE_BY_CYTHON
    }
    assert found.pop("platform.c"), "the search finds nothing even where it should"
    assert {name: headers for name, headers in found.items() if headers} == {}


def test_copies_on_a_paced_channel_are_timed_from_their_arrival_not_from_their_queueing() -> None:
    with hop() as found:
        port = found.subscribers[0].getsockname()[1]
        found.core.open_channel(
            ChannelSpec(9, bandwidth_bytes_per_s=10**9, address=("127.0.0.1", port, port))
        )
        found.core.commit([Row(1, MICROSECOND, routes=(Route(9, (Term(1),)),))])
        found.core.start()
        for number in range(20):
            found.send(1, 1_000 * (number + 1))
            found.subscribers[0].recv(2_048)
        told = {upper: count for upper, count in found.core.latency_histogram() if count}
        assert sum(told.values()) == 20
        assert min(told) > 8  # Nothing is forwarded in eight nanoseconds.


def test_an_event_that_waits_for_the_thread_is_as_old_as_it_was_on_arrival() -> None:
    """A busy router must not police events that came in time."""
    with hop() as made:
        made.core.open_source(SOURCE, is_publisher=True)
        row = replace(made.row(7), source=SOURCE)
        behind_ns_max = 5 * STAMP_NEAR_NS  # Time enough to send it, on a busy machine too.
        bounded = replace(row, ahead_ns_max=STAMP_NEAR_NS, behind_ns_max=behind_ns_max)
        made.core.commit([bounded])
        created_ns = time.time_ns()
        made.send(7, created_ns)
        while time.time_ns() - created_ns <= behind_ns_max:
            time.sleep(0.01)
        made.core.start()
        assert made.subscribers[0].recv(2_000) == datagram(1, event(7, created_ns), counter=1)
        assert made.core.counters()["policed_stamp"] == 0
