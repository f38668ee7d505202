"""A recorder's log as a Spark data source, `spark.read.format("gridstat")` and `readStream`.

    register(spark)
    events = spark.read.format("gridstat").option("variables", "c1/hill/*/frequency")
    events.option("from", "2026-01-01T00:00:00Z").load("recorded").show()

Options are in `log_options.py`: `from` and `to` leave out slices and rows, `variables` leaves out
rows, and `.schema("stream int, value double")` leaves out columns. Filters of a query leave out
nothing before Spark has it (ADR-0023). Offsets are places in the log, so a query goes on where its
checkpoint says, after any restart and rotation. Batches of Arrow only: rows as tuples are seventeen
times slower.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from gridstat.model.errors import StorageFailed
from gridstat.pipeline.event_columns import StreamTable, event_columns
from gridstat.pipeline.log_options import VARIABLE, Reading, chosen_columns, read_options
from gridstat.record.log_reader import LogReader, Slice
from gridstat.record.record_kinds import STREAMS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from gridstat.pipeline.log_options import LogOptions
    from gridstat.record.manifest import Extent

Offset: TypeAlias = dict[str, int]

NAME: Final = "gridstat"
PLACE: Final = "record"
_LOG: Final = "began_ns"
_LONG_AGO_NS: Final = -(1 << 63)
_FAR_AWAY_NS: Final = (1 << 63) - 1


def register(spark: SparkSession) -> None:
    """Makes `spark.read.format("gridstat")` work in any session."""
    spark.dataSource.register(LogSource)


class LogPartition(InputPartition):
    """A slice of the log, for one task."""

    value: Slice


class LogSource(DataSource):
    """Registered as `gridstat`; the path of `load` is the recorder's folder."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return from_arrow_schema(read_options(self.options).schema)

    def reader(self, schema: StructType) -> LogBatchReader:
        return LogBatchReader(*self._asked_for(schema, Reading.BATCH))

    def streamReader(self, schema: StructType) -> LogStreamReader:  # noqa: N802 - Spark's name.
        return LogStreamReader(*self._asked_for(schema, Reading.STREAM))

    def _asked_for(self, schema: StructType, reading: Reading) -> tuple[LogOptions, pa.Schema]:
        options = read_options(self.options, reading)
        return options, chosen_columns(options, to_arrow_schema(schema, timezone="UTC"))


class LogBatchReader(DataSourceReader):
    """All that is recorded at the time of planning, less what the options leave out.

    Spark plans a DataFrame once and shares the plan between all its scans. So a reader depends on
    options alone, and has no `pushFilters`: what a filter left out, other scans would miss.
    """

    def __init__(self, options: LogOptions, columns: pa.Schema) -> None:
        self._options, self._columns = options, columns

    def partitions(self) -> Sequence[LogPartition]:
        reader = LogReader(self._options.folder, self._options.kind)
        start, end = reader.ends()
        from_ns, latest_ns = self._options.rows.from_ns, self._options.rows.latest_ns
        pieces = reader.slices(
            start,
            end,
            self._options.rows_per_partition,
            earliest_ns=_LONG_AGO_NS if from_ns is None else from_ns,
            latest_ns=_FAR_AWAY_NS if latest_ns is None else latest_ns,
        )
        return [LogPartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, LogPartition):
            return iter(())  # What Spark makes of no partitions at all.
        return read_slice(self._options, partition.value, self._columns)


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The log as it grows.

    An offset is the number of the next record to read, and when the segment began that holds the
    record before: by that another log in the same folder is found out, and not read on as if.
    """

    def __init__(self, options: LogOptions, columns: pa.Schema) -> None:
        self._options, self._columns = options, columns
        self._reader = LogReader(options.folder, options.kind)
        self._target: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name.
        oldest, end = self._reader.ends()
        match self._options.start:
            case "oldest":
                place = oldest
            case "newest":
                place = end
            case number:
                place = self._reader.position_at(int(number))
        return self._offset(place)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name.
        rows = self._options.rows_per_batch
        return ReadMaxRows(rows) if rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name.
        self._target = self._reader.ends()[1]

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name.
        here = start[PLACE]
        end = self._reader.ends()[1] if self._target is None else self._target
        began_ns = self._reader.began_ns(here)
        if end < here or (start[_LOG] and began_ns and start[_LOG] != began_ns):
            raise StorageFailed(
                f"{self._options.folder} is not the log that the query has read up to record "
                f"{here:,}; it ends at {end:,}",
                hint="give the log's folder, or a new checkpoint to read this one from its start",
            )
        if isinstance(limit, ReadMaxRows) and end > here:
            end = min(end, self._reader.position_after(here, limit.max_rows))
        return self._offset(end) if end > here else start

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's name.
        return self._offset(self._reader.ends()[1])

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return [LogPartition(piece) for piece in self._slices(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LogPartition)
        return read_slice(self._options, partition.value, self._columns)

    def commit(self, end: Offset) -> None:
        """Do nothing: the archive's job releases the log, not a reader."""

    def _slices(self, start: Offset, end: Offset) -> list[Slice]:
        rows = self._options.rows_per_partition
        return self._reader.slices(start[PLACE], end[PLACE], rows)

    def _offset(self, place: int) -> Offset:
        return {PLACE: place, _LOG: self._reader.began_ns(place)}


def read_slice(options: LogOptions, piece: Slice, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The chosen rows of a slice as Spark sees them; runs in a task, maybe on another machine."""
    streams = read_streams(options.folder) if options.is_of_events else None
    is_stream_chosen = None if streams is None else options.rows.are_named(streams.names)
    first_record = piece.first_record
    for batch in LogReader(options.folder, options.kind).read(piece):
        records = np.arange(first_record, first_record + batch.num_rows)
        first_record += batch.num_rows
        is_chosen = options.rows.are_within(batch.column(options.kind.time).to_numpy())
        if streams is not None and is_stream_chosen is not None:
            is_chosen &= is_stream_chosen[streams.places(batch.column("stream").to_numpy())]
        elif options.rows.variables:
            is_chosen &= options.rows.are_named(batch.column(VARIABLE))
        if not is_chosen.any():
            continue
        kept = batch if is_chosen.all() else batch.filter(pa.array(is_chosen))
        if streams is None:
            yield pa.record_batch([kept.column(name) for name in columns.names], schema=columns)
        else:
            yield event_columns(kept, streams, records[is_chosen], schema=columns)


def read_streams(folder: Path) -> StreamTable:
    """Return all streams that are recorded, by their numbers."""
    extents = LogReader(folder, STREAMS).extents()
    return _streams_up_to(folder, extents[-1] if extents else None)


@lru_cache(maxsize=4)
def _streams_up_to(folder: Path, end: Extent | None) -> StreamTable:
    """Return the streams up to an extent; cached by process, since the table of an extent never
    changes."""
    if end is None:
        return StreamTable(STREAMS.schema.empty_table())
    reader = LogReader(folder, STREAMS)
    pieces = reader.slices(reader.ends()[0], end.end_record, end.end_record)
    batches = [batch for piece in pieces for batch in reader.read(piece)]
    return StreamTable(pa.Table.from_batches(batches, STREAMS.schema))
