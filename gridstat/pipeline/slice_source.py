"""A recorder's log as places instead of records, for a job whose tasks read the log themselves.

    slices = spark.readStream.format("gridstat-slices").option("shares", 2).load("recorded")

Every slice of a batch is a row in each of `shares` tasks, and each task takes the streams that are
its share: those whose number leaves that rest. So all events of a stream meet in one task, and none
of them has to go through Java on the way. Offsets and bounds are those of `log_source.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from gridstat.pipeline.log_options import read_options
from gridstat.pipeline.log_source import LogStreamReader
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


def register(spark: SparkSession) -> None:
    spark.dataSource.register(SliceSource)


def slices_of(batches: Iterable[pa.RecordBatch]) -> tuple[int, int, list[Slice]]:
    """What a task was given: its share, of how many, and the slices; no slices, no share."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    if not rows:
        return 0, 1, []
    share, shares = rows[0].pop("share"), rows[0].pop("shares")
    assert all(row.pop("share") == share and row.pop("shares") == shares for row in rows[1:])
    return share, shares, [Slice(**row) for row in rows]


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
        return SliceReader(read_options(self.options), SLICE_SCHEMA)


class SliceReader(LogStreamReader):
    """The log as it grows, by its places."""

    def partitions(self, start: Offset, end: Offset) -> Sequence[SharePartition]:
        slices, shares = tuple(self._slices(start, end)), self._options.shares
        return [SharePartition((share, shares, slices)) for share in range(shares)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SharePartition)
        share, shares, slices = partition.value
        rows = [
            {
                "share": share,
                "shares": shares,
                "segment": piece.segment,
                "start_byte": piece.start_byte,
                "end_byte": piece.end_byte,
                "first_record": piece.first_record,
                "end_record": piece.end_record,
            }
            for piece in slices
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=SLICE_SCHEMA)
