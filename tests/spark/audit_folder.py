"""The case of the audit as a pipeline's folder: recorded and archived up to any instant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gridstat.pipeline.delta_tables import StoredTable
from gridstat.pipeline.event_columns import EVENT_SCHEMA, StreamTable, event_columns
from gridstat.pipeline.schemas import EVENTS
from gridstat.record import record_kinds
from gridstat.record.log_writer import LogWriter
from tests.spark.audit_case import BEGAN_NS, contracts, events, ledgers, streams, unrecorded

if TYPE_CHECKING:
    from gridstat.pipeline.pipeline_folder import PipelineFolder
    from gridstat.record.record_kinds import RecordKind

Row = dict[str, Any]


def record(folder: PipelineFolder, kind: RecordKind, rows: list[Row], frame_rows: int) -> None:
    """Appends the rows, so many of them in each frame."""
    folder.log.mkdir(parents=True, exist_ok=True)
    columns = {name: [row[name] for row in rows] for name in kind.schema.names}
    batch = pa.record_batch(columns, schema=kind.schema)
    with LogWriter(folder.log, kind, now_ns=lambda: BEGAN_NS) as log:
        for first in range(0, len(rows), frame_rows):
            log.append(batch.slice(first, frame_rows))
            log.sync()


def record_all(
    folder: PipelineFolder, from_ns: int, to_ns: int, *, frame_rows: int = 1_000
) -> None:
    """Record and archive all rows between two instants."""
    for kind, rows in (
        (record_kinds.CONTRACTS, contracts()),
        (record_kinds.STREAMS, streams()),
        (record_kinds.GAPS, unrecorded()),
        (record_kinds.LEDGERS, ledgers()),
    ):
        chosen = [row for row in rows if from_ns <= row[kind.time] < to_ns]
        record(folder, kind, chosen, frame_rows)
    archive(folder, [row for row in events() if from_ns <= row["created_ns"] < to_ns])


def archive(folder: PipelineFolder, rows: list[Row]) -> None:
    schema = record_kinds.EVENTS.schema
    batch = pa.record_batch({name: [row[name] for row in rows] for name in schema.names}, schema)
    known = StreamTable(pa.Table.from_pylist(streams(), schema=record_kinds.STREAMS.schema))
    named = event_columns(batch, known, np.arange(batch.num_rows), schema=EVENT_SCHEMA)
    table = pa.table(named)
    days = table.column("created").cast(pa.date32())
    StoredTable(folder.tables, EVENTS).append(table.append_column("day", days))
