"""A reader that reads on as the log grows: each entry and frame is looked at once, none is held."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from gridstat.model.errors import DamagedLog
from gridstat.record import manifest
from gridstat.record.log_reader import LogReader
from gridstat.record.log_settings import LogSettings
from gridstat.record.log_writer import LogWriter
from gridstat.record.manifest import ENTRY_BYTES, MANIFEST_FILE, ManifestReader, read_extents
from gridstat.record.record_kinds import EVENTS
from tests.unit.record.batches import BEGAN_NS, events, words

if TYPE_CHECKING:
    from pathlib import Path

    from gridstat.record.manifest import Extent

SMALL = LogSettings(segment_bytes_max=20_000, log_bytes_max=10_000_000)


def writer(folder: Path) -> LogWriter:
    return LogWriter(folder, EVENTS, now_ns=lambda: BEGAN_NS, settings=SMALL)


def grow(log: LogWriter, times: int, size: int = 50) -> None:
    for _ in range(times):
        log.append(events(log.appended, size))
        log.sync()


def test_a_second_look_at_the_manifest_decodes_only_what_was_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[bytes] = []
    decode = manifest._decode_extent

    def counted(entry: bytes) -> Extent:
        decoded.append(entry)
        return decode(entry)

    monkeypatch.setattr(manifest, "_decode_extent", counted)
    with writer(tmp_path) as log:
        grow(log, 30)
        reader = LogReader(tmp_path, EVENTS)
        assert reader.ends() == (0, 1_500)
        seen = len(decoded)
        grow(log, 2)
        assert reader.ends() == (0, 1_600)
    assert seen >= 30
    assert len(decoded) - seen <= 4  # A rotation between them has an entry of its own.


def test_a_manifest_that_was_written_anew_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / EVENTS.name / MANIFEST_FILE
    with writer(tmp_path) as log:
        reader = ManifestReader(path)
        for _ in range(12):
            grow(log, 7)
            log.release(log.recorded - 400)
            assert reader.extents() == read_extents(path)[0]
            grow(log, 60)  # Longer again than it was when last looked at.
            assert reader.extents() == read_extents(path)[0]
        assert reader.extents()[0].first_record > 0


def test_a_torn_entry_is_read_once_it_is_whole(tmp_path: Path) -> None:
    with writer(tmp_path) as log:
        grow(log, 3)
    path = tmp_path / EVENTS.name / MANIFEST_FILE
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    reader = ManifestReader(path)
    assert reader.extents()[-1].end_record == 100
    assert reader.entry_bytes == len(whole) - ENTRY_BYTES
    path.write_bytes(whole)
    assert reader.extents()[-1].end_record == 150


def test_a_reader_holds_only_the_frames_to_come(tmp_path: Path) -> None:
    reader = LogReader(tmp_path, EVENTS)
    place, read = 0, []
    with writer(tmp_path) as log:
        for _ in range(40):
            grow(log, 5)
            end = reader.ends()[1]
            for piece in reader.slices(place, end, 1_000):
                read += words(list(reader.read(piece)))
            place = end
            assert len(reader._frames) <= 2
    assert read == list(range(40 * 5 * 50))


def test_the_slices_of_another_log_are_refused(tmp_path: Path) -> None:
    with writer(tmp_path) as log:
        grow(log, 3)
    reader = LogReader(tmp_path, EVENTS)
    with pytest.raises(DamagedLog, match="exactly the records 20 to 150"):
        reader.slices(20, 150, 1_000)  # No frame begins at 20.
    shutil.rmtree(tmp_path / EVENTS.name)
    with writer(tmp_path) as log:
        grow(log, 1)
    with pytest.raises(DamagedLog, match="exactly the records 50 to 150"):
        reader.slices(50, 150, 1_000)
