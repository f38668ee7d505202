"""A recorder's metrics say how much is recorded, what is missing, and how full its logs are."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gridstat.console.daemons.metrics_server import exposition
from gridstat.console.daemons.recorder_metrics import RecorderCollector
from gridstat.record.log_settings import RecorderSettings
from gridstat.record.recorder import RecorderFigures


def told(state: str, complaint: str = "") -> dict[tuple[str, ...], float]:
    figures = RecorderFigures(
        state=state,
        complaint=complaint,
        recorded=1_000,
        taken=1_200,
        waiting=50,
        streams=3,
        missing={"log full": 150},
        log_bytes={"events": 80, "gaps": 9},
        free_bytes=5_000,
        released_bytes={"ledgers": 70},
        dropped_rows={"counters": 6},
        failures=2,
    )
    text = exposition(RecorderCollector(figures, RecorderSettings(), 12)).decode()
    return {
        (sample.name.removeprefix("gridstat_recorder_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_figure_is_told() -> None:
    found = told("recording")
    assert found["recorded_events_total",] == 1_000
    assert found["taken_events_total",] == 1_200
    assert found["waiting_events",] == 50
    assert found["missing_events_total", "log full"] == 150
    assert found["log_bytes", "events"] == 80
    assert found["log_bytes_max", "events"] == RecorderSettings().events.log_bytes_max
    assert found["log_bytes_max", "gaps"] == RecorderSettings().side.log_bytes_max
    assert found["free_bytes",] == 5_000
    assert found["released_bytes_total", "ledgers"] == 70
    assert found["dropped_rows_total", "counters"] == 6
    assert (found["streams",], found["contracts",], found["failures_total",]) == (3, 12, 2)


@pytest.mark.parametrize(
    ("state", "complaint", "alarms"),
    [
        ("recording", "", (0, 0)),
        ("nearly full", "", (1, 0)),
        ("full", "events has reached 80 bytes", (1, 1)),
        ("failing", "No space left on device", (0, 1)),
    ],
)
def test_an_alarm_is_raised_before_and_when_nothing_more_is_taken(
    state: str, complaint: str, alarms: tuple[int, int]
) -> None:
    found = told(state, complaint)
    assert (found["nearly_full",], found["failing",]) == alarms
