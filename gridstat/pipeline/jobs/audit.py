"""Audit: the log's ledgers and contracts beside the archive, into one row per contract and hour.

A batch job over what is recorded by now. The two newest hours that were audited before are done
again, for their last readings may have come since; rows are replaced by their key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from gridstat.pipeline.delta_tables import StoredTable
from gridstat.pipeline.last_event_times import LAST_EVENT_TIMES, last_event_times
from gridstat.pipeline.log_source import NAME
from gridstat.pipeline.row_choice import RowChoice
from gridstat.pipeline.schemas import AUDIT, EVENTS
from gridstat.pipeline.stages.contract_audit import (
    GAPS_COLUMNS,
    OPEN_S,
    Witnesses,
    all_gaps,
    audit,
    worst_gaps,
)
from gridstat.pipeline.stages.ledger_hours import HOUR_NS, SUBSCRIPTION
from gridstat.pipeline.stream_catalog import known_streams, read_all
from gridstat.record.log_reader import LogReader
from gridstat.record.record_kinds import CONTRACTS, GAPS, LEDGERS, STREAMS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from gridstat.pipeline.pipeline_folder import PipelineFolder
    from gridstat.record.record_kinds import RecordKind

JOB: Final = "audit"
NS_PER_US: Final = 1_000
NS_PER_S: Final = 1_000_000_000
LOOK_BACK_NS: Final = HOUR_NS
"""Time before the audited hours from which events are read: a stamp may lie before the hour of its
slot."""
GAPS_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Audited:
    """Result of the job: `broken` contracts were not kept in some hour; `untold` ones have no
    evidence."""

    rows: int
    hours: int
    broken: int
    untold: int
    from_ns: int
    until_ns: int


def run_audit(
    spark: SparkSession,
    folder: PipelineFolder,
    *,
    from_ns: int | None = None,
    open_s: float = OPEN_S,
) -> Audited:
    """All hours since `from_ns`, or those that are new or may have changed, up to the newest."""
    with folder.lock(JOB):
        table = StoredTable(folder.tables, AUDIT)
        since_ns = _unsettled_ns(table) if from_ns is None else from_ns // HOUR_NS * HOUR_NS
        if not LogReader(folder.log, CONTRACTS).extents():
            return Audited(0, 0, 0, 0, since_ns, since_ns)
        witnesses, until_ns = _witnesses(spark, folder, since_ns)
        hours = audit(witnesses, until_ns, open_s=open_s)
        rows = hours.filter(F.unix_micros("hour") * NS_PER_US >= since_ns).toArrow()
        table.upsert(rows, "hour")
    kept = rows.column("is_kept")
    return Audited(
        rows=rows.num_rows,
        hours=len(pc.unique(rows.column("hour"))),
        broken=pc.sum(pc.invert(kept)).as_py() or 0,
        untold=kept.null_count,
        from_ns=since_ns,
        until_ns=until_ns,
    )


def find_gaps(
    spark: SparkSession,
    folder: PipelineFolder,
    *,
    count: int = GAPS_SHOWN,
    from_ns: int = 0,
) -> DataFrame:
    """The worst gaps that ended since `from_ns`, with their times; columns `GAPS_COLUMNS`."""
    if not LogReader(folder.log, CONTRACTS).extents():
        return spark.createDataFrame([], GAPS_COLUMNS)
    witnesses, until_ns = _witnesses(spark, folder, from_ns)
    return worst_gaps(all_gaps(witnesses, until_ns).filter(F.col("to_ns") >= from_ns), count)


def _witnesses(spark: SparkSession, folder: PipelineFolder, since_ns: int) -> tuple[Witnesses, int]:
    events = StoredTable(folder.tables, EVENTS)
    read_ns = max(0, since_ns - LOOK_BACK_NS)
    archived_ns = int(events.highest("created_ns") or 0)
    stamped = events.read(spark, events.paths("created_ns", [(read_ns, None)]))
    witnesses = Witnesses(
        contracts=_small(spark, folder, CONTRACTS),
        ledgers=base_and_later_ledgers(spark, folder, since_ns),
        streams=_small(spark, folder, STREAMS),
        events=stamped.filter(F.col("created_ns") >= read_ns),
        unrecorded=_small(spark, folder, GAPS),
        archived_ns=archived_ns,
        last_events=_last_event_times(spark, folder, events, read_ns) if read_ns else None,
    )
    newest = [LogReader(folder.log, kind).extents() for kind in (LEDGERS, CONTRACTS)]
    ends_ns = [extents[-1].latest_ns for extents in newest if extents]
    return witnesses, max([archived_ns, *ends_ns])


def _last_event_times(
    spark: SparkSession, folder: PipelineFolder, events: StoredTable, read_ns: int
) -> DataFrame:
    """A gap that reaches into what is read began after the last event that is not, be it old."""
    found = last_event_times(events, known_streams(folder.log), read_ns)
    return spark.createDataFrame(found, LAST_EVENT_TIMES)


def _small(spark: SparkSession, folder: PipelineFolder, kind: RecordKind) -> DataFrame:
    """Read once by the driver, for it is joined several times."""
    return spark.createDataFrame(read_all(folder.log, kind), from_arrow_schema(kind.schema))


def base_and_later_ledgers(spark: SparkSession, folder: PipelineFolder, since_ns: int) -> DataFrame:
    """Readings after `since_ns`, and of each subscription the last one before: it is the base."""
    if since_ns <= 0:
        return _recorded(spark, folder, LEDGERS, RowChoice())
    key = [*SUBSCRIPTION, "path"]
    before = _recorded(spark, folder, LEDGERS, RowChoice(to_ns=since_ns + 1))
    newest = before.groupBy(*key).agg(F.max_by(F.struct("*"), "time_ns").alias("row"))
    after = _recorded(spark, folder, LEDGERS, RowChoice(from_ns=since_ns + 1))
    return newest.select("row.*").unionByName(after)


def _recorded(
    spark: SparkSession, folder: PipelineFolder, kind: RecordKind, rows: RowChoice
) -> DataFrame:
    source = spark.read.format(NAME).option("kind", kind.name)
    return source.options(**rows.options).load(str(folder.log))


def _unsettled_ns(table: StoredTable) -> int:
    newest = table.highest("hour")
    return 0 if newest is None else round(newest.timestamp()) * NS_PER_S - HOUR_NS
