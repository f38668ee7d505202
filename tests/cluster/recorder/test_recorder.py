"""A recorder as a process of a real cloud: every event is recorded, or is in a recorded gap."""

from __future__ import annotations

import resource
import signal
import urllib.error
import urllib.request
from collections import Counter
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from gridstat.endpoint.options import qos
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType
from gridstat.record.log_reader import LogReader
from gridstat.record.record_kinds import CONTRACTS, COUNTERS, EVENTS, GAPS, LEDGERS, STREAMS
from gridstat.record.recorder import read_rows
from gridstat.record.status_file import read_status
from lab.declared_delay import DELAY_MS
from tests.cluster.command import Command
from tests.cluster.eventually import eventually
from tests.cluster.one_cloud.cloud import EAST, ROUTERS, WEST
from tests.cluster.one_cloud.streams import Stream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.one_cloud.cloud import Cloud

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
HTTP_OK, UNAVAILABLE = 200, 503
MISSING = 'gridstat_recorder_missing_events_total{reason="disk failed"}'


@contextmanager
def recording(cloud: Cloud, folder: Path, pattern: str, *words: str) -> Iterator[Command]:
    """A recorder into `folder`/log, once it is ready."""
    folder.mkdir(exist_ok=True)
    places = ("--into", folder / "log", "--folder", cloud.folder)
    with Command.gridstat(folder, "recorder", pattern, *places, *words, "--json") as command:
        eventually(lambda: command.complaint_without("ready"))
        yield command


