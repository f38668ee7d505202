"""Replay: archived events of an interval, in the order of their stamps, a bounded piece at a time.

    archive = ReplaySource(spark, PipelineFolder(Path("pipeline")))
    request = ReplayRequest(from_ns, to_ns, ("c1/north/**",))
    variables = archive.variables(request)
    for batch in archive.events(request): ...

Whoever publishes them takes both; while one piece is sent, Spark sorts the next.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql import functions as F

from gridstat.model.cloud import check_stored_pattern, matches
from gridstat.model.errors import Misuse, UnknownName
from gridstat.model.rate_law import Period
from gridstat.pipeline.delta_tables import StoredTable
from gridstat.pipeline.schemas import EVENTS
from gridstat.pipeline.stream_catalog import read_all
from gridstat.record.record_kinds import STREAMS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from gridstat.pipeline.pipeline_folder import PipelineFolder

Facts: TypeAlias = dict[str, Any]
NS_PER_S: Final = 1_000_000_000
ROWS_MAX: Final = 500_000
"""Rows of one piece; two pieces are in memory at a time."""
BUCKETS_MAX: Final = 10_000
"""Parts of the interval whose rows are counted before it is cut into pieces."""
COLUMNS: Final = ("stream", "created_ns", "flags", "value", "word")
APERIODIC: Final = Period(1, 10)
"""Alerts have no period: replayed they may come so often, and of several at once one does."""


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """Interval from one instant up to, and without, another, and patterns of variables."""

    from_ns: int
    to_ns: int
    patterns: tuple[str, ...] = ("**",)

    def __post_init__(self) -> None:
        if not 0 <= self.from_ns < self.to_ns:
            raise Misuse("there is nothing before the beginning", hint="say --from before --to")
        for pattern in self.patterns:
            check_stored_pattern(pattern)

    def names(self, variable: str) -> bool:
        """Return whether a variable matches one of the patterns."""
        return any(matches(pattern, variable) for pattern in self.patterns)


@dataclass(frozen=True, slots=True)
class ArchivedVariable:
    """A variable of the archive: its type, how often it was recorded, and under which numbers."""

    name: str
    value_type: str
    period: Period
    phase_ns: int
    streams: tuple[int, ...]


class ReplaySource:
    """The archive of one pipeline, read only; it may be written meanwhile."""

    def __init__(
        self, spark: SparkSession, folder: PipelineFolder, *, rows_max: int = ROWS_MAX
    ) -> None:
        self._spark = spark
        self._folder = folder
        self._rows_max = rows_max
        self._found: tuple[ReplayRequest, list[ArchivedVariable]] | None = None

    def variables(self, request: ReplayRequest) -> list[ArchivedVariable]:
        """Return the matching variables in the order of their names; raise an error if there is
        none."""
        if self._found is None or self._found[0] != request:
            self._found = request, self._find(request)
        return self._found[1]

    def _find(self, request: ReplayRequest) -> list[ArchivedVariable]:
        if not (self._folder.tables / EVENTS.name).is_dir():
            raise UnknownName(
                f"{self._folder.path} has no archive", hint="start `gridstat pipeline run` first"
            )
        rows: dict[str, list[Facts]] = {}
        for row in read_all(self._folder.log, STREAMS).to_pylist():
            if request.names(row["variable"]):
                rows.setdefault(row["variable"], []).append(row)
        if not rows:
            raise UnknownName(
                f"no recorded variable is named {' or '.join(request.patterns)}",
                hint="`gridstat pipeline query` shows what there is: SELECT DISTINCT variable "
                "FROM events",
            )
        return [_variable(name, found) for name, found in sorted(rows.items())]

    def count(self, request: ReplayRequest) -> int:
        """Return the number of events to replay."""
        return self._rows(request, (request.from_ns, request.to_ns)).count()

    def events(self, request: ReplayRequest) -> Iterator[pa.RecordBatch]:
        """All of them by stamp, with the columns `COLUMNS`, a piece at a time."""
        with ThreadPoolExecutor(1, thread_name_prefix="replay") as ahead:
            waiting = None
            for piece in self._pieces(request):
                following = ahead.submit(self._read, request, piece)
                if waiting is not None:
                    yield from waiting.result().to_batches()
                waiting = following
            if waiting is not None:
                yield from waiting.result().to_batches()

    def _pieces(self, request: ReplayRequest) -> list[tuple[int, int]]:
        """The interval cut so that no piece has too many rows, if not all are in one bucket."""
        span_ns = request.to_ns - request.from_ns
        bucket_ns = max(NS_PER_S, -(-span_ns // BUCKETS_MAX))
        bucket = F.floor((F.col("created_ns") - F.lit(request.from_ns)) / F.lit(bucket_ns))
        counted = (
            self._rows(request, (request.from_ns, request.to_ns))
            .groupBy(bucket.alias("bucket"))
            .count()
            .orderBy("bucket")
        )
        pieces: list[tuple[int, int]] = []
        begun_ns, rows = request.from_ns, 0
        for row in counted.collect():
            number, count = int(row["bucket"]), int(row["count"])
            if rows and rows + count > self._rows_max:
                cut_ns = request.from_ns + number * bucket_ns
                pieces.append((begun_ns, cut_ns))
                begun_ns, rows = cut_ns, 0
            rows += count
        return [*pieces, (begun_ns, request.to_ns)] if rows else pieces

    def _read(self, request: ReplayRequest, piece: tuple[int, int]) -> pa.Table:
        sorted_rows = self._rows(request, piece).orderBy("created_ns", "record")
        return sorted_rows.select(*COLUMNS).toArrow()

    def _rows(self, request: ReplayRequest, piece: tuple[int, int]) -> DataFrame:
        """Return archived events of a part of the interval; only files that may have some are
        read."""
        from_ns, to_ns = piece
        table = StoredTable(self._folder.tables, EVENTS)
        rows = table.read(self._spark, table.paths("created_ns", [(from_ns, to_ns - 1)]))
        streams = [number for one in self.variables(request) for number in one.streams]
        return rows.filter(
            F.col("created_ns").between(from_ns, to_ns - 1) & F.col("stream").isin(streams)
        )


def _variable(name: str, rows: list[Facts]) -> ArchivedVariable:
    """One variable may have had several streams: the newest type, and the shortest period."""
    newest = max(rows, key=lambda row: (row["since_ns"], row["stream"]))
    same = [row for row in rows if row["value_type"] == newest["value_type"]]
    periods = [(_period(row), row["phase_ns"] or 0) for row in same]
    period, phase_ns = min(periods, key=lambda found: found[0].period_ns)
    return ArchivedVariable(
        name=name,
        value_type=newest["value_type"],
        period=period,
        phase_ns=int(phase_ns % period.period_ns),
        streams=tuple(sorted(row["stream"] for row in same)),
    )


def _period(row: Facts) -> Period:
    """Every n-th slot was recorded, so that is how often it is replayed."""
    if row["period_seconds"] is None:
        return APERIODIC
    return Period(row["period_seconds"] * max(1, row["every"]), row["period_per_seconds"])
