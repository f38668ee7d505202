"""The arithmetic of the experiments, against hand-made and printed numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.rig import CORE, FLOOR_GSO, REFERENCE, warm_up_s
from benchmarks.statistics import (
    NS_PER_S,
    bins_of,
    counted,
    filtered_events_per_ms,
    histogram_quantile,
    histogram_since,
    line_through,
    median_ratio,
    model_mean_ms,
    multicast_events_per_ms,
    published_events_per_ms,
    spread_percent,
    summary_of,
    warm_up_count,
)

latencies = st.lists(st.integers(0, 20_000_000), min_size=1, max_size=300)


def test_of_windows_only_what_was_made_within_them_counts() -> None:
    created_ns = np.array([5, 10, 15, 20, 25, 30], np.int64)
    assert counted(created_ns, warm_up_s=9.0, windows_ns=((10, 20), (30, 31))).tolist() == [1, 2, 5]
    assert counted(created_ns, warm_up_s=0.0, windows_ns=((40, 50),)).tolist() == []


def test_without_windows_all_but_the_warm_up_counts() -> None:
    created_ns = np.arange(0, 10 * NS_PER_S, NS_PER_S // 10)
    places = counted(created_ns, warm_up_s=1.0)
    assert places.tolist() == list(range(10, 100))


def test_of_a_histogram_that_grows_only_what_is_new_is_told() -> None:
    assert histogram_since(((10, 5), (20, 1)), ((10, 5), (20, 4), (40, 2))) == (
        (10, 0),
        (20, 3),
        (40, 2),
    )
    assert histogram_since((), ((10, 5),)) == ((10, 5),)


def test_a_histogram_quantile_is_the_edge_of_the_bucket_that_holds_it() -> None:
    histogram = [(10, 50), (20, 0), (40, 49), (80, 1)]
    assert histogram_quantile(histogram, 0.5) == 10
    assert histogram_quantile(histogram, 0.51) == 40
    assert histogram_quantile(histogram, 0.99) == 40
    assert histogram_quantile(histogram, 1.0) == 80


def test_an_empty_histogram_has_quantile_zero() -> None:
    assert histogram_quantile([(10, 0), (20, 0)], 0.99) == 0


@given(latencies, st.floats(0.01, 1.0))
def test_a_histogram_quantile_is_never_below_the_samples_own(
    samples: list[int], quantile: float
) -> None:
    edges = [2**power for power in range(26)]
    counts = [0] * len(edges)
    for sample in samples:
        counts[next(index for index, edge in enumerate(edges) if sample <= edge)] += 1
    exact = float(np.quantile(samples, quantile, method="inverted_cdf"))
    found = histogram_quantile(list(zip(edges, counts, strict=True)), quantile)
    assert exact <= found <= max(1, 2 * exact)


@pytest.mark.feature("S0-132")
@given(latencies, st.sampled_from([50.0, 100.0, 250.0]))
def test_bins_hold_every_sample_and_sum_to_a_hundred_per_cent(
    samples: list[int], width_us: float
) -> None:
    bins = bins_of(np.asarray(samples, np.int64), width_us=width_us)
    assert sum(part.count for part in bins) == len(samples)
    assert sum(part.percent for part in bins) == pytest.approx(100.0)
    assert all(part.upper_us - part.lower_us == pytest.approx(width_us) for part in bins)


@pytest.mark.feature("S0-132")
def test_the_printed_lower_bound_histogram_is_reproduced_from_its_samples() -> None:
    # S0 Tab 8.1, its first seven bins, in thousandths of a per cent.
    printed = {200: 634, 300: 14_765, 400: 52_265, 500: 30_069, 600: 2_225, 700: 12, 800: 7}
    samples = [lower * 1_000 + 50_000 for lower, count in printed.items() for _ in range(count)]
    bins = bins_of(np.asarray(samples, np.int64), width_us=100.0)
    assert {round(part.lower_us): part.count for part in bins} == printed


def test_a_line_through_exact_points_is_found_and_explains_everything() -> None:
    line = line_through([1, 2, 3, 4], [10, 12, 14, 16])
    assert line.slope == pytest.approx(2)
    assert line.intercept == pytest.approx(8)
    assert line.r2 == pytest.approx(1)


def test_r2_falls_when_the_points_leave_the_line() -> None:
    assert line_through([1, 2, 3, 4], [10, 30, 5, 40]).r2 < 0.5


@pytest.mark.feature("S0-136")
def test_the_source_s_hop_table_has_the_slope_that_it_states() -> None:
    means = (0.644, 0.986, 1.371, 1.706, 2.083, 2.518, 2.823)  # S0 Tab 8.12, 40 variables.
    line = line_through(range(1, 8), means)
    assert line.slope == pytest.approx(0.360, abs=0.01)  # S0 Tab 8.14 states 0.360 on average.
    assert line.r2 > 0.99


@pytest.mark.feature("S0-133", "S3-85")
def test_function_8_1_is_the_load_of_a_loop_that_publishes_and_sleeps() -> None:
    assert published_events_per_ms(120, 0.0) == 120
    assert published_events_per_ms(120, 1.0) == 60
    assert published_events_per_ms(10, 4.0, sleep_ms=1.0) == pytest.approx(2)


def test_function_8_6_gives_the_throughput_that_the_source_measured() -> None:
    assert multicast_events_per_ms(9.392, 4) == pytest.approx(37.373, rel=0.01)  # S0 §8.5.


def test_function_8_8_gives_the_predictions_that_the_source_printed() -> None:
    # S0 Tabs 8.28-8.32 at 40 variables: published, halved, predicted.
    for published, halved, predicted in ((17.565, 0, 70.203), (17.641, 1, 61.696)):
        found = filtered_events_per_ms(published, 4, halved=halved)
        assert found == pytest.approx(predicted, rel=0.001)


def test_the_source_s_model_predicts_what_its_table_prints() -> None:
    assert model_mean_ms(7, 17.7) == pytest.approx(2.593, abs=0.02)  # S0 Tab 8.12, 40 variables.


@pytest.mark.feature("S3-84")
def test_warm_up_cuts_half_a_second_or_two_per_cent_whichever_is_longer() -> None:
    created_ns = np.arange(10_000, dtype=np.int64) * (NS_PER_S // 1_000)
    assert warm_up_count(created_ns) == 500
    assert warm_up_count(created_ns[:100_000] // 1_000) == 5_000
    assert warm_up_count(np.arange(10_000, dtype=np.int64) * NS_PER_S) == 200


@pytest.mark.feature("S3-84")
def test_warm_up_never_cuts_more_than_half() -> None:
    assert warm_up_count(np.zeros(7, np.int64)) == 3
    assert warm_up_count(np.zeros(0, np.int64)) == 0


@pytest.mark.feature("S3-84")
def test_the_interpreted_baseline_warms_up_longer() -> None:
    assert warm_up_s(REFERENCE, 5.0) > warm_up_s(CORE, 5.0) == warm_up_s(FLOOR_GSO, 5.0) > 0


def test_a_summary_carries_the_columns_of_the_sources_tables() -> None:
    summary = summary_of(np.asarray([1_000, 2_000, 3_000, 10_000], np.int64))
    assert (summary.count, summary.min_us, summary.max_us) == (4, 1.0, 10.0)
    assert summary.mean_us == pytest.approx(4.0)
    assert summary.p50_us == pytest.approx(2.5)
    assert summary_of(np.zeros(0, np.int64)).count == 0


def test_a_ratio_of_pairs_ignores_a_drift_that_both_share() -> None:
    assert median_ratio([10, 20, 40], [20, 40, 80]) == 0.5


def test_spread_is_relative_to_the_median() -> None:
    assert spread_percent([90, 100, 120]) == 30
    assert spread_percent([]) == 0
