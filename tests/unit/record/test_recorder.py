"""A recorder without a grid: every event is recorded or in a gap, whatever the disk does."""

from __future__ import annotations

import gc
import os
import resource
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gridstat.model.errors import DamagedLog, StorageFailed
from gridstat.model.status import OPTION_BYTES
from gridstat.record.archive_mark import archived_before, note_archived
from gridstat.record.gap_records import GapReason
from gridstat.record.log_reader import LogReader
from gridstat.record.log_settings import LogSettings, RecorderSettings
from gridstat.record.record_kinds import EVENTS, GAPS, STREAMS
from gridstat.record.recorder import Recorder, read_rows
from tests.unit.record.batches import BEGAN_NS
from tests.unit.record.samples import Clock, samples, variable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SMALL = RecorderSettings(
    events=LogSettings(segment_bytes_max=20_000, segment_s_max=60.0, log_bytes_max=100_000),
    ring_events_max=10_000,
)
EVENT_BYTES_MAX = 60


@contextmanager
def recording(
    folder: Path, settings: RecorderSettings = SMALL, clock: Clock | None = None
) -> Iterator[Recorder]:
    recorder = Recorder(folder, now_ns=clock or Clock(), settings=settings)
    try:
        recorder.begin(variable(), 1, 7)
        yield recorder
    finally:
        recorder.close()


