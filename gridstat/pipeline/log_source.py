"""A recorder's log as a Spark data source, `spark.read.format("gridstat")` and `readStream`.

    spark.dataSource.register(LogSource)
    events = spark.read.format("gridstat").load("recorded")
    events.filter("variable = 'c1/hill/pmu-1/frequency'").show()

Options: `kind` (events), `names` (true: a column with the variable's name), `rowsPerBatch` (no
bound; of a stream), `rowsPerPartition` (500,000), `startingRecord` (oldest; newest, or a number).

Offsets are places in the log, so a query goes on where its checkpoint says, after any restart and
rotation. Batches of Arrow only: rows as tuples are seventeen times slower.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

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
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from gridstat.model.errors import ConfigurationError, StorageFailed
from gridstat.pipeline.event_columns import EVENT_SCHEMA, StreamTable, event_columns
from gridstat.record.kinds import EVENTS, KINDS, STREAMS, kind_named
from gridstat.record.log_reader import LogReader, Slice

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from pyspark.sql.datasource import Filter
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from gridstat.record.kinds import RecordKind

Limit: TypeAlias = EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual

NAME: Final = "gridstat"
ROWS_PER_PARTITION: Final = 500_000
NS_PER_US: Final = 1_000
_PLACE: Final = "record"
_LONG_AGO_NS: Final = -(1 << 63)
_FAR_AWAY_NS: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What a user asked for, checked once on the driver."""

    folder: Path
    kind: RecordKind
    has_names: bool
    rows_per_batch: int
    rows_per_partition: int
    start: str


class LogPartition(InputPartition):
    """A slice of the log, for one task."""

    def __init__(self, piece: Slice) -> None:
        super().__init__(piece)
        self.piece = piece


class LogSource(DataSource):
    """Registered as `gridstat`; the path of `load` is the recorder's folder."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return from_arrow_schema(arrow_schema(read_options(self.options)))

    def reader(self, schema: StructType) -> LogBatchReader:
        return LogBatchReader(read_options(self.options))

    def streamReader(self, schema: StructType) -> LogStreamReader:  # noqa: N802 - Spark's name.
        return LogStreamReader(read_options(self.options))


class LogBatchReader(DataSourceReader):
    """All that is recorded at the time of planning, less what the filters exclude."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
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
        assert isinstance(partition, LogPartition)
        return read_slice(self._options, partition.piece, self._variables)

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
    """The log as it grows. An offset is the number of the next record to read."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._reader = LogReader(options.folder, options.kind)
        self._target: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name.
        oldest, end = self._reader.ends()
        match self._options.start:
            case "oldest":
                return {_PLACE: oldest}
            case "newest":
                return {_PLACE: end}
            case number:
                return {_PLACE: self._reader.place_at(int(number))}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name.
        rows = self._options.rows_per_batch
        return ReadMaxRows(rows) if rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name.
        self._target = self._reader.ends()[1]

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        here = start[_PLACE]
        end = self._reader.ends()[1] if self._target is None else self._target
        if end < here:
            raise StorageFailed(
                f"the checkpoint is at record {here:,}, and the log ends at {end:,}",
                hint="this is not the log that the query was reading",
            )
        if isinstance(limit, ReadMaxRows) and end > here:
            end = min(end, self._reader.place_after(here, limit.max_rows))
        return {_PLACE: end}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name.
        return {_PLACE: self._reader.ends()[1]}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[LogPartition]:
        rows = self._options.rows_per_partition
        return [
            LogPartition(piece) for piece in self._reader.slices(start[_PLACE], end[_PLACE], rows)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, LogPartition)
        return read_slice(self._options, partition.piece, None)

    def commit(self, end: dict[str, int]) -> None:
        """The log is released by the archive's job, not by whoever has read it once."""


def read_options(options: Mapping[str, str]) -> LogOptions:
    """The options as values; raises with the option's name."""
    folder = options.get("path", "")
    if not folder:
        raise ConfigurationError("no folder", hint='say where the log is: .load("FOLDER")')
    if not Path(folder).is_dir():
        raise ConfigurationError(f"{folder} is no folder", hint="give a recorder's folder")
    kind = kind_named(options.get("kind", EVENTS.name))
    start = options.get("startingRecord", "oldest")
    if start not in {"oldest", "newest"} and not start.isdecimal():
        raise ConfigurationError(f"startingRecord {start!r}", hint="oldest, newest, or a number")
    return LogOptions(
        folder=Path(folder),
        kind=kind,
        has_names=options.get("names", "true").lower() == "true",
        rows_per_batch=_whole(options, "rowsPerBatch", 0),
        rows_per_partition=_whole(options, "rowsPerPartition", ROWS_PER_PARTITION) or 1,
        start=start,
    )


def arrow_schema(options: LogOptions) -> pa.Schema:
    """The columns that Spark sees."""
    if options.kind is not KINDS[EVENTS.name]:
        return options.kind.schema
    if options.has_names:
        return EVENT_SCHEMA
    return EVENT_SCHEMA.remove(EVENT_SCHEMA.get_field_index("variable"))


def read_slice(
    options: LogOptions, piece: Slice, variables: frozenset[str] | None
) -> Iterator[pa.RecordBatch]:
    """The batches of a slice as Spark sees them; runs in a task, maybe on another machine."""
    reader = LogReader(options.folder, options.kind)
    if options.kind is not EVENTS and options.kind.name != EVENTS.name:
        yield from reader.read(piece)
        return
    streams = read_streams(options.folder)
    first_record = piece.first_record
    for batch in reader.read(piece):
        columns = event_columns(
            batch, streams, first_record, has_names=options.has_names, variables=variables
        )
        first_record += batch.num_rows
        if columns.num_rows:
            yield columns


def read_streams(folder: Path) -> StreamTable:
    """What every stream's number stands for, as far as it is recorded."""
    reader = LogReader(folder, STREAMS)
    start, end = reader.ends()
    batches = [b for piece in reader.slices(start, end, end or 1) for b in reader.read(piece)]
    return StreamTable(pa.Table.from_batches(batches, STREAMS.schema))


def time_limit_ns(condition: Limit, kind: RecordKind) -> tuple[int, int] | None:
    """The earliest and the latest nanosecond that a limit may mean, if it is one of time."""
    if condition.attribute == (kind.time,) and isinstance(condition.value, int):
        return condition.value, condition.value
    if condition.attribute == ("created",) and kind.name == EVENTS.name:
        first_ns = _since_1970_us(condition.value) * NS_PER_US
        return first_ns, first_ns + NS_PER_US - 1
    return None


def _since_1970_us(moment: datetime) -> int:
    whole = int(moment.replace(microsecond=0).timestamp())
    return whole * 1_000_000 + moment.microsecond


def _whole(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default)).replace("_", "")
    if not text.isdecimal():
        raise ConfigurationError(f"{name} {text!r}", hint="a whole number, or 0 for no bound")
    return int(text)
