"""Parquet files that tasks have written, and how they become part of a table.

Tasks write into a folder aside. Their files are then moved into the table under names that tell
which records they hold, and one commit adds them all, each with the statistics of its columns: by
these any reader of Delta leaves out files that it does not need. Whatever was not committed is
written anew under the same name, or lies aside.
"""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow.parquet as pq
from deltalake.transaction import AddAction

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_TEXT_MAX: Final = 64
"""Longer texts and bytes have no statistics."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that a task has written; `partition` says which values its folder stands for."""

    path: Path
    partition: dict[str, str | None]
    rows: int
    minimum: dict[str, Any]
    maximum: dict[str, Any]
    nulls: dict[str, int]

    @property
    def statistics(self) -> str:
        """As Delta wants it in a commit."""
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": {name: _plain(value) for name, value in self.minimum.items()},
                "maxValues": {name: _plain(value) for name, value in self.maximum.items()},
                "nullCount": self.nulls,
            }
        )


def write_aside(rows: DataFrame, aside: Path, partitions: tuple[str, ...]) -> list[DataFile]:
    """Has tasks write the rows; returns the files, none where there were no rows."""
    rows.write.mode("overwrite").partitionBy(*partitions).parquet(str(aside))
    return [data_file(path, aside) for path in sorted(aside.rglob("*.parquet"))]


def data_file(path: Path, root: Path) -> DataFile:
    """What the end of a file says of its columns."""
    parts = path.relative_to(root).parent.parts
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
    return DataFile(path, dict(_partition(parts)), footer.num_rows, minimum, maximum, nulls)


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


def _partition(parts: tuple[str, ...]) -> Iterator[tuple[str, str | None]]:
    for part in parts:
        name, _, value = part.partition("=")
        yield name, None if value == _NULL else unquote(value)


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
