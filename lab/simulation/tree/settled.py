"""Trees whose brokers and routers are connected: recorded once, copied for each seed."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from lab.simulation.settled import copied, recorded
from lab.simulation.tree.grid import TreeGrid
from lab.simulation.tree.shapes import tree_plan
from lab.simulation.tree.swarm import Paces, TreeSwarm
from lab.simulation.world import NS_PER_S

if TYPE_CHECKING:
    from lab.simulation.tree.shapes import Outline

SETTLED_NS: Final = 4 * NS_PER_S
RECORDS_MAX: Final = 64


def settled_tree(swarm: TreeSwarm, *, bug: str = "") -> TreeGrid | None:
    """Return a copy for this seed, or None if such a tree does not start."""
    found = _record(swarm.outline, bug)
    if found is None:
        return None
    written, shared = found
    settings: dict[object, object] = {name: swarm.settings(name) for name in swarm.plan.brokers}
    grid = copied(written, {**shared, **settings})
    assert isinstance(grid, TreeGrid)
    return grid


@lru_cache(maxsize=RECORDS_MAX)
def _record(outline: Outline, bug: str) -> tuple[bytes, dict[object, object]] | None:
    """Record a settled tree; `bug` is only a key of the cache."""
    del bug
    grid = TreeGrid(calm(outline))
    try:
        grid.start()
        grid.world.run_until(SETTLED_NS)
    except Exception:  # The seed will meet the same failure and report it.
        return None
    return recorded(grid)


def calm(outline: Outline) -> TreeSwarm:
    """Return a swarm in which nothing happens but the start."""
    return TreeSwarm(seed=0, outline=outline, plan=tree_plan(outline), endpoints=(), paces=Paces())
