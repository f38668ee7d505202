"""A whole country: a thousand clouds, twenty thousand routers, a million subscriptions.

Its traffic is that of neighbours: in each region of ten clouds every cloud subscribes to both
clouds beside it, and of every twenty pairs one reaches into the next region and one into the next
area. In each subscriber's cloud two applications take the same variables, so most variables have
four subscribers: two on either side.
"""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.tree_storms import TreeSubscribers, resident_bytes
from lab.national_grid import GridSize, national_grid

if TYPE_CHECKING:
    from benchmarks.experiments.experiment import Figure, Progress
    from benchmarks.tree_storms import Pair
    from lab.national_grid import NationalGrid

LEVELS: Final = 4
ROUTERS: Final = 20
APPLICATIONS: Final = 2
FAR_SHARE: Final = 18
"""One pair of so many possible ones, between regions and between areas."""
GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Country:
    """So many clouds, in regions of ten, in areas of ten regions."""

    clouds: int
    branching: int = 10
    subscriptions_per_cloud: int = 1_000

    @property
    def subscriptions(self) -> int:
        return self.subscriptions_per_cloud * self.clouds

    def measure(self, progress: Progress) -> dict[str, Figure]:
        """Lay out the country, start it, and let every cloud subscribe."""
        began_s, cpu_before_s = time.monotonic(), time.process_time()
        progress(0.0, f"laying out {self.clouds:,} clouds")
        size = GridSize(self.clouds, ROUTERS, levels=LEVELS, branching=self.branching)
        grid = national_grid(size)
        pairs = traffic(grid)
        progress(0.02, f"starting {grid.router_count:,} routers and their brokers")
        subscribers = TreeSubscribers(grid, grid.plan.clouds, APPLICATIONS)
        gc.collect()
        rest_bytes = resident_bytes()
        subscribers.publish(pairs, -(-self.subscriptions // (len(pairs) * APPLICATIONS)))
        storm = subscribers.storm(
            pairs,
            self.subscriptions,
            lambda done: progress(0.05 + 0.95 * done, f"{done:.1%} of {self.subscriptions:,}"),
        )
        variables = sum(subscribers.published.values())
        return {
            "full_clouds": len(grid.plan.clouds),
            "full_routers": grid.router_count,
            "full_subscriptions": storm.granted,
            "full_subscribers_per_variable": round(storm.granted / variables, 2),
            "full_clouds_crossed": round(storm.each(storm.clouds_crossed), 2),
            "full_subscriptions_per_s": round(storm.per_s, 1),
            "full_messages_per_subscription": round(storm.each(storm.tree_messages), 2),
            "full_memory_gib": round(storm.held_bytes / GIB, 3),
            "full_memory_bytes_per_subscription": round(storm.each(storm.held_bytes)),
            "full_rest_gib": round(rest_bytes / GIB, 3),
            "full_process_gib": round(resident_bytes() / GIB, 3),
            "full_cpu_minutes": round((time.process_time() - cpu_before_s) / 60, 2),
            "full_minutes": round((time.monotonic() - began_s) / 60, 2),
        }


def traffic(grid: NationalGrid) -> list[Pair]:
    """Return the pairs of publisher and subscriber, both ways; those in one region come first."""
    pairs: list[Pair] = []
    for level in range(LEVELS - 2, -1, -1):
        step = 1 if level == LEVELS - 2 else FAR_SHARE
        pairs += grid.neighbours(level)[::step]
    return [found for one, other in pairs for found in ((one, other), (other, one))]
