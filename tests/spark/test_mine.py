"""Mining against brute force: what is usual, what is not, what goes together, what is narrow."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from gridstat.console.daemons.recorder_rows import AccountRows
from gridstat.model.robust_score import is_outlier, robust_score
from gridstat.pipeline.schemas import (
    ANOMALIES,
    AVERAGES,
    BOTTLENECKS,
    CORRELATIONS,
    PROFILES,
    ROLLUP_1M,
)
from gridstat.pipeline.stages.anomalies import anomalies
from gridstat.pipeline.stages.bottlenecks import bottlenecks
from gridstat.pipeline.stages.correlations import correlations
from gridstat.pipeline.stages.profiles import ANY_DAY, averages, profiles
from gridstat.record.record_kinds import COUNTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame, SparkSession

    from gridstat.pipeline.schemas import TableSchema

pytestmark = pytest.mark.timeout(300)

Row = dict[str, Any]
MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
LOAD, FREQUENCY = "c1/hill/meter/load", "c1/hill/pmu-1/frequency"
ALERT, OVER = "c1/hill/meter/alert", "c1/hill/meter/over"
"""One event each, of which none was due: it has no period, or its contract had ended."""


def same(expected: Any) -> Any:
    return pytest.approx(expected, rel=1e-9, abs=1e-12)


def windows() -> list[tuple[str, datetime, list[float]]]:
    """Two weeks of both variables, twenty minutes a window: a peak at noon on working days, one
    minute out of all reason, and a day on which nothing was recorded."""
    chosen = random.Random(7)
    found: list[tuple[str, datetime, list[float]]] = []
    for number in range(14 * 72):
        start = MONDAY + timedelta(minutes=20 * number)
        if start.day == 5:
            continue
        peak = 300.0 if start.hour == 12 and start.isoweekday() < 6 else 0.0
        load = [1_000 + peak + chosen.gauss(0, 5) for _ in range(chosen.randrange(1, 5))]
        frequency = [50 + chosen.gauss(0, 0.01) for _ in range(chosen.randrange(1, 5))]
        if number == 500:
            frequency = [51.5]
        found += [(LOAD, start, load), (FREQUENCY, start, frequency)]
    return found


def rollup_row(variable: str, start: datetime, values: list[float]) -> Row:
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {
        "variable": variable,
        "stream": 1,
        "window_start": start,
        "window_s": 60,
        "count": len(values),
        "expected": 4,
        "completeness": len(values) / 4,
        "mean": float(np.mean(values)),
        "minimum": min(values),
        "maximum": max(values),
        "deviation": spread,
        "p95": None,
        "first": values[0],
        "last": values[-1],
        "latency_ms_mean": 1.0,
        "latency_ms_max": 2.0,
        "day": start.date(),
    }


def rollups(spark: SparkSession, rows: Iterable[Row]) -> DataFrame:
    names = [column.split()[0] for column in ROLLUP_1M.columns.split(",")]
    values = [tuple(row[name] for name in names) for row in rows]
    return spark.createDataFrame(values, ROLLUP_1M.columns)


def collected(frame: DataFrame, table: TableSchema) -> list[Row]:
    assert ", ".join(f"{name} {kind}" for name, kind in frame.dtypes) == table.columns
    return [row.asDict() for row in frame.collect()]


def grouped(
    key: Callable[[str, datetime], Iterable[Any]],
) -> dict[Any, list[tuple[datetime, list[float]]]]:
    found: dict[Any, list[tuple[datetime, list[float]]]] = defaultdict(list)
    for variable, start, values in windows():
        for each in key(variable, start):
            found[each].append((start, values))
    return found


def measures(parts: list[tuple[datetime, list[float]]]) -> list[float | None]:
    values = [value for _, part in parts for value in part]
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return [len(values), float(np.mean(values)), min(values), max(values), deviation]


MEASURES = ("count", "mean", "minimum", "maximum", "deviation")


@pytest.fixture(scope="module")
def history(spark: SparkSession) -> DataFrame:
    silent = rollup_row(LOAD, MONDAY + timedelta(days=3), [0.0]) | {"count": 0, "mean": None}
    alert = rollup_row(ALERT, MONDAY, [1.0]) | {"expected": None, "completeness": None}
    over = rollup_row(OVER, MONDAY, [1.0]) | {"expected": 0, "completeness": None}
    rows = [silent, alert, over, *(rollup_row(*window) for window in windows())]
    return rollups(spark, rows).cache()


@pytest.fixture(scope="module")
def usual(history: DataFrame) -> DataFrame:
    return profiles(history).cache()


def test_averages_by_hour_day_and_week_are_those_of_the_single_values(history: DataFrame) -> None:
    def spans(variable: str, start: datetime) -> Iterable[Any]:
        day = start.replace(hour=0, minute=0)
        yield variable, "hour", start.replace(minute=0)
        yield variable, "day", day
        yield variable, "week", day - timedelta(days=start.isoweekday() - 1)

    expected = grouped(spans)
    rows = collected(averages(history), AVERAGES)
    undue = [row for row in rows if row["variable"] in (ALERT, OVER)]
    assert [(row["count"], row["completeness"]) for row in undue] == [(1, None)] * 6
    found = [row for row in rows if row not in undue]
    assert len(found) == len(expected)
    for row in found:
        start = row["span_start"].replace(tzinfo=UTC)
        parts = expected[row["variable"], row["span"], start]
        assert [row[name] for name in MEASURES] == same(measures(parts))
        assert row["device"] == row["variable"].rsplit("/", 1)[0]
        assert row["completeness"] == same(row["count"] / (4 * len(parts)))


def test_profiles_find_the_peak_at_noon_of_working_days(usual: DataFrame) -> None:
    expected = grouped(
        lambda variable, start: (
            (variable, start.isoweekday(), start.hour),
            (variable, ANY_DAY, start.hour),
        )
    )
    found = {
        (row["variable"], row["weekday"], row["hour"]): row for row in collected(usual, PROFILES)
    }
    undue = [found.pop(key) for key in list(found) if key[0] in (ALERT, OVER)]
    assert [row["count"] for row in undue] == [1] * 4
    assert set(found) == set(expected)
    for key, parts in expected.items():
        row = found[key]
        assert [row[name] for name in MEASURES] == same(measures(parts))
        means = [float(np.mean(values)) for _, values in parts]
        spread = float(np.median(np.abs(np.array(means) - np.median(means))))
        assert row["windows"] == len(parts)
        assert [row["median"], row["mad"]] == same([np.median(means), spread])
    peaks = {
        weekday: max(range(24), key=lambda hour: found[LOAD, weekday, hour]["mean"])
        for weekday in range(1, 6)
    }
    assert set(peaks.values()) == {12}
    assert found[LOAD, 6, 12]["mean"] < 1_100


def test_only_what_is_far_from_its_hour_is_an_anomaly(history: DataFrame, usual: DataFrame) -> None:
    medians = {
        (row["variable"], row["hour"]): row for row in usual.collect() if row["weekday"] == ANY_DAY
    }
    expected = {}
    for variable, start, values in windows():
        known = medians[variable, start.hour]
        score = robust_score(float(np.mean(values)), known["median"], known["mad"])
        if is_outlier(score, known["windows"]):
            expected[variable, start] = score
    found = {
        (row["variable"], row["window_start"].replace(tzinfo=UTC)): row["score"]
        for row in collected(anomalies(history, usual), ANOMALIES)
    }
    assert found == same(expected)
    assert (FREQUENCY, MONDAY + timedelta(minutes=20 * 500)) in found
    assert {variable for variable, _ in found} == {FREQUENCY, LOAD}, "noon of a Sunday is unlike"


def test_correlations_are_those_of_the_common_seconds(spark: SparkSession) -> None:
    chosen = random.Random(8)
    series: dict[str, dict[int, float]] = {"a/x": {}, "b/y": {}, "c/z": {}, "d/still": {}}
    for second in range(200):
        base = chosen.gauss(0, 1)
        series["a/x"][second] = 50 + base
        series["b/y"][second] = 230 - 3 * base + chosen.gauss(0, 1)
        series["c/z"][second] = chosen.gauss(0, 1)
        series["d/still"][second] = 7.0
    for second in range(0, 200, 3):
        del series["b/y"][second]
    for second in range(20, 200):
        del series["c/z"][second]
    rows = [
        rollup_row(name, MONDAY + timedelta(seconds=second), [value])
        for name, values in series.items()
        for second, value in values.items()
    ]
    twice = rollup_row("a/x", MONDAY, [series["a/x"][0]] * 3) | {"stream": 2}
    rare = rollup_row("e/rare", MONDAY, [1.0])
    found = {
        (row["variable"], row["other"]): row
        for row in collected(
            correlations(rollups(spark, [*rows, twice, rare]), variables_max=4), CORRELATIONS
        )
    }
    assert set(found) == {("a/x", "b/y"), ("a/x", "d/still"), ("b/y", "d/still")}
    both = sorted(series["a/x"].keys() & series["b/y"].keys())
    pairs = [[series[name][second] for second in both] for name in ("a/x", "b/y")]
    row = found["a/x", "b/y"]
    assert row["correlation"] == same(float(np.asarray(np.corrcoef(pairs))[0, 1]))
    assert row["correlation"] < -0.8
    assert row["seconds"] == len(both)
    assert found["a/x", "d/still"]["correlation"] is None


WIDTH = {"bandwidth_bytes_per_s": 1_000}


def reading(at_s: int, router: str, channel: str, **counts: int) -> list[Row]:
    named = {"time_ns": at_s * 10**9, "router": router, "channel": channel}
    return [named | {"counter": counter, "value": value} for counter, value in counts.items()]


def recorded_burst() -> list[Row]:
    """Return a recorder's rows of a channel that is idle for an hour and then busy for 5 s."""
    account = AccountRows()
    rows: list[Row] = []
    for at_s in range(0, 3_610, 5):
        counts = {"due": 0, "bytes_out": 100, **WIDTH}
        if at_s == 3_605:
            counts |= {"due": 50, "bytes_out": 4_600}
        facts = [{"router": "e4", "channel": "e4>e5", "counters": counts}]
        rows += account.counter_rows(facts, at_s * 10**9)
    return rows


