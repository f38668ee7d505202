"""The audit of a real folder, run while the log grows: nothing is counted twice or left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from gridstat.pipeline.event_columns import EVENT_SCHEMA, StreamTable, event_columns
from gridstat.pipeline.folder import PipelineFolder
from gridstat.pipeline.jobs.audit import find_gaps, run_audit
from gridstat.pipeline.schemas import AUDIT, EVENTS
from gridstat.pipeline.tables import StoredTable
from gridstat.record import kinds
from gridstat.record.log_writer import LogWriter
from tests.spark.audit_case import (
    BEGAN_NS,
    SECOND_NS,
    contracts,
    events,
    ledgers,
    own_gaps,
    streams,
    unrecorded,
)
from tests.spark.audit_oracle import COUNTS, HOUR_NS, increases, promises
from tests.spark.table_rows import rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from gridstat.record.kinds import RecordKind

pytestmark = pytest.mark.timeout(300)

Row = dict[str, Any]
HALF_NS = BEGAN_NS + 7_300 * SECOND_NS


def record(folder: PipelineFolder, kind: RecordKind, rows: list[Row]) -> None:
    folder.log.mkdir(parents=True, exist_ok=True)
    columns = {name: [row[name] for row in rows] for name in kind.schema.names}
    with LogWriter(folder.log, kind, now_ns=lambda: BEGAN_NS) as log:
        log.append(pa.record_batch(columns, schema=kind.schema))
        log.sync()


def record_all(folder: PipelineFolder, from_ns: int, to_ns: int) -> None:
    """What is recorded and archived between two instants."""
    for kind, rows in (
        (kinds.CONTRACTS, contracts()),
        (kinds.STREAMS, streams()),
        (kinds.GAPS, unrecorded()),
        (kinds.LEDGERS, ledgers()),
    ):
        record(folder, kind, [row for row in rows if from_ns <= row[kind.time] < to_ns])
    archive(folder, [row for row in events() if from_ns <= row["created_ns"] < to_ns])


def archive(folder: PipelineFolder, rows: list[Row]) -> None:
    schema = kinds.EVENTS.schema
    batch = pa.record_batch({name: [row[name] for row in rows] for name in schema.names}, schema)
    known = StreamTable(pa.Table.from_pylist(streams(), schema=kinds.STREAMS.schema))
    named = event_columns(batch, known, 0, schema=EVENT_SCHEMA)
    table = pa.table(named)
    days = table.column("created").cast(pa.date32())
    StoredTable(folder.tables, EVENTS).append(table.append_column("day", days))


def test_an_audit_that_goes_on_says_the_same_as_one_over_everything(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = PipelineFolder(tmp_path)
    record_all(folder, 0, HALF_NS)
    first = run_audit(spark, folder)
    assert (first.from_ns, first.hours) == (0, 3)

    record_all(folder, HALF_NS, 2 * HALF_NS)
    second = run_audit(spark, folder)
    assert second.from_ns == BEGAN_NS + HOUR_NS
    assert second.broken > 0

    rows = rows_of(folder.tables, AUDIT).to_pylist()
    found = {(row["subscription"], round(row["hour"].timestamp()) * SECOND_NS): row for row in rows}
    assert len(found) == len(rows)
    assert {key: row["expected_by_law"] for key, row in found.items()} == promises(
        contracts(), second.until_ns
    )
    for key, expected in increases(ledgers()).items():
        assert {name: found[key][name] for name in COUNTS} == expected.counts, key
        assert found[key]["latency_counts"] == expected.latency_counts, key
    worst = find_gaps(spark, folder, count=3).toArrow().to_pylist()
    assert [row["slots"] for row in worst] == [gap[0] for gap in longest(3)]


def longest(count: int) -> list[tuple[int, int, int]]:
    """Of the recorder's own; the subscriber's worst is longer than most of them."""
    newest_ns = max(row["created_ns"] for row in events())
    told = [(4, 0, 12 * SECOND_NS), (2, 0, 9 * SECOND_NS)]
    return sorted(own_gaps(newest_ns) + told, key=lambda gap: gap[1] - gap[2])[:count]


def test_an_empty_folder_has_nothing_to_audit(spark: SparkSession, tmp_path: Path) -> None:
    folder = PipelineFolder(tmp_path)
    folder.log.mkdir()
    found = run_audit(spark, folder)
    assert (found.rows, found.hours, found.broken, found.untold) == (0, 0, 0, 0)
    assert find_gaps(spark, folder).toArrow().num_rows == 0