@contextmanager
def full_disk(process_id: int) -> Iterator[None]:
    """No file of the process may grow: every write beyond what there is fails."""
    before = resource.prlimit(process_id, resource.RLIMIT_FSIZE)
    resource.prlimit(process_id, resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        yield
    finally:
        resource.prlimit(process_id, resource.RLIMIT_FSIZE, before)


def slots_in(log: Path, start: int = 0) -> list[int]:
    """The slots of all recorded events, by their values."""
    reader = LogReader(log, EVENTS)
    return [
        int(value)
        for piece in reader.slices(start, reader.ends()[1], 1_000_000)
        for batch in reader.read(piece)
        for value in batch.column("word").to_numpy().view("f8").tolist()
    ]


def missing(sent: list[int], log: Path) -> str | None:
    """Return a complaint for `eventually` while sent events are not in the log."""
    lost = set(sent) - set(slots_in(log))
    return f"{len(lost)} of {len(sent)} are not recorded" if lost else None


def fewer_caught_than(count: int, log: Path) -> str | None:
    """A recorder is ready before its pattern has caught anything."""
    found = (read_status(log) or {}).get("streams", 0)
    return None if found >= count else f"{found} of {count} streams are caught"


def status_other_than(log: Path, state: str) -> str | None:
    status = read_status(log)
    found = None if status is None else status["state"]
    return None if found == state else f"the recorder is {found}, not {state}"


def health(port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def told_missing(port: int) -> float:
    """Return the metric of events that the disk did not take."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    (found,) = [line for line in lines if line.startswith(MISSING)]
    return float(found.split()[-1])


def test_what_is_delivered_is_recorded_with_its_contract_ledger_and_counters(
    cloud: Cloud, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    publisher = cloud.connect("c1/kept/pmu", WEST)
    desk = cloud.connect("c1/kept/desk", EAST)
    streams = publisher.publish_many(
        ["a", "b", "c"], BuiltinType.FLOAT64, rate=30, delay_ms=DELAY_MS
    )
    desk.subscribe(streams[0].name, qos=qos(rate=10, redundancy=2))
    often = ("--account-s", "0.5", "--ledger-s", "0.5")
    words = (*often, "--redundancy", "2", "--name", "c1/kept/recorder")
    with recording(cloud, tmp_path, "c1/kept/**", *words) as recorder, ExitStack() as sending:
        eventually(lambda: fewer_caught_than(3, log))
        sent = [sending.enter_context(Stream(each)) for each in streams]
        eventually(lambda: sent[0].complaint_below(60))
        second = tmp_path / "second"
        second.mkdir()
        with Command.gridstat(
            second, "recorder", "--into", log, "--folder", cloud.folder, "--name", "c1/kept/other"
        ) as other:
            assert other.exit_code() == 1
            assert "another recorder writes to" in other.errors
        sending.close()
        told = {stream.name: len(each.sent) for stream, each in zip(streams, sent, strict=True)}

        def unequal() -> str | None:
            events = events_by_variable(log)
            ledgers = delivered_by_variable(log, "c1/kept/recorder")
            return None if events == ledgers == told else f"{told} {events} {ledgers}"

        eventually(unequal)
        assert recorder.end(signal.SIGTERM) == 0
        (ended,) = recorder.lines_in("ended")
        assert ended["recorded"] == sum(told.values())
        assert not any(ended["missing"].values())
    contracts = {(row["endpoint"], row["variable"]): row for row in read_rows(log, CONTRACTS)}
    promised = contracts["c1/kept/desk", streams[0].name]
    assert (promised["every"], promised["redundancy"], promised["is_over"]) == (3, 2, False)
    assert (promised["period_seconds"], promised["period_per_seconds"]) == (1, 30)
    assert promised["publisher"] == "c1/kept/pmu"
    assert {row["router"] for row in read_rows(log, COUNTERS)} == {f"c1/{one}" for one in ROUTERS}


def events_by_variable(log: Path) -> dict[str, int]:
    names = {row["stream"]: row["variable"] for row in read_rows(log, STREAMS)}
    return dict(Counter(names[row["stream"]] for row in read_rows(log, EVENTS)))


def delivered_by_variable(log: Path, end_point: str) -> dict[str, int]:
    return {
        row["variable"]: row["delivered"]
        for row in read_rows(log, LEDGERS)
        if row["endpoint"] == end_point and row["path"] is None
    }


def test_a_killed_recorder_goes_on_and_its_downtime_is_a_gap(cloud: Cloud, tmp_path: Path) -> None:
    log = tmp_path / "log"
    publisher = cloud.connect("c1/killed/pmu", WEST)
    stream = publisher.publish("value", BuiltinType.FLOAT64, rate=60, delay_ms=DELAY_MS)
    words = ("c1/killed/**", "--name", "c1/killed/recorder")
    with Stream(stream) as sending:
        with recording(cloud, tmp_path, *words) as recorder:
            eventually(lambda: recorded_below(log, 60))
            recorder.signal(signal.SIGKILL)
            recorder.process.wait()
        held = LogReader(log, EVENTS).ends()[1]
        with recording(cloud, tmp_path, *words) as recorder:
            (ready,) = recorder.lines_in("ready")
            eventually(lambda: recorded_below(log, held + 60))
            sent = list(sending.sent)
            first_after = slots_in(log, held)[0]
            eventually(lambda: missing([slot for slot in sent if slot >= first_after], log))
            assert recorder.end(signal.SIGTERM) == 0
    assert ready["recorded"] == held
    slots = slots_in(log)
    assert len(set(slots)) == len(slots)
    before, after = slots[:held], slots[held:]
    assert max(before) < min(after) == first_after
    lost = set(sent) - set(slots)
    assert all(max(before) < slot < min(after) or slot < min(before) for slot in lost)
    rows = list(read_rows(log, EVENTS))
    assert {row["stream"] for row in rows[:held]} == {0}
    assert {row["stream"] for row in rows[held:]} == {1}, "of another contract"
    gap, rest = [row for row in read_rows(log, GAPS) if row["reason"] == "recorder down"]
    assert gap["from_ns"] == max(row["received_ns"] for row in rows[:held])
    assert gap["from_ns"] < gap["to_ns"] == rest["from_ns"] <= rest["to_ns"]
    assert gap["events"] is None


def recorded_below(log: Path, count: int) -> str | None:
    found = LogReader(log, EVENTS).ends()[1]
    return None if found >= count else f"{found} of {count} recorded"


def test_a_variable_with_another_period_is_another_stream(cloud: Cloud, tmp_path: Path) -> None:
    log = tmp_path / "log"
    publisher = cloud.connect("c1/paced/pmu", WEST)
    published = publisher.publish("value", BuiltinType.FLOAT64, rate=30, delay_ms=DELAY_MS)
    with recording(cloud, tmp_path, "c1/paced/**", "--name", "c1/paced/recorder") as recorder:
        eventually(lambda: fewer_caught_than(1, log))
        with Stream(published) as slow:
            eventually(lambda: recorded_below(log, 20))
        eventually(lambda: missing(slow.sent, log))
        published.change_period(Period(1, 60))
        with Stream(published) as fast:
            eventually(lambda: None if by_stream(log)[1] >= 40 else f"{by_stream(log)}")
        eventually(lambda: missing(fast.sent, log))
        assert recorder.end(signal.SIGTERM) == 0
    rates = {row["stream"]: row["period_per_seconds"] for row in read_rows(log, STREAMS)}
    assert rates == {0: 30, 1: 60}
    numbers = by_stream(log)
    assert sum(numbers.values()) == len(slow.sent) + len(fast.sent)
    assert numbers[0] >= len(slow.sent)


def by_stream(log: Path) -> Counter[int]:
    """Return the number of recorded events of each stream."""
    return Counter(row["stream"] for row in read_rows(log, EVENTS))


def test_the_end_of_a_contract_is_recorded_without_waiting_for_an_account(
    cloud: Cloud, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    publisher = cloud.connect("c1/left/pmu", WEST)
    stays, goes = publisher.publish_many(["stays", "goes"], BuiltinType.FLOAT64, rate=30)
    words = ("c1/left/**", "--name", "c1/left/recorder", "--account-s", "3600")
    with recording(cloud, tmp_path, *words) as recorder:
        with Stream(stays), Stream(goes):
            eventually(lambda: recorded_below(log, 40))
        goes.unpublish()
        eventually(lambda: None if ended(log) == {goes.name} else f"{ended(log)} have ended")
        assert recorder.end(signal.SIGTERM) == 0
    assert ended(log) == {goes.name, stays.name}


def ended(log: Path) -> set[str]:
    """Variables of which a contract is over."""
    return {row["variable"] for row in read_rows(log, CONTRACTS) if row["is_over"]}


def test_a_full_disk_is_told_and_costs_only_what_comes_meanwhile(
    cloud: Cloud, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    publisher = cloud.connect("c1/full/pmu", WEST)
    stream = publisher.publish("value", BuiltinType.FLOAT64, rate=60)
    words = ("c1/full/**", "--name", "c1/full/recorder", "--metrics-port", "0")
    with recording(cloud, tmp_path, *words) as recorder, Stream(stream) as sending:
        (ready,) = recorder.lines_in("ready")
        port = ready["metrics"][1]
        eventually(lambda: recorded_below(log, 20))
        assert health(port) == HTTP_OK
        with full_disk(recorder.process.pid):
            eventually(lambda: None if told_missing(port) else "nothing is missing")
            assert health(port) == UNAVAILABLE
        eventually(lambda: None if health(port) == HTTP_OK else "still failing")
        eventually(lambda: status_other_than(log, "recording"))
        recorder.signal(signal.SIGHUP)
        eventually(lambda: not_closed(log))
        held = LogReader(log, EVENTS).ends()[1]
        eventually(lambda: recorded_below(log, held + 20))
        assert recorder.end(signal.SIGTERM) == 0
    assert sending.sent
    (ended,) = recorder.lines_in("ended")
    told = [row for row in read_rows(log, GAPS) if row["reason"] == "disk failed"]
    assert sum(row["events"] for row in told) == ended["missing"]["disk failed"] > 0
    assert ended["recorded"] + ended["missing"]["disk failed"] == ended["taken"]
    assert "recorded_again" in recorder.errors


def not_closed(log: Path) -> str | None:
    extents: list[Any] = LogReader(log, EVENTS).extents()
    return None if any(each.is_closed for each in extents) else "no segment is closed"