@pytest.fixture(scope="module")
def narrow(spark: SparkSession) -> dict[str, Row]:
    """Channels by name, in the order of their places."""
    rows = [
        *reading(0, "e1", "", bytes_out=10**9),
        *reading(0, "e1", "e1>i1", due=900, sent=900, queued=0, bytes_out=5_000, **WIDTH),
        *reading(10, "e1", "e1>i1", due=1_900, sent=1_900, queued=10, bytes_out=7_000),
        # This router began anew between the two readings.
        *reading(0, "i1", "i1>e2", due=900, sent=900, queued=0, bytes_out=9_000, **WIDTH),
        *reading(10, "i1", "i1>e2", due=500, sent=400, queued=300, bytes_out=4_000, queue_full=0),
        *reading(15, "i1", "i1>e2", queued=40),
        *reading(20, "i1", "i1>e2", due=1_000, sent=900, queue_full=100, bytes_out=13_500),
        *reading(20, "i1", "i1>e2", queued=250),
        *reading(0, "i1", "i1>e3", due=0, sent=0, bytes_out=0, **WIDTH),
        *reading(10, "i1", "i1>e3", due=100, sent=100, bytes_out=9_900),
        *reading(0, "i2", "i2>e3", due=0, bytes_out=0, bandwidth_bytes_per_s=0),
        *reading(10, "i2", "i2>e3", due=100, bytes_out=10**6),
        *recorded_burst(),
    ]
    values = [[row[name] for name in COUNTERS.schema.names] for row in rows]
    frame = spark.createDataFrame(values, from_arrow_schema(COUNTERS.schema))
    found = sorted(collected(bottlenecks(frame), BOTTLENECKS), key=lambda row: row["place"])
    return {row["channel"]: row for row in found}


