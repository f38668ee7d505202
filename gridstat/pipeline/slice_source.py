"""A recorder's log as places instead of records, for a job whose tasks read the log themselves.

    slices = spark.readStream.format("gridstat-slices").option("shares", 2).load("recorded")

Every slice of a batch is a row in each of `shares` tasks, and each task takes the streams that are
its share by `is_in_share`. So all events of a stream meet in one task, and none of them has to go
through Java on the way. Offsets and bounds are those of `log_source.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from gridstat.pipeline.file_rows import shares_worth
from gridstat.pipeline.log_options import Reading, read_options
from gridstat.pipeline.log_source import PLACE, LogStreamReader
from gridstat.record.log_reader import Slice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from gridstat.pipeline.log_source import Offset

NAME: Final = "gridstat-slices"
SLICE_SCHEMA: Final = pa.schema(
    [
        pa.field("share", pa.int32(), nullable=False),
        pa.field("shares", pa.int32(), nullable=False),
        pa.field("segment", pa.int64(), nullable=False),
        pa.field("start_byte", pa.int64(), nullable=False),
        pa.field("end_byte", pa.int64(), nullable=False),
        pa.field("first_record", pa.int64(), nullable=False),
        pa.field("end_record", pa.int64(), nullable=False),
    ]
)

_SLICE: Final = tuple(SLICE_SCHEMA.names[2:])


def register(spark: SparkSession) -> None:
    spark.dataSource.register(SliceSource)


def slices_of(batches: Iterable[pa.RecordBatch]) -> tuple[int, int, list[Slice]]:
    """Return a task's share, the number of shares, and its slices; without slices share 0 of 1."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    if not rows:
        return 0, 1, []
    slices = [Slice(*(row[name] for name in _SLICE)) for row in rows]
    return rows[0]["share"], rows[0]["shares"], slices


def slice_rows(share: int, shares: int, slices: Iterable[Slice]) -> pa.RecordBatch:
    """Return the rows that a task gets; `slices_of` reads them."""
    rows = [
        {"share": share, "shares": shares, **{name: getattr(piece, name) for name in _SLICE}}
        for piece in slices
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SLICE_SCHEMA)


class SharePartition(InputPartition):
    """One task's share: its number, of how many, and the slices of the batch."""

    value: tuple[int, int, tuple[Slice, ...]]


class SliceSource(DataSource):
    """Registered as `gridstat-slices`; only as a stream."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return from_arrow_schema(SLICE_SCHEMA)

    def streamReader(self, schema: StructType) -> SliceReader:  # noqa: N802 - Spark's.
        return SliceReader(read_options(self.options, Reading.SLICES), SLICE_SCHEMA)


class SliceReader(LogStreamReader):
    """The log as it grows, by its places.

    What the log has let go of is left out of a batch that comes again after a kill: whoever takes
    slices must know by its own tables that it has those records, as the archive does.
    """

    def partitions(self, start: Offset, end: Offset) -> Sequence[SharePartition]:
        slices = tuple(self._slices(start, end))
        records = sum(piece.records for piece in slices)
        shares = min(self._options.shares, shares_worth(records, self._options.rows_per_share))
        return [SharePartition((share, shares, slices)) for share in range(shares)]

    def _slices(self, start: Offset, end: Offset) -> list[Slice]:
        oldest = self._reader.ends()[0]
        if end[PLACE] <= oldest:
            return []
        return super()._slices({**start, PLACE: max(start[PLACE], oldest)}, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SharePartition)
        yield slice_rows(*partition.value)
