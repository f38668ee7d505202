"""Rows of the archive, by time and share, which the tasks read from the files themselves.

A task gets names of files instead of rows, reads what it needs of them into Arrow, and keeps its
share. So no row passes through Java, which would take many times as long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gridstat.pipeline.time_spans import touching, within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from gridstat.pipeline.time_spans import Spans

    Chosen = Callable[[NDArray[np.int32]], NDArray[np.bool_]]
    """Of the numbers of rows' streams, which rows are wanted."""

ALL_TIME: Final[Spans] = ((None, None),)
ROWS_PER_TASK_MAX: Final = 4_000_000
"""A task holds some hundred bytes for each of its rows."""
ROWS_PER_TASK_MIN: Final = 20_000
"""Fewer rows than these are not worth a task of their own."""
SHARES_MAX: Final = 1_024


@dataclass(frozen=True, slots=True)
class FileRows:
    """The rows of some files that were created within some time."""

    paths: tuple[str, ...] = ()
    spans_ns: Spans = ALL_TIME
    rows_max: int = 0
    """Upper bound of the number of rows in the files."""

    def read(self, names: Sequence[str], is_chosen: Chosen | None = None) -> Iterator[pa.Table]:
        """Columns of the rows, a group of rows at a time; `names` must have `created_ns`, and
        `stream` if streams are chosen."""
        for path in self.paths:
            for rows in _groups(path, list(names), self.spans_ns):
                is_wanted = within(rows.column("created_ns").to_numpy(), self.spans_ns)
                if is_chosen is not None:
                    is_wanted &= is_chosen(rows.column("stream").to_numpy())
                yield only(rows, is_wanted)


def in_shares(spark: SparkSession, events: FileRows) -> DataFrame:
    """Return a DataFrame with one row a task: the number of its share, and the number of shares."""
    at_least = shares_worth(events.rows_max, ROWS_PER_TASK_MAX)
    at_most = shares_worth(events.rows_max, ROWS_PER_TASK_MIN)
    shares = min(SHARES_MAX, max(at_least, min(at_most, spark.sparkContext.defaultParallelism)))
    return spark.range(0, shares, 1, shares).selectExpr("id as share", f"{shares}L as shares")


def in_turn(spark: SparkSession, events: FileRows) -> Iterator[DataFrame]:
    """Yield the shares one at a time, as few as possible.

    A caller that processes one after the other uses one processor, and leaves the others to urgent
    work.
    """
    shares = min(SHARES_MAX, shares_worth(events.rows_max, ROWS_PER_TASK_MAX))
    for share in range(shares):
        one = spark.range(share, share + 1, 1, 1)
        yield one.selectExpr("id as share", f"{shares}L as shares")


def shares_worth(rows: int, rows_min: int) -> int:
    """Return the highest number of tasks that have so many rows each; each task and each file costs
    time."""
    return max(1, -(-rows // rows_min))


def is_in_share(numbers: NDArray[np.integer[Any]], share: int, shares: int) -> NDArray[np.bool_]:
    """Return a mask of the numbers that belong to a share.

    Numbers are hashed first: they are assigned one after the other, and every second one may be of
    the same kind.
    """
    hashed = (numbers.astype(np.uint32) * np.uint32(2_654_435_761)) >> np.uint32(16)
    wanted: NDArray[np.bool_] = hashed % np.uint32(shares) == share
    return wanted


def share_of(batches: Iterable[pa.RecordBatch]) -> tuple[int, int] | None:
    """Return the share of a task and the number of shares; None if the task has no share.

    Reads all that it is given: Spark ends a Python that leaves something unread, and the next task
    waits most of a second for another one.
    """
    rows = [row for batch in batches for row in batch.to_pylist()]
    return (rows[0]["share"], rows[0]["shares"]) if rows else None


def only(rows: pa.Table, is_wanted: NDArray[np.bool_]) -> pa.Table:
    """A copy of some rows; mostly all are wanted, and then there is no copy."""
    return rows if is_wanted.all() else rows.filter(pa.array(is_wanted))


def _groups(path: str, names: list[str], spans_ns: Spans) -> Iterator[pa.Table]:
    """Yield the groups of a file's rows that may have a row within the spans, one at a time."""
    with pq.ParquetFile(path) as file:
        place = file.schema_arrow.get_field_index("created_ns")
        for group in range(file.num_row_groups):
            statistics = file.metadata.row_group(group).column(place).statistics
            first, last = (
                (statistics.min, statistics.max)
                if statistics and statistics.has_min_max
                else (None, None)
            )
            if first is None or touching(np.array([first]), np.array([last]), spans_ns).any():
                rows = file.read_row_group(group, columns=names, use_threads=False)
                # Who compacts says of no column that it has no nulls; then none should here.
                yield pa.table({name: rows.column(name) for name in names})
