"""Cost of a subscription in grids of several sizes, and the power by which it grows.

`flat` has all clouds right below the root, `tree` ten to a broker, both with contracts between
neighbours: as many clouds on the way at every size. `far` is a tree of four levels with pairs drawn
over the whole grid: there ways grow longer with the grid, and each cloud on one does its own part.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from statistics import fmean, linear_regression, median
from typing import TYPE_CHECKING, Final

from benchmarks.tree_memory import bytes_at_rest, bytes_per_subscription
from benchmarks.tree_operations import messages_per_operation
from benchmarks.tree_storms import TreeSubscribers
from lab.grid_pairs import brokers_on, far_pairs
from lab.national_grid import GridSize, national_grid

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.experiments.experiment import Figure, Options, Progress
    from benchmarks.tree_storms import Pair, TreeStorm
    from lab.national_grid import NationalGrid

CHILDREN: Final = 10
FAR_LEVELS: Final = 4
FAR_TIMES: Final = 3
"""Factor of more pairs than neighbours have, since the lengths of ways differ."""


@dataclass(frozen=True, slots=True)
class Grown:
    """Positive amounts in grids of several sizes, and the power by which they grow."""

    sizes: tuple[int, ...]
    amounts: tuple[float, ...]

    @property
    def exponent(self) -> float:
        if len(self.sizes) < 2:
            return 0.0
        found = linear_regression(
            [log(one) for one in self.sizes], [log(amount) for amount in self.amounts]
        )
        return found.slope


@dataclass(frozen=True, slots=True)
class Sized:
    """Measurements of one grid; times and messages of each subscription."""

    clouds: int
    each_us: float
    first_us: float
    messages: float
    memory_bytes: float
    clouds_crossed: float
    brokers_crossed: float
    at_rest: dict[str, int]
    operations: dict[str, float]


def measure_growth(options: Options, progress: Progress) -> dict[str, Figure]:
    """Measure all kinds at all sizes."""
    sizes = options.wholes("clouds")
    found: dict[str, list[Sized]] = {"flat": [], "tree": [], "far": []}
    steps = [(kind, clouds) for kind in found for clouds in sizes]
    for at, (kind, clouds) in enumerate(steps):
        progress(at / len(steps), f"{clouds:,} clouds, {kind}")
        found[kind].append(_sized(options, kind, clouds))
    figures = _exponents(found)
    for kind, some in found.items():
        for one in some:
            figures |= _figures(kind, one)
    return figures


def storms_of(
    options: Options, subscribers: TreeSubscribers, pairs: Sequence[Pair]
) -> list[TreeStorm]:
    """Run as many storms as there are runs, each of new variables."""
    count = options.whole("subscriptions")
    storms = []
    for _ in range(options.whole("runs")):
        subscribers.publish(pairs, -(-count // len(pairs)))
        storms.append(subscribers.storm(pairs, count))
    return storms


def spread(pairs: Sequence[Pair], count: int) -> list[Pair]:
    """Return so many pairs, evenly from all."""
    step = max(1, len(pairs) // count)
    return list(pairs[::step][:count])


def _sized(options: Options, kind: str, clouds: int) -> Sized:
    grid, pairs = _layout(options, kind, clouds)
    subscribers = TreeSubscribers(grid, [cloud for pair in pairs for cloud in pair])
    at_rest = bytes_at_rest(subscribers)
    firsts = subscribers.firsts(pairs)
    storms = storms_of(options, subscribers, pairs)
    operations = messages_per_operation(subscribers, pairs) if kind == "tree" else {}
    return Sized(
        clouds=clouds,
        each_us=median(1e6 * storm.each(storm.cpu_s) for storm in storms),
        first_us=median(first.cpu_us for first in firsts),
        messages=storms[0].each(storms[0].tree_messages),
        memory_bytes=bytes_per_subscription(subscribers, pairs, options.whole("subscriptions")),
        clouds_crossed=fmean(len(first.clouds) for first in firsts),
        brokers_crossed=fmean(len(brokers_on(grid.plan, first.clouds)) for first in firsts),
        at_rest=at_rest,
        operations=operations,
    )


def _layout(options: Options, kind: str, clouds: int) -> tuple[NationalGrid, list[Pair]]:
    routers, count = options.whole("routers"), options.whole("pairs")
    if kind == "flat":
        grid = national_grid(GridSize(clouds, routers, levels=2))
        return grid, spread(grid.neighbours(0), count)
    if kind == "tree":
        grid = national_grid(GridSize(clouds, routers, levels=3, branching=CHILDREN))
        return grid, spread(grid.neighbours(1), count)
    grid = national_grid(GridSize(clouds, routers, levels=FAR_LEVELS))
    return grid, far_pairs(grid, FAR_TIMES * count)


def _exponents(found: dict[str, list[Sized]]) -> dict[str, Figure]:
    def power(kind: str, amount: Callable[[Sized], float]) -> float:
        some = found[kind]
        grown = Grown(tuple(one.clouds for one in some), tuple(amount(one) for one in some))
        return round(grown.exponent, 3)

    def worse(amount: Callable[[Sized], float]) -> float:
        return max(power("flat", amount), power("tree", amount))

    return {
        "growth_exponent_flat": power("flat", lambda one: one.each_us),
        "growth_exponent_tree": power("tree", lambda one: one.each_us),
        "growth_exponent_clouds": worse(lambda one: one.each_us),
        "growth_exponent_first": worse(lambda one: one.first_us),
        "growth_exponent_messages": worse(lambda one: one.messages),
        "growth_exponent_memory": worse(lambda one: one.memory_bytes),
        "growth_exponent_far": power("far", lambda one: one.each_us),
        "growth_exponent_far_messages": power("far", lambda one: one.messages),
        "growth_exponent_far_memory": power("far", lambda one: one.memory_bytes),
        "growth_exponent_clouds_crossed": power("far", lambda one: one.clouds_crossed),
        "growth_exponent_per_cloud_crossed": power(
            "far", lambda one: one.each_us / one.clouds_crossed
        ),
    }


def _figures(kind: str, one: Sized) -> dict[str, Figure]:
    end = f"{kind}_{one.clouds}"
    figures: dict[str, Figure] = {
        f"subscription_us_{end}": round(one.each_us, 1),
        f"first_subscription_us_{end}": round(one.first_us, 1),
        f"messages_{end}": round(one.messages, 2),
        f"memory_bytes_per_subscription_{end}": round(one.memory_bytes),
        f"memory_bytes_root_{end}": one.at_rest["root"],
    }
    if kind == "far":
        figures |= {
            f"clouds_crossed_{end}": round(one.clouds_crossed, 2),
            f"brokers_crossed_{end}": round(one.brokers_crossed, 2),
            f"us_per_cloud_crossed_{end}": round(one.each_us / one.clouds_crossed, 1),
        }
    if kind == "tree":
        figures |= {
            f"memory_bytes_per_leaf_broker_{one.clouds}": one.at_rest["leaf_broker"],
            f"memory_bytes_per_qos_broker_{one.clouds}": one.at_rest["qos_broker"],
        }
        figures |= {
            f"messages_per_{name}_{one.clouds}": round(count, 3)
            for name, count in one.operations.items()
        }
    return figures
