"""Known rows: exactly those of the seconds that are asked for, and no other group is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gridstat.pipeline.file_rows import FileRows
from gridstat.pipeline.stages.clean import known_rows

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark
NS_PER_S = 1_000_000_000
ROWS = 1_000
GROUP_ROWS = 100


def write(path: Path) -> str:
    """A row a second."""
    numbers = pa.array(range(ROWS), pa.int64())
    rows = pa.table(
        {
            "record": numbers,
            "stream": pa.array([0] * ROWS, pa.int32()),
            "created_ns": pa.array(np.arange(ROWS) * NS_PER_S),
            "sequence": pa.array(range(ROWS), pa.int32()),
        }
    )
    pq.write_table(rows, path, row_group_size=GROUP_ROWS)
    return str(path)


def test_only_rows_of_the_wanted_seconds_are_held_and_only_their_groups_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups: list[int] = []
    read = pq.ParquetFile.read_row_group

    def counted(file: pq.ParquetFile, group: int, **how: Any) -> pa.Table:
        groups.append(group)
        return read(file, group, **how)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    spans = tuple((second * NS_PER_S, (second + 1) * NS_PER_S - 1) for second in (7, 150, 155, 950))
    known = FileRows((write(tmp_path / "rows.parquet"),), spans)
    assert known_rows(known, 900, np.array([0]))["record"].tolist() == [7, 150, 155]
    assert groups == [0, 1, 9]


def test_only_streams_that_are_asked_for_are_held(tmp_path: Path) -> None:
    """Ingest a late hour of one stream, which must not load the hour of all streams."""
    known = FileRows((write(tmp_path / "rows.parquet"),))
    assert len(known_rows(known, ROWS, np.array([0, 7]))["record"]) == ROWS
    assert len(known_rows(known, ROWS, np.array([7]))["record"]) == 0


def test_without_files_nothing_is_known() -> None:
    assert {name: len(rows) for name, rows in known_rows(FileRows(), 5, np.array([0])).items()} == {
        "stream": 0,
        "created_ns": 0,
        "sequence": 0,
        "record": 0,
    }
