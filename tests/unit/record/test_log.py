"""The log, written and read: nothing lost, nothing twice, whatever was cut, closed or removed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.model.errors import DamagedLog, LogFull, RecordsGone, StorageFailed
from gridstat.record.log_reader import LogReader
from gridstat.record.log_settings import LogSettings
from gridstat.record.log_writer import LogWriter
from gridstat.record.manifest import ENTRY_BYTES, MANIFEST_FILE
from gridstat.record.record_kinds import EVENTS, LEDGERS, kind_named
from gridstat.record.segment import ALIGNMENT, segment_name
from tests.unit.record.batches import BEGAN_NS, events, words

if TYPE_CHECKING:
    from pathlib import Path

SMALL = LogSettings(segment_bytes_max=20_000, segment_s_max=60.0, log_bytes_max=1_000_000)


class Clock:
    """Clock that advances only on request."""

    def __init__(self) -> None:
        self.ns = BEGAN_NS

    def __call__(self) -> int:
        return self.ns


def writer(folder: Path, settings: LogSettings = SMALL, clock: Clock | None = None) -> LogWriter:
    return LogWriter(folder, EVENTS, now_ns=clock or Clock(), settings=settings)


def read_all(folder: Path, start: int = 0) -> list[int]:
    reader = LogReader(folder, EVENTS)
    pieces = reader.slices(start, reader.ends()[1], 100)
    return words([batch for piece in pieces for batch in reader.read(piece)])


def segments(folder: Path) -> list[Path]:
    return sorted((folder / EVENTS.name).glob("*.segment"))


def fail(*_: object) -> None:
    raise OSError(5, "Input/output error")


STEPS = st.tuples(st.integers(1, 400), st.sampled_from(["append", "sync", "restart", "rotate"]))


@given(steps=st.lists(STEPS, min_size=1, max_size=30))
def test_whatever_was_synced_is_read_back_in_order(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str]]
) -> None:
    folder = tmp_path_factory.mktemp("log")
    safe = 0
    log = writer(folder)
    for size, step in steps:
        log.append(events(log.appended, size))
        if step == "sync":
            log.sync()
        elif step == "rotate":
            log.rotate()
        elif step == "restart":
            log.close()
            log = writer(folder)
        safe = log.appended if step != "append" else safe
        assert log.recorded >= safe
        assert read_all(folder) == list(range(log.recorded))
    log.close()
    assert read_all(folder) == list(range(sum(size for size, _ in steps)))


def test_a_reader_sees_nothing_before_it_is_safe(tmp_path: Path) -> None:
    with writer(tmp_path) as log:
        log.append(events(0, 10))
        assert LogReader(tmp_path, EVENTS).ends() == (0, 0)
        log.sync()
        assert LogReader(tmp_path, EVENTS).ends() == (0, 10)


def test_a_torn_tail_is_cut_off_and_written_anew(tmp_path: Path) -> None:
    with writer(tmp_path) as log:
        log.append(events(0, 10))
    with segments(tmp_path)[0].open("ab") as file:
        file.write(b"half a frame")
    with (tmp_path / EVENTS.name / MANIFEST_FILE).open("ab") as file:
        file.write(b"half an entry")
    with writer(tmp_path) as log:
        assert log.recorded == 10
        log.append(events(10, 5))
    assert read_all(tmp_path) == list(range(15))


def test_a_segment_that_no_manifest_names_goes(tmp_path: Path) -> None:
    with writer(tmp_path) as log:
        log.append(events(0, 10))
        log.rotate()
    stray = tmp_path / EVENTS.name / segment_name(10)
    stray.write_bytes(b"begun and never recorded")
    with writer(tmp_path) as log:
        log.append(events(10, 5))
    assert read_all(tmp_path) == list(range(15))


def test_a_segment_is_closed_when_it_is_large_and_when_it_is_old(tmp_path: Path) -> None:
    clock = Clock()
    with writer(tmp_path, clock=clock) as log:
        log.append(events(0, 100))
        clock.ns += 61 * 10**9
        log.append(events(100, 100))
        assert len(segments(tmp_path)) == 2
        log.append(events(200, 400))
        assert len(segments(tmp_path)) == 3
        assert log.recorded == 200
    assert read_all(tmp_path) == list(range(600))


def test_a_place_lies_so_many_records_on_but_never_within_a_frame(tmp_path: Path) -> None:
    with writer(tmp_path) as log:
        for size in (100, 50, 200):
            log.append(events(log.appended, size))
            log.rotate()
    reader = LogReader(tmp_path, EVENTS)
    assert reader.position_after(0, 1) == 100
    assert reader.position_after(0, 149) == 100
    assert reader.position_after(0, 150) == 150
    assert reader.position_after(100, 10_000) == 350
    assert reader.position_after(350, 10) == 350


def test_released_segments_are_gone_and_later_places_still_mean_the_same(tmp_path: Path) -> None:
    with writer(tmp_path) as log:
        for _ in range(4):
            log.append(events(log.appended, 100))
            log.rotate()
        assert log.release(250) > 0
        assert LogReader(tmp_path, EVENTS).ends() == (200, 400)
        with pytest.raises(RecordsGone, match="begins at record 200"):
            LogReader(tmp_path, EVENTS).position_after(100, 10)
    assert read_all(tmp_path, 200) == list(range(200, 400))
    with writer(tmp_path) as log:
        log.release(400)
        log.append(events(log.appended, 10))
    assert read_all(tmp_path, 300) == list(range(300, 410))


def test_a_release_that_failed_half_way_is_not_written_on_into_a_removed_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writer(tmp_path) as log:
        for _ in range(3):
            log.append(events(log.appended, 10))
            log.rotate()
        with monkeypatch.context() as patched:
            patched.setattr("gridstat.record.manifest.sync_folder", fail)
            with pytest.raises(StorageFailed, match="Input/output"):
                log.release(20)
        with pytest.raises(StorageFailed, match="could not be written before"):
            log.append(events(30, 10))
        assert log.recorded == 30
    with writer(tmp_path) as log:
        log.append(events(30, 10))
    assert read_all(tmp_path, 20) == list(range(20, 40))


def test_a_full_log_refuses_and_takes_more_once_segments_are_released(tmp_path: Path) -> None:
    tight = LogSettings(segment_bytes_max=20_000, log_bytes_max=60_000)
    with writer(tmp_path, tight) as log:
        for _ in range(11):
            log.append(events(log.appended, 100))
        alarms = [log.is_nearly_full]
        with pytest.raises(LogFull, match="60,000 bytes"):
            log.append(events(log.appended, 400))
        held = log.sync()
        log.release(held)
        alarms.append(log.is_nearly_full)
        assert alarms == [True, False]
        log.append(events(log.appended, 100))
    assert read_all(tmp_path, LogReader(tmp_path, EVENTS).ends()[0])[-1] == held + 99


def write_half(descriptor: int, parts: list[memoryview]) -> int:
    os.write(descriptor, bytes(parts[0][:10]))
    raise OSError(28, "No space left on device")


def test_a_full_disk_leaves_the_log_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writer(tmp_path) as log:
        log.append(events(0, 10))
        with monkeypatch.context() as patched:
            patched.setattr(os, "writev", write_half)
            with pytest.raises(StorageFailed, match="No space left"):
                log.append(events(10, 10))
        log.append(events(10, 10))
    assert read_all(tmp_path) == list(range(20))


def test_a_segment_whose_beginning_failed_is_begun_anew_with_one_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writer(tmp_path) as log:
        for _ in range(2):
            with monkeypatch.context() as patched:
                patched.setattr("gridstat.record.log_writer.sync_folder", fail)
                with pytest.raises(StorageFailed, match="Input/output"):
                    log.append(events(log.appended, 10))
            log.append(events(log.appended, 10))
            log.rotate()
    assert read_all(tmp_path) == list(range(20))


def test_nothing_follows_half_a_frame_that_cannot_be_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writer(tmp_path) as log:
        log.append(events(0, 10))
        log.sync()
        with monkeypatch.context() as patched:
            patched.setattr(os, "writev", write_half)
            patched.setattr(os, "ftruncate", fail)
            with pytest.raises(StorageFailed, match="No space left"):
                log.append(events(10, 10))
        with pytest.raises(StorageFailed, match="could not be written before"):
            log.append(events(10, 10))
    with writer(tmp_path) as log:
        log.append(events(10, 10))
    assert read_all(tmp_path) == list(range(20))


def test_a_disk_that_cannot_sync_is_not_trusted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writer(tmp_path) as log:
        log.append(events(0, 10))
        log.sync()
        log.append(events(10, 10))
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", fail)
            with pytest.raises(StorageFailed, match="Input/output"):
                log.sync()
        with pytest.raises(StorageFailed, match="could not be written before"):
            log.append(events(20, 10))
    assert read_all(tmp_path) == list(range(10))


@pytest.mark.parametrize("place", ["head", "frame head", "body"])
def test_any_changed_bit_is_seen(tmp_path: Path, place: str) -> None:
    with writer(tmp_path) as log:
        log.append(events(0, 10))
    position = {"head": 20, "frame head": ALIGNMENT + 20, "body": 2 * ALIGNMENT + 300}[place]
    path = segments(tmp_path)[0]
    data = bytearray(path.read_bytes())
    data[position] ^= 4
    path.write_bytes(data)
    with pytest.raises(DamagedLog, match=r"segment .*\(5002\)"):
        read_all(tmp_path)


def test_a_damaged_entry_amid_sound_ones_is_not_taken_for_a_torn_tail(tmp_path: Path) -> None:
    with writer(tmp_path) as log:
        for _ in range(3):
            log.append(events(log.appended, 10))
            log.sync()
    path = tmp_path / EVENTS.name / MANIFEST_FILE
    data = bytearray(path.read_bytes())
    data[ENTRY_BYTES + 8] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedLog, match="damaged entry at byte 64"):
        writer(tmp_path)
    with pytest.raises(DamagedLog, match="damaged entry at byte 64"):
        LogReader(tmp_path, EVENTS).ends()


def test_a_segment_shorter_than_the_manifest_says_is_named(tmp_path: Path) -> None:
    with writer(tmp_path) as log:
        log.append(events(0, 10))
    path = segments(tmp_path)[0]
    os.truncate(path, path.stat().st_size - 64)
    with pytest.raises(StorageFailed, match="the manifest counts"):
        writer(tmp_path)
    with pytest.raises(DamagedLog, match="instead of"):
        read_all(tmp_path)


def test_a_newer_version_of_the_records_is_refused_with_a_hint(tmp_path: Path) -> None:
    newer = type(EVENTS)(EVENTS.name, EVENTS.code, EVENTS.version + 1, EVENTS.time, EVENTS.schema)
    with LogWriter(tmp_path, newer, now_ns=Clock()) as log:
        log.append(events(0, 10))
    with pytest.raises(StorageFailed, match=r"events of version 2.*\n?hint: read it with"):
        read_all(tmp_path)


def test_a_second_writer_of_a_folder_is_turned_away(tmp_path: Path) -> None:
    with writer(tmp_path), pytest.raises(StorageFailed, match="another recorder"):
        writer(tmp_path)


def test_kinds_are_found_by_name_and_others_named() -> None:
    assert kind_named("ledgers") is LEDGERS
    with pytest.raises(Exception, match="no record kind 'logs'"):
        kind_named("logs")
