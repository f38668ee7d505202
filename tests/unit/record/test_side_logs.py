"""Ledgers, counters and contracts: bounded in memory and on the disk, without a recorder's end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gridstat.record.log_reader import LogReader
from gridstat.record.log_settings import LogSettings, RecorderSettings
from gridstat.record.record_kinds import CONTRACTS, COUNTERS, EVENTS
from gridstat.record.recorder import read_rows
from tests.unit.record.batches import BEGAN_NS
from tests.unit.record.samples import Clock, samples
from tests.unit.record.test_recorder import full_disk, recording

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

DAY_NS = 86_400 * 10**9
SMALL = RecorderSettings(
    side=LogSettings(segment_bytes_max=8_000, segment_s_max=3_600.0, log_bytes_max=80_000),
    account_s_max=7 * 86_400.0,
)
CONTRACT = {
    "time_ns": 1,
    "subscription": 2,
    "endpoint": "c1/desk",
    "variable": "c1/a/v1",
    "publisher": "c1/a",
    "value_type": "float64",
    "period_seconds": 1,
    "period_per_seconds": 30,
    "phase_ns": 0,
    "every": 1,
    "latency_ms": 20.0,
    "redundancy": 2,
    "priority": 3,
    "is_over": False,
}


def counters(time_ns: int, first: int, count: int) -> list[dict[str, Any]]:
    named = {"time_ns": time_ns, "router": "c1/e0", "channel": "", "counter": "in"}
    return [{**named, "value": value} for value in range(first, first + count)]


def values(folder: Path) -> list[int]:
    return [row["value"] for row in read_rows(folder, COUNTERS)]


def test_rows_wait_for_the_disk_in_their_order(tmp_path: Path) -> None:
    told = []
    with recording(tmp_path, RecorderSettings()) as recorder:
        with full_disk(1):
            for first in (0, 10, 20):
                recorder.put(COUNTERS, counters(BEGAN_NS, first, 10))
                recorder.put(CONTRACTS, [CONTRACT])
                recorder.sync()
            told.append(recorder.figures().state)
        recorder.sync()
        told.append(recorder.figures().state)
        assert not any(recorder.figures().dropped_rows.values())
    assert told == ["failing", "recording"]
    assert values(tmp_path) == list(range(30))
    assert list(read_rows(tmp_path, CONTRACTS)) == [CONTRACT] * 3


def test_what_waits_is_bounded_and_the_oldest_readings_go_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with recording(tmp_path, RecorderSettings(rows_bytes_max=20_000)) as recorder:
        with full_disk(1):
            recorder.put(CONTRACTS, [CONTRACT] * 10)
            for first in range(0, 10_000, 100):
                recorder.put(COUNTERS, counters(BEGAN_NS, first, 100))
                recorder.sync()
        dropped = recorder.figures().dropped_rows["counters"]
        recorder.sync()
    found = values(tmp_path)
    assert dropped > 9_000
    assert found == list(range(dropped, 10_000))
    assert list(read_rows(tmp_path, CONTRACTS)) == [CONTRACT] * 10
    words = [message.partition(" ")[0] for message in caplog.messages]
    assert words.count("rows_dropped") == 1


def test_contracts_are_bounded_in_memory_as_well(tmp_path: Path) -> None:
    with recording(tmp_path, RecorderSettings(rows_bytes_max=5_000)) as recorder:
        with full_disk(1):
            for number in range(100):
                recorder.put(CONTRACTS, [{**CONTRACT, "subscription": number}])
        dropped = recorder.figures().dropped_rows["contracts"]
        recorder.sync()
    assert 0 < dropped < 100
    found = [row["subscription"] for row in read_rows(tmp_path, CONTRACTS)]
    assert found == list(range(dropped, 100))


def test_old_accounts_are_released_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    caplog.set_level("INFO")
    with recording(tmp_path, SMALL, clock) as recorder:
        recorder.take(samples(0, 10))
        for day in range(10):
            recorder.put(COUNTERS, counters(clock.ns, day, 1))
            recorder.put(CONTRACTS, [{**CONTRACT, "time_ns": clock.ns}])
            recorder.sync()
            recorder.tend()
            clock.ns += DAY_NS
        assert values(tmp_path) == [2, 3, 4, 5, 6, 7, 8, 9]
        assert recorder.figures().released_bytes["counters"] > 0
        assert recorder.figures().released_bytes["contracts"] == 0
    assert len(list(read_rows(tmp_path, CONTRACTS))) == 10
    assert LogReader(tmp_path, EVENTS).ends() == (0, 10)
    assert "released log=counters" in caplog.text


def test_accounts_near_their_bound_make_room_before_the_alarm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    states = set()
    with recording(tmp_path, SMALL, clock) as recorder:
        for first in range(0, 10_000, 50):
            recorder.put(COUNTERS, counters(clock.ns, first, 50))
            recorder.sync()
            recorder.tend()
            states.add(recorder.figures().state)
            clock.ns += 10**9
        figures = recorder.figures()
    assert states == {"recording"}
    assert "log_nearly_full" not in caplog.text
    assert 40_000 < figures.log_bytes["counters"] < 64_000 < figures.released_bytes["counters"]
    found = values(tmp_path)
    assert found == list(range(found[0], 10_000))
    assert found[0] > 0


def test_a_log_of_accounts_that_was_full_takes_more_again(tmp_path: Path) -> None:
    full = replace(SMALL, account_s_max=1e9)
    with recording(tmp_path, full) as recorder:
        for first in range(0, 2_000, 50):
            recorder.put(COUNTERS, counters(BEGAN_NS, first, 50))
            recorder.sync()
        assert recorder.figures().state == "full"
        recorder.tend()
        recorder.sync()
        assert recorder.figures().state == "recording"
    found = values(tmp_path)
    assert found == list(range(found[0], 2_000))
