"""Files that tasks write: every row in the file of its own partition, and true statistics."""

from __future__ import annotations

import json
from datetime import date
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.pipeline.data_files import data_file, write_rows

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark
DAY = date(2023, 11, 14)
SCHEMA = pa.schema(
    [("record", pa.int64()), ("value", pa.float64()), ("reason", pa.string()), ("day", pa.date32())]
)


def write(rows: list[tuple[int, float, str | None, date]], aside: Path) -> list[pa.Table]:
    named = [dict(zip(SCHEMA.names, row, strict=True)) for row in rows]
    batch = pa.RecordBatch.from_pylist(named, schema=SCHEMA)
    told = [row for part in _told(batch, aside) for row in part.to_pylist()]
    tables = []
    for row in told:
        table = pq.read_table(row["path"])
        for name, value in json.loads(row["partition"]).items():
            table = table.append_column(name, pa.array([value] * len(table), pa.string()))
        tables.append(table)
    return tables


def _told(batch: pa.RecordBatch, aside: Path) -> list[pa.RecordBatch]:
    return list(write_rows(pa.table(batch), aside=aside, partitions=("reason", "day")))


REASON = st.sampled_from([None, None, "duplicate", "not_finite"])
DAYS = st.sampled_from([DAY, date(2023, 11, 15)])


@given(kinds=st.lists(st.tuples(REASON, DAYS), min_size=1, max_size=12))
def test_every_row_is_in_the_one_file_of_its_reason_and_day(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[tuple[str | None, date]]
) -> None:
    rows = [(number, 1.0, reason, day) for number, (reason, day) in enumerate(kinds)]
    tables = write(rows, tmp_path_factory.mktemp("aside"))
    found = [
        (row["record"], row["reason"], row["day"]) for table in tables for row in table.to_pylist()
    ]
    assert sorted(found, key=lambda row: row[0]) == [
        (number, reason, str(day)) for number, _, reason, day in rows
    ]
    assert len(tables) == len(set(kinds))


def test_statistics_leave_out_what_has_no_order(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pylist(
        [
            {"record": 3, "value": 2.5, "reason": None, "day": DAY},
            {"record": 1, "value": None, "reason": None, "day": DAY},
        ],
        schema=SCHEMA,
    )
    (told,) = _told(batch, tmp_path)
    row = told.to_pylist()[0]
    partition = json.loads(row["partition"])
    assert partition == {"reason": None, "day": "2023-11-14"}
    file = data_file(tmp_path / row["path"], partition)
    assert json.loads(file.statistics) == {
        "numRecords": 2,
        "minValues": {"record": 1, "value": 2.5},
        "maxValues": {"record": 3, "value": 2.5},
        "nullCount": {"record": 0, "value": 1},
    }
