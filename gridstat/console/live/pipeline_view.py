"""View of the pipeline's results, as tables and as one line for a display."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gridstat.console.fitted_table import Column, FittedTable
from gridstat.pipeline.progress import read_progress

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

ROLLUPS_SHOWN: Final = 16
ALARMS_SHOWN: Final = 8
TABLES: Final = "tables"


@dataclass(frozen=True, slots=True)
class PipelineView:
    """Progress of the ingest, the newest second of each variable, the last alarms."""

    progress: Mapping[str, Any] = field(default_factory=dict)
    rollups: Sequence[Mapping[str, Any]] = ()
    alarms: Sequence[Mapping[str, Any]] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "progress": dict(self.progress),
            "rollups": [_plain(row) for row in self.rollups],
            "alarms": [_plain(row) for row in self.alarms],
        }


def look(folder: Path) -> PipelineView:
    """Read the present state of a pipeline's folder from files; takes some milliseconds."""
    # Imported here: a grid without a pipeline need not have it installed.
    from gridstat.pipeline.table_summary import newest_alarms, newest_rollups

    tables = folder / TABLES
    return PipelineView(
        read_progress(folder), newest_rollups(tables), newest_alarms(tables, ALARMS_SHOWN)
    )


def pipeline_tables(view: PipelineView) -> dict[str, FittedTable]:
    """The newest rollups and alarms, by what they show."""
    return {"newest seconds": rollup_table(view.rollups), "alarms": alarm_table(view.alarms)}


def pipeline_line(view: PipelineView) -> str:
    """Return the progress of the pipeline in one line."""
    if not view.progress:
        return "pipeline: Spark is starting"
    progress = view.progress
    newest = f", newest {_alarm_text(view.alarms[0])}" if view.alarms else ""
    return (
        f"pipeline: {progress['archived']:,} events archived, "
        f"{progress['quarantined']:,} quarantined, {progress['lag_s']:.1f} s behind live, "
        f"{progress['rows_per_s']:,.0f} rows/s; {progress['alarms']:,} alarms{newest}"
    )


def rollup_table(rollups: Sequence[Mapping[str, Any]]) -> FittedTable:
    table = FittedTable(
        Column("variable"),
        Column("second", 5),
        Column("events", 1, "right"),
        Column("mean", 2, "right"),
        Column("minimum", 3, "right"),
        Column("maximum", 3, "right"),
        Column("latency ms", 4, "right"),
    )
    for row in rollups[:ROLLUPS_SHOWN]:
        table.add_row(
            row["variable"],
            f"{row['window_start']:%H:%M:%S}",
            f"{row['count']} of {row['expected']}",
            *(_number(row[name]) for name in ("mean", "minimum", "maximum")),
            _number(row["latency_ms_mean"]),
        )
    return table


def alarm_table(alarms: Sequence[Mapping[str, Any]]) -> FittedTable:
    table = FittedTable(
        Column("alarm since"),
        Column("rule"),
        Column("variable"),
        Column("value", 1, "right"),
        Column("limit", 2, "right"),
    )
    for row in alarms:
        table.add_row(
            f"{row['onset']:%H:%M:%S.%f}"[:-3],
            row["rule"],
            row["variable"],
            _number(row["value"]),
            _number(row["limit"]),
        )
    return table


def _alarm_text(row: Mapping[str, Any]) -> str:
    return f"{row['rule']} of {row['variable']} at {row['onset']:%H:%M:%S}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.3f}"


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value.isoformat() if hasattr(value, "isoformat") else value
        for name, value in row.items()
    }
