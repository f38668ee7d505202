"""A recorder's log as a Spark data source, `spark.read.format("gridstat")` and `readStream`.

    register(spark)
    events = spark.read.format("gridstat").load("recorded")
    events.filter("variable = 'c1/hill/pmu-1/frequency'").show()

Options are in `log_options.py`. Filters on time leave out slices, those on `variable` leave out
rows before they reach Spark, and `.schema("stream int, value double")` leaves out columns. Offsets
are places in the log, so a query goes on where its checkpoint says, after any restart and rotation.
Batches of Arrow only: rows as tuples are seventeen times slower.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from gridstat.model.errors import StorageFailed
from gridstat.pipeline.event_columns import StreamTable, event_columns
from gridstat.pipeline.log_options import chosen_columns, read_options
from gridstat.record.kinds import EVENTS, STREAMS
from gridstat.record.log_reader import LogReader, Slice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import Filter
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from gridstat.pipeline.log_options import LogOptions
    from gridstat.record.kinds import RecordKind
    from gridstat.record.manifest import Extent

Limit: TypeAlias = EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
Offset: TypeAlias = dict[str, int]

NAME: Final = "gridstat"
NS_PER_US: Final = 1_000
US_PER_S: Final = 1_000_000
PLACE: Final = "record"
_LOG: Final = "began_ns"
_LONG_AGO_NS: Final = -(1 << 63)
_FAR_AWAY_NS: Final = (1 << 63) - 1


def register(spark: SparkSession) -> None:
    """Makes `spark.read.format("gridstat")` work in any session."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
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
        return LogBatchReader(*self._asked_for(schema))

    def streamReader(self, schema: StructType) -> LogStreamReader:  # noqa: N802 - Spark's name.
        return LogStreamReader(*self._asked_for(schema))

    def _asked_for(self, schema: StructType) -> tuple[LogOptions, pa.Schema]:
        options = read_options(self.options)
        return options, chosen_columns(options, to_arrow_schema(schema, timezone="UTC"))


class LogBatchReader(DataSourceReader):
    """All that is recorded at the time of planning, less what the filters exclude."""

    def __init__(self, options: LogOptions, columns: pa.Schema) -> None:
        self._options, self._columns = options, columns
        self._from_ns, self._to_ns = _LONG_AGO_NS, _FAR_AWAY_NS
        self._variables: frozenset[str] | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name.
        """Narrows time and variables; Spark evaluates every filter again, so all are given back."""
        for each in filters:
            self._narrow(each)
        return filters

    def partitions(self) -> Sequence[LogPartition]:
        reader = LogReader(self._options.folder, self._options.kind)
        start, end = reader.ends()
        pieces = reader.slices(
            start,
            end,
            self._options.rows_per_partition,
            earliest_ns=self._from_ns,
            latest_ns=self._to_ns,
        )
        return [LogPartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, LogPartition):
            return iter(())  # What Spark makes of no partitions at all.
        return read_slice(self._options, partition.value, self._columns, self._variables)

    def _narrow(self, condition: Filter) -> None:
        match condition:
            case EqualTo(attribute=("variable",), value=str(name)):
                self._keep({name})
            case In(attribute=("variable",), value=names):
                self._keep(set(names))
            case GreaterThan() | GreaterThanOrEqual() | EqualTo() | LessThan() | LessThanOrEqual():
                self._narrow_time(condition)
            case _:
                pass

    def _keep(self, names: set[str]) -> None:
        if self._options.is_of_events:
            known = names if self._variables is None else self._variables & names
            self._variables = frozenset(known)

    def _narrow_time(self, condition: Limit) -> None:
        limit_ns = time_limit_ns(condition, self._options.kind)
        if limit_ns is None:
            return
        first_ns, last_ns = limit_ns
        if not isinstance(condition, LessThan | LessThanOrEqual):
            self._from_ns = max(self._from_ns, first_ns)
        if not isinstance(condition, GreaterThan | GreaterThanOrEqual):
            self._to_ns = min(self._to_ns, last_ns)


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
                place = self._reader.place_at(int(number))
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
            end = min(end, self._reader.place_after(here, limit.max_rows))
        return self._offset(end) if end > here else start

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's name.
        return self._offset(self._reader.ends()[1])

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return [LogPartition(piece) for piece in self._slices(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LogPartition)
        return read_slice(self._options, partition.value, self._columns, None)

    def commit(self, end: Offset) -> None:
        """The log is released by the archive's job, not by whoever has read it once."""

    def _slices(self, start: Offset, end: Offset) -> list[Slice]:
        rows = self._options.rows_per_partition
        return self._reader.slices(start[PLACE], end[PLACE], rows)

    def _offset(self, place: int) -> Offset:
        return {PLACE: place, _LOG: self._reader.began_ns(place)}


def read_slice(
    options: LogOptions, piece: Slice, columns: pa.Schema, variables: frozenset[str] | None
) -> Iterator[pa.RecordBatch]:
    """The batches of a slice as Spark sees them; runs in a task, maybe on another machine."""
    reader = LogReader(options.folder, options.kind)
    if not options.is_of_events:
        for batch in reader.read(piece):
            yield pa.record_batch([batch.column(name) for name in columns.names], schema=columns)
        return
    streams = read_streams(options.folder)
    first_record = piece.first_record
    for batch in reader.read(piece):
        records = np.arange(first_record, first_record + batch.num_rows)
        made = event_columns(batch, streams, records, schema=columns, variables=variables)
        first_record += batch.num_rows
        if made.num_rows:
            yield made


def read_streams(folder: Path) -> StreamTable:
    """What every stream's number stands for, as far as it is recorded."""
    extents = LogReader(folder, STREAMS).extents()
    return _streams_up_to(folder, extents[-1] if extents else None)


@lru_cache(maxsize=4)
def _streams_up_to(folder: Path, end: Extent | None) -> StreamTable:
    """Kept between the tasks of one process, since a table stays as it is until it grows."""
    if end is None:
        return StreamTable(STREAMS.schema.empty_table())
    reader = LogReader(folder, STREAMS)
    pieces = reader.slices(reader.ends()[0], end.end_record, end.end_record)
    batches = [batch for piece in pieces for batch in reader.read(piece)]
    return StreamTable(pa.Table.from_batches(batches, STREAMS.schema))


def time_limit_ns(condition: Limit, kind: RecordKind) -> tuple[int, int] | None:
    """The earliest and the latest nanosecond that a limit may mean, if it is one of time."""
    if condition.attribute == (kind.time,) and isinstance(condition.value, int):
        return condition.value, condition.value
    moment = condition.value
    is_of_time = condition.attribute == ("created",) and kind.name == EVENTS.name
    if is_of_time and isinstance(moment, datetime) and moment.tzinfo is not None:
        first_ns = _since_1970_us(moment) * NS_PER_US
        return first_ns, first_ns + NS_PER_US - 1
    return None


def _since_1970_us(moment: datetime) -> int:
    return int(moment.replace(microsecond=0).timestamp()) * US_PER_S + moment.microsecond
