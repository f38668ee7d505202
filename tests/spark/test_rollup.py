"""Rollup: who was silent, what was due, and the small variant that runs over a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.pipeline.stages.rollup import complete, measure, rollup_core
from gridstat.pipeline.stream_catalog import FOR_EVER_NS, known_streams
from gridstat.record.log_writer import LogWriter
from gridstat.record.record_kinds import STREAMS
from tests.spark.ingest_logs import BEGAN_S, NS_PER_S, record_events, record_streams, steady

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
BEGAN_NS = BEGAN_S * NS_PER_S


def stream(number: int, **other: Any) -> dict[str, Any]:
    usual = {"period_seconds": 1, "period_per_seconds": 4, "phase_ns": 0, "every": 1}
    known = {"stream": number, "variable": f"v{number}", "since_ns": 0, "until_ns": FOR_EVER_NS}
    return {**known, **usual, **other}


def rolled_up(
    streams: list[dict[str, Any]], events: list[tuple[int, float, float | None]]
) -> dict[tuple[int, int], dict[str, Any]]:
    """Return rollups by stream and second; events are stream, second and value."""
    columns = {
        "stream": pa.array([number for number, *_ in events], pa.int32()),
        "created_ns": pa.array([BEGAN_NS + round(at * NS_PER_S) for _, at, _ in events]),
        "received_ns": pa.array([BEGAN_NS + round(at * NS_PER_S) for _, at, _ in events]),
        "sequence": pa.array(range(len(events)), pa.int32()),
        "value": pa.array([value for *_, value in events], pa.float64()),
    }
    measured = measure(pa.table(columns), NS_PER_S)
    rows = complete(measured, pa.Table.from_pylist(streams), 1).to_pylist()
    found = {(row["stream"], int(row["window_start"].timestamp()) - BEGAN_S): row for row in rows}
    assert len(found) == len(rows)
    return found


def test_a_silent_stream_has_a_row_where_others_were_heard_and_none_where_nobody_was() -> None:
    found = rolled_up([stream(0), stream(1)], [(0, 0.0, 1.0), (0, 5.25, 2.0)])
    assert set(found) == {(0, 0), (1, 0), (0, 5), (1, 5)}
    silent = found[1, 5]
    assert (silent["count"], silent["expected"], silent["completeness"]) == (0, 4, 0.0)
    assert silent["mean"] is None
    assert silent["variable"] == "v1"


def test_a_stream_is_expected_only_while_it_was_there() -> None:
    until = stream(1, until_ns=BEGAN_NS + NS_PER_S // 2)
    since = stream(2, since_ns=BEGAN_NS + NS_PER_S)
    found = rolled_up([stream(0), until, since], [(0, 0.0, 1.0), (0, 1.0, 1.0)])
    assert set(found) == {(0, 0), (0, 1), (1, 0), (2, 1)}
    assert found[1, 0]["expected"] == 2


def test_a_stream_without_a_period_has_nothing_due_and_is_never_missed() -> None:
    alert = stream(1, period_seconds=None, period_per_seconds=None)
    found = rolled_up([stream(0), alert], [(0, 0.0, 1.0), (1, 2.5, 7.0)])
    assert set(found) == {(0, 0), (1, 2), (0, 2)}
    assert (found[1, 2]["count"], found[1, 2]["expected"]) == (1, None)
    assert found[1, 2]["completeness"] is None


def test_a_slow_stream_has_rows_only_in_the_windows_where_it_is_due() -> None:
    slow = stream(1, every=12)
    found = rolled_up([stream(0), slow], [(0, float(at), 1.0) for at in range(6)])
    due = [second for number, second in found if number == 1]
    assert due == [second for second in range(6) if (BEGAN_S + second) % 3 == 0]


def test_events_whose_value_is_no_number_are_counted_and_nothing_else() -> None:
    found = rolled_up([stream(0)], [(0, 0.0, None), (0, 0.25, None)])
    row = found[0, 0]
    assert (row["count"], row["latency_ms_max"]) == (2, 0.0)
    for name in ("mean", "minimum", "maximum", "deviation", "p95", "first", "last"):
        assert row[name] is None


def test_first_and_last_are_by_time_and_then_by_sequence() -> None:
    found = rolled_up([stream(0)], [(0, 0.5, 1.0), (0, 0.0, 2.0), (0, 0.5, 3.0)])
    assert (found[0, 0]["first"], found[0, 0]["last"]) == (2.0, 3.0)


WINDOWS = st.lists(
    st.lists(st.floats(-1e3, 1e3) | st.sampled_from([0.0, 1.0]), min_size=1, max_size=40),
    min_size=1,
    max_size=8,
)


@given(windows=WINDOWS, order=st.randoms(use_true_random=False))
def test_ranks_of_windows_of_many_sizes_are_as_numpy_reckons_them_window_by_window(
    windows: list[list[float]], order: Random
) -> None:
    events: list[tuple[int, float, float | None]] = [
        (place % 3, place + number / 64, value)
        for place, values in enumerate(windows)
        for number, value in enumerate(values)
    ]
    order.shuffle(events)
    found = rolled_up([stream(number) for number in range(3)], events)
    for place, values in enumerate(windows):
        row = found[place % 3, place]
        expected = [min(values), float(np.quantile(values, 0.95)), max(values)]
        ranks = [row["minimum"], row["p95"], row["maximum"]]
        assert np.allclose(ranks, expected, rtol=1e-9, atol=1e-9)
        assert row["count"] == len(values)


def test_the_small_variant_runs_over_a_stream_and_agrees(
    spark: SparkSession, tmp_path: Path
) -> None:
    record_streams(tmp_path, 2)
    rows = steady(2, 8)
    record_events(tmp_path, rows)
    source = spark.readStream.format("gridstat").option("names", "false").load(str(tmp_path))
    writer = rollup_core(source, 1).writeStream.format("memory").queryName("small_variant")
    query = writer.outputMode("append").trigger(availableNow=True).start()
    query.awaitTermination()
    found = {
        (row.stream, int(row.window_start.timestamp())): row
        for row in spark.table("small_variant").collect()
    }
    spark.catalog.dropTempView("small_variant")
    assert len(found) >= 2 * 5
    for (number, second), row in found.items():
        values = [
            made.value
            for made in rows
            if made.stream == number and made.created_ns // NS_PER_S == second
        ]
        assert (row["count"], row.minimum, row.maximum) == (
            len(values),
            min(values),
            max(values),
        )
        assert np.isclose(row["mean"], np.mean(values), rtol=1e-9, atol=1e-12)


def test_a_stream_ends_where_its_variable_goes_on_under_another_number(tmp_path: Path) -> None:
    usual = {"value_type": "float64", "period_seconds": 1, "period_per_seconds": 5, "phase_ns": 0}
    rows = [
        {"stream": 0, "since_ns": 10, "variable": "a", "every": 1, "subscription": 7, **usual},
        {"stream": 1, "since_ns": 20, "variable": "b", "every": 1, "subscription": 8, **usual},
        {"stream": 2, "since_ns": 30, "variable": "a", "every": 2, "subscription": 7, **usual},
    ]
    with LogWriter(tmp_path, STREAMS, now_ns=lambda: 0) as log:
        log.append(pa.RecordBatch.from_pylist(rows, schema=STREAMS.schema))
    table = known_streams(tmp_path)
    assert table.column("until_ns").to_pylist() == [30, FOR_EVER_NS, FOR_EVER_NS]
