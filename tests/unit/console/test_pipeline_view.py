"""Display of the pipeline by `gridstat up`."""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from rich.console import Console

from gridstat.console.live.pipeline_view import PipelineView, pipeline_line, pipeline_tables
from gridstat.pipeline.progress import Progress

PROGRESS = Progress(
    state="running",
    batch=7,
    recorded=12_400,
    taken=12_345,
    archived=12_340,
    quarantined=5,
    alarms=2,
    rows_per_s=15_000.0,
    lag_s=1.25,
    watermark_ns=0,
    updated_ns=0,
)
SECOND = datetime(2026, 11, 16, 12, 0, 1, tzinfo=UTC)
ROLLUP: dict[str, Any] = {
    "variable": "c1/hill/pmu-1/frequency",
    "window_start": SECOND,
    "count": 59,
    "expected": 60,
    "mean": 59.98,
    "minimum": 59.97,
    "maximum": None,
    "latency_ms_mean": 0.31,
}
ALARM: dict[str, Any] = {
    "onset": SECOND,
    "rule": "low-frequency",
    "variable": "c1/hill/pmu-1/frequency",
    "value": 59.84,
    "limit": 59.9,
    "severity": "high",
    "text": "",
}


def test_before_the_first_batch_it_says_that_spark_is_starting() -> None:
    assert pipeline_line(PipelineView()) == "pipeline: Spark is starting"


def test_one_line_tells_how_far_it_is_and_the_newest_alarm() -> None:
    line = pipeline_line(PipelineView(asdict(PROGRESS), [ROLLUP], [ALARM]))
    assert line == (
        "pipeline: 12,340 events archived, 5 quarantined, 1.2 s behind live, 15,000 rows/s; "
        "2 alarms, newest low-frequency of c1/hill/pmu-1/frequency at 12:00:01"
    )


def test_tables_show_the_newest_second_and_the_alarm() -> None:
    console = Console(file=io.StringIO(), width=120)
    for table in pipeline_tables(PipelineView(asdict(PROGRESS), [ROLLUP], [ALARM])).values():
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "59 of 60" in shown
    assert "12:00:01.000" in shown
    assert "59.840" in shown


def test_json_has_times_as_text() -> None:
    line = json.loads(json.dumps(PipelineView(asdict(PROGRESS), [ROLLUP], [ALARM]).as_json()))
    assert line["rollups"][0]["window_start"] == "2026-11-16T12:00:01+00:00"
    assert line["progress"]["taken"] == 12_345
