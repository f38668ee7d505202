"""Parquet files that tasks have written, and how they become part of a table.

Tasks write into a separate folder. Their files are then moved into the table under names that
contain the numbers of their records, and one commit adds them all, each with the statistics of its
columns. By these statistics a reader of Delta skips files. Files that were not committed are
written again under the same names.
"""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import Row

WRITTEN: Final = "path string, partition string"
_REPEATED: Final = ["variable", "stream", "flags"]
"""Columns with few different values; a search for them in the others would cost time."""
GROUP_ROWS: Final = 131_072
"""Rows in a group, which has statistics of its own; readers skip groups by them."""
_TEXT_MAX: Final = 64
"""Longer texts and bytes have no statistics."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """File that a task has written; `partition` has the values of its folder."""

    path: Path
    partition: dict[str, str | None]
    rows: int
    minimum: dict[str, Any]
    maximum: dict[str, Any]
    nulls: dict[str, int]

    @property
    def statistics(self) -> str:
        """Statistics of the file as JSON, in the form that a Delta commit has."""
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": {name: _plain(value) for name, value in self.minimum.items()},
                "maxValues": {name: _plain(value) for name, value in self.maximum.items()},
                "nullCount": self.nulls,
            }
        )


def write_rows(
    rows: pa.Table, *, aside: Path, partitions: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Write rows into files, one for each partition, and return their names; runs in a task.

    The task makes up the names; if a task runs twice, the files of the second run count.
    """
    if not rows.num_rows:
        return
    aside.mkdir(parents=True, exist_ok=True)
    for values in _combinations(rows.select(partitions)):
        chosen = rows
        for name, value in values.items():
            column = chosen.column(name)
            mask = pc.is_null(column) if value is None else pc.equal(column, value)
            chosen = chosen if pc.all(mask, skip_nulls=False).as_py() else chosen.filter(mask)
        yield _written(chosen, aside, values)


def written_files(reported: Iterable[Row]) -> list[DataFile]:
    """Return the files that the tasks of `write_rows` report as `WRITTEN`; rows without a file have
    none."""
    found = [row for row in reported if row.path is not None]
    return [data_file(Path(row.path), json.loads(row.partition)) for row in found]


def data_file(path: Path, partition: dict[str, str | None]) -> DataFile:
    """Return the description of a file from the statistics in its footer."""
    footer = pq.read_metadata(path)
    minimum, maximum, nulls = {}, {}, {}
    for index in range(footer.num_columns):
        name = footer.schema.column(index).name
        found = _column_statistics(footer, index)
        if found is None:
            continue
        low, high, nulls[name] = found
        if _has_order(low) and _has_order(high):
            minimum[name], maximum[name] = low, high
    return DataFile(path, partition, footer.num_rows, minimum, maximum, nulls)


def add_action(file: DataFile, root: Path, name: str, partitions: tuple[str, ...]) -> AddAction:
    """Moves a file into a table's folder; it is the table's once the action is committed."""
    values = {column: file.partition[column] for column in partitions}
    folder = root.joinpath(*(f"{column}={value}" for column, value in values.items()))
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / name
    file.path.replace(place)
    found = place.stat()
    return AddAction(
        path=str(place.relative_to(root)),
        size=found.st_size,
        partition_values=values,
        modification_time=found.st_mtime_ns // 1_000_000,
        data_change=True,
        stats=file.statistics,
    )


def forget(aside: Path) -> None:
    """Removes what was written aside."""
    shutil.rmtree(aside, ignore_errors=True)


def _combinations(columns: pa.Table) -> list[dict[str, Any]]:
    """Return the combinations of values that occur; mostly one day of good rows, which is quick to
    see."""
    one: dict[str, Any] = {}
    for name in columns.column_names:
        extent = pc.min_max(columns.column(name)).as_py()
        nulls = columns.column(name).null_count
        if nulls not in {0, columns.num_rows} or extent["min"] != extent["max"]:
            found: list[dict[str, Any]] = (
                columns.group_by(columns.column_names).aggregate([]).to_pylist()
            )
            return found
        one[name] = extent["min"]
    return [one]


def _written(rows: pa.Table, aside: Path, values: dict[str, Any]) -> pa.RecordBatch:
    path = aside / f"{uuid4().hex}.parquet"
    kept = rows.drop_columns(list(values))
    # Without Arrow's own schema, so that readers see a dictionary as plain text.
    with pq.ParquetWriter(
        path, kept.schema, use_dictionary=_REPEATED, compression="zstd", store_schema=False
    ) as file:
        file.write_table(kept, row_group_size=GROUP_ROWS)
    partition = {name: None if value is None else str(value) for name, value in values.items()}
    return pa.record_batch(
        {"path": pa.array([str(path)]), "partition": pa.array([json.dumps(partition)])}
    )


def _column_statistics(footer: pq.FileMetaData, index: int) -> tuple[Any, Any, int] | None:
    found = [footer.row_group(g).column(index).statistics for g in range(footer.num_row_groups)]
    if not found or any(one is None or not one.has_null_count for one in found):
        return None
    nulls = sum(one.null_count for one in found)
    valued = [one for one in found if one.has_min_max]
    if len(valued) < sum(one.num_values > 0 for one in found) or not valued:
        return None, None, nulls
    return min(one.min for one in valued), max(one.max for one in valued), nulls


def _has_order(value: object) -> bool:
    match value:
        case bool() | bytes() | None:
            return False
        case str():
            return len(value) <= _TEXT_MAX
        case float():
            return math.isfinite(value)
        case int() | datetime() | date():
            return True
        case _:
            return False


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, date | datetime) else value
