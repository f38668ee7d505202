"""A glance at the tables without Spark: the newest rollups and alarms, for a display."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from gridstat.pipeline.schemas import ALARMS, ROLLUP_LIVE

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

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
ALARM_COLUMNS: Final = ("onset", "rule", "variable", "value", "limit", "severity", "text")


def newest_rollups(tables: Path) -> list[dict[str, Any]]:
    """The newest second of each variable, by name; none before the first batch."""
    live = _read(tables, ROLLUP_LIVE, ROLLUP_COLUMNS)
    if live is None:
        return []
    newest: dict[str, dict[str, Any]] = {}
    for row in live.sort_by("window_start").to_pylist():
        # The last second of a stream has only begun; the one before tells more.
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


def _read(tables: Path, table: TableSchema, columns: tuple[str, ...]) -> pa.Table | None:
    """One version of a table; None while there is none, or while it is being written anew."""
    try:
        return DeltaTable(str(tables / table.name)).to_pyarrow_table(columns=list(columns))
    except (TableNotFoundError, FileNotFoundError):
        return None
