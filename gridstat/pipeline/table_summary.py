"""A glance at the tables without Spark: the newest rollups and alarms, for a display."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from gridstat.pipeline.schemas import ALARMS, ROLLUP_1S, ROLLUP_LIVE

if TYPE_CHECKING:
    from pathlib import Path

    from gridstat.pipeline.schemas import TableSchema

ROLLUP_COLUMNS: Final = (
    "variable",
    "window_start",
    "count",
    "expected",
    "mean",
    "minimum",
    "maximum",
    "latency_ms_mean",
)
RECENT: Final = timedelta(seconds=3)
ALARM_COLUMNS: Final = ("onset", "rule", "variable", "value", "limit", "severity", "text")


def newest_rollups(tables: Path) -> list[dict[str, Any]]:
    """The newest second of each variable, by name; none before the first batch."""
    live = _read(tables, ROLLUP_LIVE, ROLLUP_COLUMNS)
    if live is None or not live.num_rows:  # After a clean stop no second is open.
        live = _read(tables, ROLLUP_1S, ROLLUP_COLUMNS, newest_of="window_start")
    if live is None:
        return []
    newest: dict[str, dict[str, Any]] = {}
    for row in live.sort_by("window_start").to_pylist():
        # The last second of a stream has only begun; the one before is complete.
        known = newest.get(row["variable"])
        if known is None or row["count"] >= known["count"]:
            newest[row["variable"]] = row
    return [newest[name] for name in sorted(newest)]


def newest_alarms(tables: Path, count_max: int) -> list[dict[str, Any]]:
    """The last alarms, newest first."""
    alarms = _read(tables, ALARMS, ALARM_COLUMNS)
    if alarms is None:
        return []
    order = pc.sort_indices(alarms, sort_keys=[("onset", "descending")])
    rows: list[dict[str, Any]] = alarms.take(order[:count_max]).to_pylist()
    return rows


def _read(
    tables: Path, table: TableSchema, columns: tuple[str, ...], newest_of: str = ""
) -> pa.Table | None:
    """One version of a table, or its last seconds only; None while there is no such version."""
    try:
        found = DeltaTable(str(tables / table.name))
        if not newest_of:
            return found.to_pyarrow_table(columns=list(columns))
        files = pa.table(found.get_add_actions(flatten=True))
        if not files.num_rows:
            return None
        newest = pc.max(files.column(f"max.{newest_of}")).as_py()
        recent = [(newest_of, ">=", newest - RECENT)]
        return found.to_pyarrow_table(columns=list(columns), filters=recent)
    except (TableNotFoundError, FileNotFoundError):
        return None
