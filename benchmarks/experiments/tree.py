"""Subscriptions between clouds: their cost in trees of two to four levels, and its growth.

The management plane runs alone, in this process: real leaf and QoS brokers, connected directly,
journals in memory, routers that confirm their orders. Times are processor time of all brokers on
the way together, so a plane with a processor a broker does as many a second at each of them, or
more. Takeovers are real: processes, a database, and a broker that is killed.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.experiments.experiment import (
    Bound,
    Experiment,
    Figure,
    Options,
    Parameter,
    Progress,
    Result,
)
from benchmarks.machine import MachineWatch
from benchmarks.tree_case import measure_case
from benchmarks.tree_country import Country
from benchmarks.tree_growth import measure_growth, spread, storms_of
from benchmarks.tree_memory import bytes_per_subscription
from benchmarks.tree_operations import messages_per_operation
from benchmarks.tree_storms import TreeSubscribers
from benchmarks.versions import AGAINST, PAIRS, compared
from lab.national_grid import GridSize, national_grid
from lab.stand_by import measure_takeover

if TYPE_CHECKING:
    from collections.abc import Mapping

LEVELS: Final = (2, 3, 4)
USUAL_LEVELS: Final = 3
"""Levels of the tree in which all kinds of operations, and memory, are counted."""
AGAINST_CLOUDS: Final = 10
"""Size of the grids beside another checkout, besides the trees of two to four levels."""
AGAINST_SAME: Final = ("subscriptions", "branching", "routers", "pairs")
AGAINST_COSTS: Final = {
    **{f"subscription_depth{levels}": f"1/subscriptions_per_s_depth{levels}" for levels in LEVELS},
    "first_subscription": "first_subscription_us",
}
"""Costs that are compared with another checkout: names of ratios, and their figures."""
TABLED: Final = (
    "subscription_us_",
    "growth_exponent_",
    "messages_far_",
    "clouds_crossed_",
    "case_",
    "full_",
    "takeover_",
)


def measure(options: Options, progress: Progress) -> Result:
    """Measure depths first, then sizes, then a power case and, with `full`, a whole country."""
    watch = MachineWatch()
    share = 0.25 if options.whole("full") else 1.0
    figures = _depths(options, lambda done, what: progress(0.2 * share * done, what))
    figures |= measure_growth(
        options, lambda done, what: progress(share * (0.2 + 0.75 * done), what)
    )
    if options.text("case"):
        progress(0.95 * share, f"a grid of {options.text('case')}")
        figures |= measure_case(
            Path(options.text("case")),
            routers=options.whole("routers"),
            pairs=options.whole("pairs"),
            subscriptions=options.whole("subscriptions"),
        )
    if options.whole("full"):
        country = Country(options.whole("full_clouds"))
        figures |= country.measure(lambda done, what: progress(share + 0.74 * done, what))
    figures |= _takeovers(options.whole("takeovers"))
    bounds: tuple[Bound, ...] = ()
    if options.text("against"):
        compared_figures, bounds = compared(
            "tree",
            options.text("against"),
            {name: options.values[name] for name in AGAINST_SAME}
            | {"runs": 1, "clouds": AGAINST_CLOUDS, "takeovers": 0},
            AGAINST_COSTS,
            options.whole("against_pairs"),
            lambda done, what: progress(0.99 + 0.01 * done, what),
        )
        figures |= compared_figures
    progress(1.0, "done")
    figures |= {**watch.figures(), "runs": options.whole("runs")}
    return Result(
        figures=figures,
        title="subscriptions between clouds",
        columns=("figure", "value"),
        table=_table(figures),
        bounds=bounds,
    )


def _takeovers(count: int) -> dict[str, Figure]:
    """Return the longest time from the kill of a broker to the first grant of its stand-by."""
    if not count:
        return {}
    took_s = [measure_takeover() for _ in range(count)]
    return {"takeover_s": round(max(took_s), 2), "takeover_s_median": round(median(took_s), 2)}


def _depths(options: Options, progress: Progress) -> dict[str, Figure]:
    """Measure trees of each depth: owner at the root, ends in neighbouring branches below it."""
    figures: dict[str, Figure] = {}
    branching = options.whole("branching")
    for at, levels in enumerate(LEVELS):
        progress(at / len(LEVELS), f"a tree of {levels} levels")
        size = GridSize(
            branching ** (levels - 1), options.whole("routers"), levels=levels, branching=branching
        )
        grid = national_grid(size)
        pairs = spread(grid.neighbours(0), options.whole("pairs"))
        subscribers = TreeSubscribers(grid, [cloud for pair in pairs for cloud in pair])
        first_us = round(median(first.cpu_us for first in subscribers.firsts(pairs)), 1)
        storms = storms_of(options, subscribers, pairs)
        storm = storms[0]
        messages = round(storm.each(storm.tree_messages), 2)
        figures |= {
            f"subscriptions_per_s_depth{levels}": round(median(one.per_s for one in storms), 1),
            f"first_subscription_us_depth{levels}": first_us,
            f"messages_per_subscription_depth{levels}": messages,
        }
        if levels == USUAL_LEVELS:
            memory = bytes_per_subscription(subscribers, pairs, options.whole("subscriptions"))
            figures |= {
                "first_subscription_us": first_us,
                "messages_per_subscription": messages,
                "router_messages_per_subscription": round(storm.each(storm.router_messages), 2),
                "memory_bytes_per_subscription": round(memory),
                "journal_bytes_per_subscription": round(storm.each(storm.journal_bytes)),
            }
            figures |= {
                f"messages_per_{name}": round(count, 3)
                for name, count in messages_per_operation(subscribers, pairs).items()
            }
    return figures


def _table(figures: Mapping[str, Figure]) -> tuple[tuple[str, str], ...]:
    """Return the rows for people; the JSON line has all figures."""
    return tuple(
        (name.replace("_", " "), f"{value:,}" if isinstance(value, int | float) else value)
        for name, value in figures.items()
        if name.startswith(TABLED) or "per_s_" in name or name.endswith("_ratio")
    )


TREE = Experiment(
    name="tree",
    summary="subscriptions between clouds, by the depth of the tree and the number of clouds",
    parameters=(
        Parameter("runs", 3, "storms in each grid", least=1),
        Parameter("subscriptions", 960, "subscriptions of one storm", least=12),
        Parameter(
            "clouds", "10,100,1000", "sizes of the grids in which the growth is measured", least=2
        ),
        Parameter(
            "branching", 4, "children of each broker in the trees of two to four levels", least=2
        ),
        Parameter("routers", 10, "routers of each cloud", least=3),
        Parameter("pairs", 4, "pairs of neighbours between which there are subscriptions", least=1),
        Parameter("takeovers", 3, "brokers killed beside a stand-by"),
        Parameter("case", "", "a file of pandapower.to_json, to lay a grid out from it too"),
        Parameter("full", 0, "1,000 clouds, 20,000 routers, 1,000,000 subscriptions too; or 0"),
        Parameter("full_clouds", 1_000, "a smaller country, of 20 routers a cloud", least=2),
        AGAINST,
        PAIRS,
    ),
    measure=measure,
)