def test_the_narrow_channel_comes_first(narrow: dict[str, Row]) -> None:
    assert list(narrow) == ["i1>e2", "i1>e3", "e4>e5", "e1>i1", "i2>e3"]
    worst = narrow["i1>e2"]
    assert (worst["due"], worst["sent"], worst["dropped"]) == (1_000, 900, 100)
    assert worst["dropped_share"] == 0.1
    assert (worst["bytes_per_s_max"], worst["share_max"]) == (950.0, 0.95)
    assert worst["bytes_per_s_mean"] == pytest.approx(13_500 / 20)
    assert narrow["e1>i1"]["share_max"] == pytest.approx(0.2)


def test_what_waits_is_not_summed_up_but_the_most_at_a_time(narrow: dict[str, Row]) -> None:
    waited = {name: row["queued_max"] for name, row in narrow.items()}
    assert waited == {"i1>e2": 300, "i1>e3": None, "e4>e5": None, "e1>i1": 10, "i2>e3": None}


def test_a_channel_of_no_declared_bandwidth_has_no_share_of_it(narrow: dict[str, Row]) -> None:
    undeclared = narrow["i2>e3"]
    assert (undeclared["bytes_per_s_max"], undeclared["share_max"]) == (100_000.0, None)


def test_a_burst_after_an_idle_hour_is_as_fast_as_it_was(narrow: dict[str, Row]) -> None:
    burst = narrow["e4>e5"]
    assert (burst["bytes_per_s_max"], burst["share_max"]) == (900.0, 0.9)
    assert burst["seconds"] == 3_605
