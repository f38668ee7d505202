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
    OWN,
    SECOND_NS,
    contracts,
    events,
    ledgers,
    own_gaps,
    streams,
    unrecorded,
)
from tests.spark.audit_oracle import COUNTS, HOUR_NS, hour_of, increases, promises
from tests.spark.table_rows import rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from gridstat.record.kinds import RecordKind

pytestmark = pytest.mark.timeout(300)

Row = dict[str, Any]
HALF_NS = BEGAN_NS + 7_300 * SECOND_NS
BACK_NS = BEGAN_NS + 7_250 * SECOND_NS
"""When the recorder's own stream is heard again, after more than an hour."""


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
    archive(folder, [row for row in heard() if from_ns <= row["created_ns"] < to_ns])


def heard() -> list[Row]:
    lost_ns = BEGAN_NS + 3_000 * SECOND_NS
    return [row for row in events() if not lost_ns <= row["created_ns"] < BACK_NS]


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
    assert_gaps_are_whole(spark, folder, found)


def assert_gaps_are_whole(
    spark: SparkSession, folder: PipelineFolder, found: dict[tuple[int, int], Row]
) -> None:
    """Those of a list that begins an hour after the longest gap did, and those of the table."""
    newest_ns = max(row["created_ns"] for row in heard())
    own = own_gaps(newest_ns, heard())
    from_ns = BACK_NS - 20 * SECOND_NS
    expected = sorted((gap for gap in own if gap[2] >= from_ns), key=lambda gap: gap[1] - gap[2])
    worst = find_gaps(spark, folder, count=3, from_ns=from_ns).toArrow().to_pylist()
    told = [(row["slots"], row["from_ns"], row["to_ns"]) for row in worst if row["is_exact"]]
    assert told[:2] == expected[:2]
    assert from_ns - told[0][1] > HOUR_NS
    for number in (1, 2, 3):
        hour_ns = BEGAN_NS + number * HOUR_NS
        ended = [gap[0] for gap in own if hour_of(gap[2]) == hour_ns]
        assert found[OWN, hour_ns]["gap_slots_max"] == max(ended, default=0)
    assert found[OWN, hour_of(BACK_NS)]["gap_slots_max"] == told[0][0]


def test_an_empty_folder_has_nothing_to_audit(spark: SparkSession, tmp_path: Path) -> None:
    folder = PipelineFolder(tmp_path)
    folder.log.mkdir()
    found = run_audit(spark, folder)
    assert (found.rows, found.hours, found.broken, found.untold) == (0, 0, 0, 0)
    assert find_gaps(spark, folder).toArrow().num_rows == 0
