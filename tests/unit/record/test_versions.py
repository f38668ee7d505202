"""Logs of other releases: a newer one is not written to, an older one is gone on with apart."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gridstat.model.errors import StorageFailed
from gridstat.record.log_reader import LogReader
from gridstat.record.log_writer import LogWriter
from gridstat.record.record_kinds import EVENTS
from gridstat.record.segment import ALIGNMENT, decode_head, segment_name
from tests.unit.record.batches import events
from tests.unit.record.samples import Clock

if TYPE_CHECKING:
    from pathlib import Path

NEWER = replace(EVENTS, version=EVENTS.version + 1)


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_log_of_a_newer_release_is_not_written_to(tmp_path: Path, *, is_closed: bool) -> None:
    with LogWriter(tmp_path, NEWER, now_ns=Clock()) as log:
        log.append(events(0, 10))
        if is_closed:
            log.rotate()
    with pytest.raises(StorageFailed, match="events of version 2, and this release reads up to 1"):
        LogWriter(tmp_path, EVENTS, now_ns=Clock())
    with LogWriter(tmp_path, NEWER, now_ns=Clock()) as log:
        assert log.recorded == 10


def test_records_of_two_versions_do_not_share_a_segment(tmp_path: Path) -> None:
    with LogWriter(tmp_path, EVENTS, now_ns=Clock()) as log:
        log.append(events(0, 10))
    with LogWriter(tmp_path, NEWER, now_ns=Clock()) as log:
        log.append(events(10, 10))
    reader = LogReader(tmp_path, NEWER)
    assert [extent.first_record for extent in reader.extents()] == [0, 10]
    versions = [
        decode_head(
            (tmp_path / EVENTS.name / segment_name(first)).read_bytes()[:ALIGNMENT], NEWER, ""
        ).kind_version
        for first in (0, 10)
    ]
    assert versions == [1, 2]
    pieces = reader.slices(0, 20, 100)
    assert sum(batch.num_rows for piece in pieces for batch in reader.read(piece)) == 20


def test_a_last_segment_that_is_gone_is_named(tmp_path: Path) -> None:
    with LogWriter(tmp_path, EVENTS, now_ns=Clock()) as log:
        log.append(events(0, 10))
    (tmp_path / EVENTS.name / segment_name(0)).unlink()
    with pytest.raises(StorageFailed, match=r"segment is missing.*\nhint: restore"):
        LogWriter(tmp_path, EVENTS, now_ns=Clock())


def test_a_folder_that_cannot_be_made_is_a_plain_error(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file where the folder should be")
    with pytest.raises(StorageFailed, match=r"Not a directory.*\nhint: make the folder"):
        LogWriter(tmp_path / "log", EVENTS, now_ns=Clock())
