"""Kept results of checklist rows that promise a figure, as it was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.experiments.experiment import PER_ROUTER_US_MAX
from gridstat.model.qos import PRESETS
from tools.performance import known_misses, missed

RESULTS = Path(__file__).resolve().parents[3] / "benchmarks" / "results"
NOISE = 1.1
"""Ratio by which two equal runs may differ on a shared machine."""


def kept(name: str) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return figures


@pytest.mark.feature("S0-1", "S0-53")
@pytest.mark.parametrize("quantile", ["p50", "p90", "p99"])
def test_a_storm_of_subscriptions_slows_a_stream_no_more_than_a_bare_forwarder_beside_it(
    quantile: str,
) -> None:
    """The forwarder has no management plane at all: what slows it is the machine."""
    figures = kept("subscribe")
    assert figures["stream_lost"] == 0
    ours, bare = figures[f"stream_{quantile}_ratio"], figures[f"stream_floor_{quantile}_ratio"]
    assert ours <= max(1.0, bare) * NOISE


@pytest.mark.feature("S3-75")
@pytest.mark.parametrize("name", sorted(PRESETS))
def test_no_event_of_any_class_was_later_than_its_bound(name: str) -> None:
    figures, of = kept("subscribe"), f"class_{name.replace('-', '_')}"
    assert figures[f"{of}_bound_us"] == PRESETS[name].latency_us
    assert figures[f"{of}_events"] > 0
    assert figures[f"{of}_late"] == 0


@pytest.mark.feature("S0-50")
def test_what_was_measured_of_each_path_is_within_its_bound() -> None:
    figures = kept("subscribe")
    paths = figures["predicted_paths"]
    assert paths > 0
    assert figures["paths_within_bound"] == f"{paths} of {paths}"


@pytest.mark.feature("S3-100")
def test_sealing_a_router_s_channels_costs_no_millisecond() -> None:
    figures = kept("sealing")
    assert figures["evp_lone_p50_us"] <= PER_ROUTER_US_MAX
    assert figures["evp_lone_plain_p50_us"] > 0
    assert figures["lost"] == 0


NAMES = sorted(path.stem for path in RESULTS.glob("*.json"))
ATTACKS = {"access-rules", "forged-flood", "listeners", "rotations", "sealing", "storm"}
"""Experiments whose bounds are promises to those who run a grid."""


def test_the_experiments_of_attacks_have_kept_results_with_bounds() -> None:
    assert set(NAMES) >= ATTACKS
    for name in ATTACKS:
        assert any(field.endswith("_at_most") for field in kept(name)), name


@pytest.mark.parametrize("name", NAMES)
def test_each_bound_that_a_kept_result_misses_is_a_known_one(name: str) -> None:
    """A miss that was mended is known no longer."""
    assert set(missed(kept(name))) == known_misses().get(name, {}).keys()


@pytest.mark.parametrize("name", NAMES)
def test_the_flags_of_a_kept_result_say_what_its_figures_say(name: str) -> None:
    figures = kept(name)
    flagged = {field.removesuffix("_met") for field, flag in figures.items() if flag == "no"}
    assert {field for field in flagged if f"{field}_at_most" in figures} == set(missed(figures))
    limits = [field for field in figures if field.endswith("_at_most")]
    expected = ("no" if missed(figures) else "yes") if limits else None
    assert figures.get("bounds_met") == expected


def test_a_known_miss_is_one_of_a_kept_result_and_has_a_reason() -> None:
    assert known_misses().keys() <= set(NAMES)
    for reasons in known_misses().values():
        assert all(len(reason.split()) > 10 for reason in reasons.values())


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({"cost": 2.0, "cost_at_most": 2.0, "cost_met": "yes"}, []),
        ({"cost": 2.1, "cost_at_most": 2.0, "cost_met": "yes"}, ["cost"]),
        ({"cost": float("nan"), "cost_at_most": 2.0}, ["cost"]),
        ({"cost_at_most": 2.0}, ["cost"]),
    ],
)
def test_a_bound_is_missed_by_its_figure(figures: dict[str, Any], expected: list[str]) -> None:
    assert missed(figures) == expected


@pytest.mark.feature("S3-74")
def test_in_every_kept_result_a_router_s_mean_latency_is_at_most_a_millisecond() -> None:
    results = {path.stem: kept(path.stem) for path in RESULTS.glob("*.json")}
    told = {name: found for name, found in results.items() if "per_router_mean_us" in found}
    assert told.keys() >= {"base", "forwarding", "hops"}
    for name, figures in told.items():
        assert figures["per_router_mean_us"] <= PER_ROUTER_US_MAX, name
        assert figures["per_router_within_1_ms"] == "yes", name