@contextmanager
def full_disk(bytes_max: int) -> Iterator[None]:
    """No file of this process may grow beyond that."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_max, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def recorded(folder: Path) -> list[int]:
    return [row["word"] for row in read_rows(folder, EVENTS)]


def gaps(folder: Path) -> list[tuple[str, int | None]]:
    return [(row["reason"], row["events"]) for row in read_rows(folder, GAPS)]


def test_events_are_recorded_as_they_came(tmp_path: Path) -> None:
    batch = samples(0, 3)
    batch["option_count"] = [0, 2, 1]
    batch["flags"] = [0, 2, 4]
    options = b"a" * (2 * OPTION_BYTES) + b"b" * OPTION_BYTES
    with recording(tmp_path) as recorder:
        recorder.take(batch, options)
        recorder.take(samples(3, 2, variable_id=99))
    rows = list(read_rows(tmp_path, EVENTS))
    assert [row["options"] for row in rows] == [
        None,
        options[: 2 * OPTION_BYTES],
        options[2 * OPTION_BYTES :],
        None,
        None,
    ]
    assert [row["stream"] for row in rows] == [0, 0, 0, -1, -1]
    assert [row["flags"] for row in rows] == [0, 2, 4, 0, 0]
    assert rows[1]["created_ns"] == BEGAN_NS + 1_000_000
    assert rows[1]["received_ns"] == BEGAN_NS + 1_000_500
    assert [row["sequence"] for row in rows] == [0, 1, 2, 3, 4]


def test_nothing_is_recorded_before_it_is_safe(tmp_path: Path) -> None:
    with recording(tmp_path) as recorder:
        recorder.take(samples(0, 10))
        recorder.write()
        assert recorded(tmp_path) == []
        assert recorder.sync() == 10
        assert recorded(tmp_path) == list(range(10))


def test_what_a_stream_means_is_safe_before_its_first_event(tmp_path: Path) -> None:
    with recording(tmp_path) as recorder:
        recorder.take(samples(0, 10))
        recorder.write()
        assert [row["variable"] for row in read_rows(tmp_path, STREAMS)] == ["c1/a/v1"]
        assert recorded(tmp_path) == []


def test_what_is_replayed_is_left_out_with_its_options(tmp_path: Path) -> None:
    batch = samples(0, 4)
    batch["variable_id"] = [1, 5, 5, 1]
    batch["option_count"] = [1, 2, 0, 1]
    options = b"a" * OPTION_BYTES + b"b" * (2 * OPTION_BYTES) + b"c" * OPTION_BYTES
    with recording(tmp_path) as recorder:
        recorder.begin(replace(variable(5), replay_speed=10), 1, 8)
        recorder.take(batch, options)
        recorder.take(samples(4, 3, variable_id=5))
        assert recorder.taken == 2
    rows = list(read_rows(tmp_path, EVENTS))
    assert [(row["word"], row["options"]) for row in rows] == [
        (0, b"a" * OPTION_BYTES),
        (3, b"c" * OPTION_BYTES),
    ]


def test_options_take_room_in_the_ring(tmp_path: Path) -> None:
    tight = RecorderSettings(ring_bytes_max=10_000)
    batch = samples(0, 10)
    batch["option_count"] = 20
    with recording(tmp_path, tight) as recorder:
        recorder.take(batch, bytes(10 * 20 * OPTION_BYTES))
        recorder.take(samples(10, 100))
        recorder.take(batch, bytes(10 * 20 * OPTION_BYTES))
        assert recorder.figures().missing["ring full"] == 10
    assert recorded(tmp_path) == list(range(110))


def test_a_slow_disk_costs_what_finds_no_room_and_that_is_a_gap(tmp_path: Path) -> None:
    with recording(tmp_path, RecorderSettings(ring_events_max=10_000)) as recorder:
        for first in range(0, 14_000, 2_000):
            recorder.take(samples(first, 2_000))
        assert recorder.figures().waiting == 10_000
        assert recorder.figures().missing["ring full"] == 4_000
    (row,) = read_rows(tmp_path, GAPS)
    assert (row["reason"], row["events"]) == ("ring full", 4_000)
    assert row["from_ns"] == BEGAN_NS + 10_000 * 1_000_000 + 500
    assert row["to_ns"] == BEGAN_NS + 13_999 * 1_000_000 + 500


def test_a_full_log_warns_then_refuses_and_goes_on_once_the_archive_has_taken_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    states = []
    with recording(tmp_path) as recorder:
        for first in range(0, 4_000, 100):
            recorder.take(samples(first, 100))
            recorder.sync()
            states.append(recorder.figures().state)
        held = recorder.figures().recorded
        assert "(5003)" in recorder.figures().complaint
        note_archived(tmp_path, EVENTS, held)
        recorder.tend()
        recorder.take(samples(4_000, 100))
        recorder.sync()
        assert recorder.figures().state == "recording"
        assert recorder.figures().missing["log full"] == 4_000 - held
        assert recorder.figures().recorded == held + 100
    assert list(dict.fromkeys(states)) == ["recording", "nearly full", "full"]
    words = [message.partition(" ")[0] for message in caplog.messages]
    assert words.count("log_nearly_full") == words.count("not_recorded") == 1
    assert sum(events or 0 for reason, events in gaps(tmp_path) if reason == "log full") == (
        4_000 - held
    )
    first, end = LogReader(tmp_path, EVENTS).ends()
    assert 0 < first < end == held + 100


def test_a_full_disk_costs_only_what_comes_meanwhile(tmp_path: Path) -> None:
    with recording(tmp_path) as recorder:
        recorder.take(samples(0, 100))
        recorder.sync()
        with full_disk(100 * EVENT_BYTES_MAX):
            recorder.take(samples(100, 100))
            recorder.take(samples(200, 100))
            recorder.sync()
            assert recorder.figures().state == "failing"
            assert recorded(tmp_path) == list(range(100))
        recorder.take(samples(300, 100))
        recorder.sync()
        assert recorder.figures().state == "recording"
    assert recorded(tmp_path) == [*range(100), *range(300, 400)]
    assert gaps(tmp_path) == [("disk failed", 200)]


@contextmanager
def free_mib(count: int) -> Iterator[None]:
    """The disk has so much left."""
    found = os.statvfs_result((4_096, 4_096, 10**6, 0, count * 256, 0, 0, 0, 0, 255))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "statvfs", lambda _: found)
        yield


def test_a_disk_without_room_is_told_before_the_start(tmp_path: Path) -> None:
    with free_mib(3), pytest.raises(StorageFailed, match=r"3 MiB left.*\nhint: free space"):
        Recorder(tmp_path, now_ns=Clock(), settings=SMALL)
    with recording(tmp_path) as recorder:
        recorder.take(samples(0, 10))


def test_a_bound_beyond_the_disk_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with free_mib(100), recording(tmp_path, RecorderSettings()):
        assert "log_bound_beyond_disk" in caplog.text


def test_a_disk_that_cannot_sync_costs_what_was_not_yet_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    with recording(tmp_path) as recorder:
        recorder.take(samples(0, 100))
        recorder.sync()
        recorder.take(samples(100, 50))
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", fail)
            recorder.sync()
        recorder.take(samples(150, 50))
        recorder.sync()
    assert recorded(tmp_path) == [*range(100), *range(150, 200)]
    assert gaps(tmp_path) == [("disk failed", 50)]


def test_a_failed_release_costs_nothing_that_is_recorded_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with recording(tmp_path) as recorder:
        for first in (0, 100):
            recorder.take(samples(first, 100))
            recorder.sync()
            recorder.rotate()
        note_archived(tmp_path, EVENTS, 100)
        with monkeypatch.context() as patched:
            patched.setattr("gridstat.record.manifest.sync_folder", fail)
            recorder.tend()
        assert recorder.figures().state == "failing"
        recorder.sync()
        recorder.take(samples(200, 100))
        assert recorder.sync() == 300
        assert recorder.figures().state == "recording"
        assert recorded(tmp_path)[-200:] == list(range(100, 300))


def test_gaps_wait_for_a_disk_that_takes_them(tmp_path: Path) -> None:
    with recording(tmp_path) as recorder:
        with full_disk(1):
            recorder.miss(GapReason.RECEIVER_FULL, 5, 6, 3)
            recorder.sync()
            recorder.miss(GapReason.RECEIVER_FULL, 2, 4, 4)
            recorder.sync()
        assert gaps(tmp_path) == []
    (row,) = read_rows(tmp_path, GAPS)
    assert row == {"from_ns": 2, "to_ns": 6, "reason": "receiver full", "events": 7}


def test_an_event_whose_stream_cannot_be_written_down_is_not_recorded(tmp_path: Path) -> None:
    with recording(tmp_path) as recorder:
        with full_disk(1):
            recorder.take(samples(0, 10))
            recorder.sync()
        assert recorded(tmp_path) == []
        recorder.take(samples(10, 10))
    assert recorded(tmp_path) == list(range(10, 20))
    assert [row["stream"] for row in read_rows(tmp_path, STREAMS)] == [0]
    assert gaps(tmp_path) == [("disk failed", 10)]


@pytest.mark.parametrize("jump_s", [-86_400, 86_400])
def test_a_clock_that_is_set_loses_nothing_and_closes_the_segment(
    tmp_path: Path, jump_s: int
) -> None:
    clock = Clock()
    with recording(tmp_path, clock=clock) as recorder:
        recorder.take(samples(0, 10))
        recorder.sync()
        clock.ns += jump_s * 10**9
        recorder.take(samples(10, 10, at_ns=clock.ns))
        recorder.sync()
        for _ in range(3):
            clock.ns += 40 * 10**9
            recorder.take(samples(20, 10, at_ns=clock.ns))
            recorder.sync()
    assert recorded(tmp_path) == [*range(20), *range(20, 30), *range(20, 30), *range(20, 30)]
    received = [row["received_ns"] for row in read_rows(tmp_path, EVENTS)]
    assert received[10] == BEGAN_NS + jump_s * 10**9 + 10 * 1_000_000 + 500
    assert [extent.records for extent in LogReader(tmp_path, EVENTS).extents()] == [10, 20, 20]


def test_an_idle_segment_is_closed_when_it_is_old(tmp_path: Path) -> None:
    clock = Clock()
    with recording(tmp_path, clock=clock) as recorder:
        recorder.take(samples(0, 10))
        recorder.sync()
        clock.ns += 61 * 10**9
        recorder.tend()
        assert [extent.is_closed for extent in LogReader(tmp_path, EVENTS).extents()] == [True]


def test_the_last_arrival_is_known_after_a_restart_also_where_the_log_is_damaged(
    tmp_path: Path,
) -> None:
    with recording(tmp_path) as recorder:
        assert recorder.last_received_ns is None
        recorder.take(samples(0, 10))
    with recording(tmp_path) as recorder:
        assert recorder.last_received_ns == BEGAN_NS + 9 * 1_000_000 + 500
    (segment,) = (tmp_path / EVENTS.name).glob("*.segment")
    content = bytearray(segment.read_bytes())
    content[-200] ^= 1
    segment.write_bytes(content)
    with recording(tmp_path) as recorder:
        assert recorder.last_received_ns == BEGAN_NS + 9 * 1_000_000
        recorder.take(samples(10, 10))
        recorder.sync()
        with pytest.raises(DamagedLog):
            recorded(tmp_path)
    gc.collect()  # The error holds a reference to its file.


def test_a_second_recorder_of_a_folder_is_turned_away_and_breaks_nothing(tmp_path: Path) -> None:
    with recording(tmp_path) as recorder:
        with pytest.raises(StorageFailed, match="another recorder writes"):
            Recorder(tmp_path, now_ns=Clock(), settings=SMALL)
        recorder.take(samples(0, 10))
    assert recorded(tmp_path) == list(range(10))


def test_what_is_archived_never_falls_and_a_file_without_a_number_is_named(tmp_path: Path) -> None:
    (tmp_path / EVENTS.name).mkdir()
    assert archived_before(tmp_path, EVENTS) == 0
    note_archived(tmp_path, EVENTS, 200)
    note_archived(tmp_path, EVENTS, 100)
    assert archived_before(tmp_path, EVENTS) == 200
    (tmp_path / EVENTS.name / "archived").write_text("soon")
    with pytest.raises(StorageFailed, match="contains no number"):
        archived_before(tmp_path, EVENTS)
