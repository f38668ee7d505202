"""The archive's looks at the log: each frame once, and late seconds as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gridstat.model.plausibility import TimeBounds
from gridstat.pipeline.archive import Archive
from gridstat.pipeline.pipeline_folder import PipelineFolder
from gridstat.record import log_reader, manifest
from gridstat.record.segment import frames
from tests.spark.ingest_logs import BEGAN_S, NS_PER_S, record_events, steady

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gridstat.record.manifest import Extent
    from gridstat.record.segment import Frame

pytestmark = pytest.mark.spark
ROWS_PER_FRAME = 20
WINDOWS_S = (1, 60, 3_600)


@pytest.fixture
def folder(tmp_path: Path) -> PipelineFolder:
    return PipelineFolder(tmp_path)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect an item for each entry of the manifest and each frame of the log that is read."""
    found: list[str] = []
    decode: Callable[[bytes], Extent] = manifest._decode_extent

    def counted_entry(entry: bytes) -> Extent:
        found.append("entry")
        return decode(entry)

    def counted_frames(data: memoryview, start: int, end: int, name: str) -> Iterator[Frame]:
        for frame in frames(data, start, end, name):
            found.append("frame")
            yield frame

    monkeypatch.setattr(manifest, "_decode_extent", counted_entry)
    monkeypatch.setattr(log_reader, "frames", counted_frames)
    return found


def test_a_batch_looks_only_at_what_of_the_log_is_new(
    folder: PipelineFolder, looks: list[str]
) -> None:
    rows = steady(2, 40)
    late = replace(rows[0], created_ns=BEGAN_S * NS_PER_S - 1)
    archive = Archive(folder, TimeBounds())
    record_events(folder.log, [late, *rows], rows_per_frame=ROWS_PER_FRAME)
    for window_s in WINDOWS_S:
        assert archive.late((0, archive.recorded), BEGAN_S, window_s)
    assert {"entry", "frame"} == set(looks)
    before = archive.recorded
    record_events(folder.log, [late] * ROWS_PER_FRAME, rows_per_frame=ROWS_PER_FRAME)
    looks.clear()
    for start in (before, 0):
        for window_s in WINDOWS_S:
            assert archive.late((start, archive.recorded), BEGAN_S, window_s).starts_s
    assert len(looks) <= 4 * len(WINDOWS_S)
