"""Subscriptions in a grid whose layout is a power case of pandapower."""

from __future__ import annotations

from statistics import fmean, median
from typing import TYPE_CHECKING, Final

from benchmarks.errors import BenchmarkError
from benchmarks.tree_storms import TreeSubscribers
from lab.case_grid import grid_of_case
from lab.grid_pairs import far_pairs
from lab.national_grid import GridSize
from lab.power_case import read_power_case

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.experiments.experiment import Figure
    from benchmarks.tree_storms import Pair

LEVELS: Final = 3
CLOUDS_MIN: Final = 2


def measure_case(path: Path, *, routers: int, pairs: int, subscriptions: int) -> dict[str, Figure]:
    """Measure pairs of clouds drawn over the whole case, about so many buses to a cloud.

    Subscriptions that the case cannot carry are refused, and counted.
    """
    case = read_power_case(path)
    clouds = max(CLOUDS_MIN, len(case.buses) // routers)
    grid = grid_of_case(case, GridSize(clouds, levels=LEVELS if clouds > routers else 2))
    drawn = far_pairs(grid, pairs)
    subscribers = TreeSubscribers(grid, [cloud for pair in drawn for cloud in pair])
    granted, latencies_us, crossed = _granted(subscribers, drawn)
    if not granted:
        raise BenchmarkError(f"nothing was granted in case {case.name}", hint="take another case")
    subscribers.publish(granted, -(-subscriptions // len(granted)))
    storm = subscribers.storm(granted, subscriptions)
    return {
        "case": case.name,
        "case_buses": len(case.buses),
        "case_clouds": clouds,
        "case_routers": grid.router_count,
        "case_pairs": len(drawn),
        "case_pairs_refused": len(drawn) - len(granted),
        "case_latency_ms": round(median(latencies_us) / 1_000, 3),
        "case_latency_ms_max": round(max(latencies_us) / 1_000, 3),
        "case_clouds_crossed": round(fmean(crossed), 2),
        "case_subscriptions_per_s": round(storm.per_s, 1),
        "case_messages_per_subscription": round(storm.each(storm.tree_messages), 2),
    }


def _granted(
    subscribers: TreeSubscribers, pairs: list[Pair]
) -> tuple[list[Pair], list[int], list[int]]:
    """Return the pairs with a way, its predicted latency, and its number of clouds."""
    granted, latencies_us, crossed = [], [], []
    for pair in pairs:
        try:
            (first,) = subscribers.firsts([pair])
        except BenchmarkError:
            continue
        granted.append(pair)
        latencies_us.append(first.latency_us)
        crossed.append(len(first.clouds))
    return granted, latencies_us, crossed
