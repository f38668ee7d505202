"""Run of each experiment with real processes and tiny parameters; no check of times."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import pytest

from benchmarks.experiments import EXPERIMENTS
from benchmarks.experiments.experiment import Figure, Result, per_router_figures
from benchmarks.experiments.latency_law import KEPT_SHARE, law_of, measurements_in
from benchmarks.experiments.throughput import Step
from benchmarks.statistics import Summary
from gridstat.model.errors import LayoutError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.cluster


THROUGH_ROUTERS = {"base", "hops", "load", "lower-bound", "multicast", "rate-filter", "throughput"}
"""Experiments that measure routers and report whether the mean latency is within its bound."""


def _run(name: str, options: Mapping[str, Figure]) -> Result:
    told: list[float] = []

    def progress(share: float, what: str) -> None:
        assert what
        told.append(share)

    result = EXPERIMENTS[name].run(options, progress)
    assert told == sorted(told)
    assert told[-1] == 1.0
    line = json.loads(json.dumps(result.figures))
    assert all(isinstance(value, int | float | str) for value in line.values())
    assert result.table
    if name in THROUGH_ROUTERS:
        assert result.figures["per_router_within_1_ms"] in ("yes", "no")
    return result


def _assert_positive(figures: Mapping[str, Figure], *names: str) -> None:
    for name in names:
        value = figures[name]
        assert isinstance(value, int | float), (name, value)
        assert math.isfinite(value), (name, value)
        assert value > 0, (name, value)


@pytest.mark.feature("S3-74")
def test_forwarding_measures_streams_and_lone_events_without_loss() -> None:
    cells = "single,packed,lone,fanout,reference"
    result = _run("forwarding", {"runs": 1, "seconds": 0.1, "only": cells})
    figures = result.figures
    _assert_positive(figures, "single_cpu_us", "single_floor_cpu_us", "packed_events_per_s")
    _assert_positive(figures, "lone_p50_us", "lone_p99_us", "lone_floor_p50_us", "fanout_per_s")
    # A floor that waited for a busy machine may be so slow that a ratio rounds to 0.
    for ratio in ("single_ratio_to_floor", "lone_ratio_to_floor"):
        assert math.isfinite(float(figures[ratio])), ratio
    _assert_positive(figures, "reference_events_per_s", "per_router_mean_us")
    assert figures["per_router_within_1_ms"] in ("yes", "no")
    assert (figures["lost"], figures["policed"], figures["runs"]) == (0, 0, 1)


def test_forwarding_measures_pmus_saturation_and_the_way_without_offload() -> None:
    cells = "pmu_gso,pmu_sep,pmu_aligned,nooffload,saturated"
    figures = _run("forwarding", {"runs": 1, "seconds": 0.1, "only": cells}).figures
    _assert_positive(figures, "pmu_gso_cpu_percent", "pmu_gso_p50_ratio", "pmu_sep_cpu_ratio")
    _assert_positive(figures, "pmu_sep_p50_ratio", "pmu_aligned_p50_us", "pmu_aligned_p99_us")
    _assert_positive(figures, "slow_p99_us", "alert_p99_us")
    without = figures["nooffload_packed_cpu_us"]
    assert str(without).startswith("not measured: ") or float(without) > 0
    assert (figures["lost"], figures["policed"]) == (0, 0)


def test_changes_lose_nothing_double_nothing_and_take_effect() -> None:
    options: dict[str, Figure] = {"rows": 5_000, "seconds": 1.0, "single_changes": 50}
    figures = _run("changes", options).figures
    _assert_positive(figures, "change_ms", "loaded_change_ms", "events_per_s", "changes")
    for name in ("changes_lost", "changes_duplicated", "changes_ineffective", "policed"):
        assert figures[name] == 0, name
    assert isinstance(figures["rss_growth_kib"], int)


@pytest.mark.feature("S0-136")
def test_hops_fits_a_line_and_sets_it_beside_the_raw_forwarders() -> None:
    options: dict[str, Figure] = {"runs": 1, "seconds": 0.1, "routers": "1,2", "loads": "0"}
    result = _run("hops", {**options, "kinds": "core,single"})
    for name in ("slope_us", "r2", "single_slope_us", "single_r2", "slope_ratio", "load0_mean_r2"):
        assert isinstance(result.figures[name], float), name
    assert [row[:2] for row in result.table] == [("core", "0"), ("single", "0")]
    assert (result.figures["lost"], result.figures["policed"]) == (0, 0)


@pytest.mark.feature("S0-136", "S3-80", "S3-86")
def test_hops_under_load_has_the_sources_figures_beside_its_own() -> None:
    options: dict[str, Figure] = {"runs": 1, "seconds": 0.1, "routers": "1,2", "loads": "40"}
    result = _run("hops", {**options, "kinds": "core"})
    for name in ("load40_mean_slope_us", "load40_mean_r2"):
        assert isinstance(result.figures[name], float), name
    printed = {(item.source, item.figure): item for item in result.comparisons}
    beside = printed["S0 Tab 8.12", "load40_routers2_mean_us"]
    assert (beside.theirs, beside.comparable) == (986, "no")
    assert beside.reason
    assert (result.figures["lost"], result.figures["policed"]) == (0, 0)


@pytest.mark.feature("S3-80")
def test_hops_covers_the_lengths_and_loads_of_both_sources() -> None:
    defaults = {each.name: each.default for each in EXPERIMENTS["hops"].parameters}
    assert defaults["routers"] == "1,2,3,4,5,6,7"
    assert set(str(defaults["loads"]).split(",")) >= {"0", "40", "80", "120"}


@pytest.mark.feature("S3-86")
def test_multicast_delivers_every_load_event_at_every_router() -> None:
    options: dict[str, Figure] = {
        "runs": 1,
        "seconds": 0.1,
        "routers": "4",
        "loads": "20",
        "kinds": "core,single",
    }
    result = _run("multicast", options)
    assert result.figures["load20_routers4_drop_percent"] == 0
    _assert_positive(result.figures, "load20_routers4_mean_us", "load20_routers4_received_per_ms")
    cpu = dict(zip(result.columns, result.table[0], strict=True))["CPU %"]
    assert len(cpu.split(" / ")) == 4
    assert (result.figures["lost"], result.figures["policed"]) == (0, 0)


def test_rate_filter_counts_exactly_the_deliveries_that_the_law_predicts() -> None:
    options: dict[str, Figure] = {
        "runs": 1,
        "seconds": 0.1,
        "loads": "20",
        "halved": "1,4",
        "kinds": "core",
    }
    figures = _run("rate-filter", options).figures
    _assert_positive(figures, "deliveries_due")
    assert figures["deliveries_counted"] == figures["deliveries_due"]
    assert (figures["lost"], figures["policed"]) == (0, 0)


@pytest.mark.feature("S3-82", "S3-86")
def test_throughput_climbs_and_reports_cpu_and_loss_at_each_step() -> None:
    options: dict[str, Figure] = {"runs": 1, "seconds": 0.1, "steps": "1,20", "kinds": "core"}
    result = _run("throughput", options)
    steps = [dict(zip(result.columns, row, strict=True)) for row in result.table]
    assert [step["thousands/s"] for step in steps] == ["1", "20"][: len(steps)]
    assert all(float(step["CPU %"]) > 0 and int(step["lost"]) >= 0 for step in steps)
    assert any(item.source == "S3 Fig 5.27" for item in result.comparisons)


@pytest.mark.feature("S3-82")
def test_throughput_ramps_by_a_thousand_a_second_to_where_the_source_ended() -> None:
    defaults = {each.name: each.default for each in EXPERIMENTS["throughput"].parameters}
    steps = [int(step) for step in str(defaults["steps"]).split(",")]
    assert steps[:16] == list(range(1, 17))
    assert steps[-1] > 1_000


@pytest.mark.parametrize(
    ("lost", "mean_us", "achieved_per_s", "reason"),
    [
        (0, 40.0, 990.0, ""),
        (3, 40.0, 990.0, "loss"),
        (0, 20_000.0, 500.0, "latency"),
        (0, 40.0, 900.0, "the load's sender"),
    ],
)
def test_a_step_of_the_ramp_says_what_gave_way(
    lost: int, mean_us: float, achieved_per_s: float, reason: str
) -> None:
    latencies = Summary(1, mean_us, 0, 0, 0, 0, 0, 0, 0)
    step = Step(latencies, 5.0, 1_000.0, achieved_per_s, lost, policed=0)
    assert step.saturated_by == reason
    assert step.is_saturated == bool(reason)


@pytest.mark.feature("S0-132")
def test_the_lower_bound_is_a_histogram_that_sums_to_a_hundred_per_cent() -> None:
    result = _run("lower-bound", {"runs": 1, "seconds": 0.3, "kinds": "core"})
    for routers in ("1", "2"):
        shares = [float(row[-1]) for row in result.table if row[1] == routers]
        assert sum(shares) == pytest.approx(100.0, abs=0.01 * len(shares))
    _assert_positive(result.figures, "load0_routers1_local_p50_us", "load0_routers2_mean_us")


@pytest.mark.feature("S0-133")
def test_load_sets_the_generator_s_rate_beside_its_formula() -> None:
    result = _run("load", {"runs": 1, "seconds": 0.1, "loads": "10", "kinds": "core"})
    row = dict(zip(result.columns, result.table[0], strict=True))
    # The formula counts a sleep of exactly 1 ms; a real sleep is never shorter.
    assert 0 < float(row["published"]) <= float(row["by Function 8.1"]) * 1.01
    assert result.figures["lost"] == 0


@pytest.mark.feature("S3-74")
def test_the_flag_of_one_millisecond_per_router_is_computed_from_the_mean() -> None:
    assert per_router_figures(1_000.0)["per_router_within_1_ms"] == "yes"
    assert per_router_figures(1_000.1)["per_router_within_1_ms"] == "no"


def test_an_unknown_parameter_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownName) as caught:
        EXPERIMENTS["hops"].run({"hops": 3}, lambda _share, _what: None)
    assert "routers" in caught.value.hint


def test_a_parameter_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(LayoutError):
        EXPERIMENTS["hops"].run({"runs": "many"}, lambda _share, _what: None)
    with pytest.raises(UnknownName):
        EXPERIMENTS["forwarding"].run({"only": "everything"}, lambda _share, _what: None)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("tree", {"clouds": "0"}),
        ("tree", {"clouds": "10,1"}),
        ("tree", {"clouds": ""}),
        ("tree", {"clouds": "9" * 5_000}),
        ("tree", {"runs": 0}),
        ("tree", {"pairs": 0}),
        ("tree", {"branching": 1}),
        ("tree", {"routers": 2}),
        ("tree", {"subscriptions": 1}),
        ("tree", {"takeovers": -1}),
        ("tree", {"full": 1, "full_clouds": 1}),
        ("forwarding", {"seconds": 0}),
        ("forwarding", {"seconds": "nan"}),
        ("changes", {"per_s": "inf"}),
        ("hops", {"routers": "0"}),
        ("recovery", {"trials": 0}),
        ("subscribe", {"clients": 0}),
        ("pipeline", {"rows": 0}),
    ],
)
def test_a_number_with_which_nothing_can_be_measured_is_refused_at_once(
    name: str, options: dict[str, Figure]
) -> None:
    begun: list[str] = []
    with pytest.raises(LayoutError) as caught:
        EXPERIMENTS[name].run(options, lambda _share, what: begun.append(what))
    assert next(reversed(options)) in str(caught.value)
    assert caught.value.hint
    assert begun == []


@pytest.mark.timeout(240)
def test_subscribe_grants_everything_and_ends_with_equal_digests() -> None:
    options: dict[str, Figure] = {
        "runs": 1,
        "subscriptions": 40,
        "clients": 2,
        "ring": 1,
        "outstanding": 2,
        "many": 5,
        "lone": 4,
        "stream": 0.5,
        "seconds": 1.0,
        "allocations": 6,
        "allocation_routers": 20,
    }
    figures = _run("subscribe", options).figures
    _assert_positive(figures, "subscriptions_per_s", "many_subscriptions_per_s", "broker_cpu_ms")
    _assert_positive(figures, "fsync_ms_p50", "allocate_ms_p50", "prediction_error_p50")
    _assert_positive(figures, "lone_ms_p50", "lone_ms_p99", "requests_per_commit")
    assert (figures["subscriptions"], figures["subscription_failures"]) == (40, 0)
    assert figures["digests_equal_after_storms"] == "4 of 4"
    assert figures["routers_in_step"] == "4 of 4"
    assert (figures["predicted_paths"], figures["predicted"]) == (4, "p90")
    _assert_positive(figures, "floor_p90_us_p50", "latency_ratio_to_floor_p50")
    _assert_positive(
        figures, "stream_events_before", "stream_p50_us_before", "stream_floor_p50_us_before"
    )
    assert figures["stream_lost"] == 0
    for name, paths in (("protection", 2), ("wide_area", 2), ("control_centre", 1)):
        assert figures[f"class_{name}_paths"] == paths
        assert int(figures[f"class_{name}_predicted_us"]) <= int(figures[f"class_{name}_bound_us"])
        _assert_positive(figures, f"class_{name}_events", f"class_{name}_p90_us")


@pytest.mark.timeout(240)
def test_access_rules_sets_a_cloud_with_many_rules_beside_one_with_a_single_rule() -> None:
    wishes: dict[str, Figure] = {"runs": 1, "rules": 50, "subscriptions": 16, "edges": 2, "ring": 1}
    result = _run("access-rules", wishes)
    figures = result.figures
    _assert_positive(figures, "subscriptions_per_s", "one_rule_subscriptions_per_s")
    _assert_positive(figures, "own_subscriptions_per_s")
    assert (figures["rules"], figures["subscriptions"], figures["failures"]) == (50, 16, 0)
    assert [bound.figure for bound in result.bounds] == ["loss", "loss_own", "failures"]


@pytest.mark.timeout(240)
def test_listeners_attacks_broker_and_router_with_connections_that_are_there() -> None:
    wishes: dict[str, Figure] = {
        "half_open": 20,
        "handshakes_per_s": 20,
        "seconds": 1.0,
        "after_s": 0.0,
    }
    figures = _run("listeners", wishes).figures
    for files in ("", "files_256_"):
        assert (figures[f"{files}half_open_made"], figures[f"{files}half_open_missing"]) == (20, 0)
        assert figures[f"{files}broker_health_failures"] == 0
        assert figures[f"{files}router_health_failures"] == 0
        _assert_positive(figures, f"{files}handshakes_made_per_s", f"{files}attached")


@pytest.mark.timeout(240)
@pytest.mark.feature("S3-77")
def test_base_sets_a_cloud_beside_raw_hops() -> None:
    result = _run("base", {"runs": 1, "seconds": 0.5})
    figures = result.figures
    for source in ("s0", "s3"):
        for kind in ("", "_single", "_core", "_reference"):
            for field in ("mean_us", "min_us", "max_us", "sd_us"):
                _assert_positive(figures, f"{source}{kind}_{field}")
        _assert_positive(figures, f"{source}_local_mean_us", f"{source}_latency_ratio_to_floor")
    _assert_positive(figures, "latency_ratio_to_floor")
    assert figures["lost"] == 0
    kinds = [row[2] for row in result.table]
    assert kinds == ["cloud", "single", "core", "reference"] * 2
    assert all(": " in row[-1] for row in result.table)
    printed = {item.figure: item for item in result.comparisons}
    assert (printed["s0_mean_us"].theirs, printed["s0_mean_us"].comparable) == (419, "no")
    assert (printed["s3_mean_us"].theirs, printed["s3_mean_us"].comparable) == (152, "no")


@pytest.mark.timeout(240)
@pytest.mark.feature("S0-135")
def test_the_law_of_latency_is_fitted_on_chains_and_rings_and_keeps_what_it_was_fitted_on() -> None:
    options: dict[str, Figure] = {
        "runs": 1,
        "seconds": 0.5,
        "routers": "1,2",
        "loads": "0,10",
        "edges": 2,
    }
    figures = _run("latency-law", options).figures
    cells = measurements_in(str(figures["measurements"]))
    assert {routers for routers, _, _ in cells} >= {1, 2}
    assert sum(map(len, cells.values())) == 2 * 2 + 4
    assert float(figures["fit_predictions_kept"]) >= KEPT_SHARE
    _assert_positive(figures, "routers1_p90_us", "floor_routers1_p90_us", "floor_routers2_p90_us")
    assert law_of(cells).hop_us == pytest.approx(float(figures["fit_hop_us"]), rel=0.01, abs=0.01)
