"""Room on the paths that a contract has: would a higher rate fit there? Counted from the rows.

Latencies are not counted: where any contract has a tight one, more load may make it late, and
nobody is said to have room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lab.simulation.arithmetic import EVENT_BYTES, events_of, fits, scaled
from lab.simulation.modes import MODES
from lab.simulation.tree.properties.accounts import everys_in, rates_in, taken_by_rows, through

if TYPE_CHECKING:
    from fractions import Fraction

    from gridstat.model.cloud import EventChannel
    from lab.simulation.tree.grid import TreeGrid
    from lab.simulation.tree.properties.promises import Between

IN_AND_OUT: Final = 2


def has_room(grid: TreeGrid, found: Between, every: int) -> bool:
    """Return whether a contract of one quality could have this divisor on its present paths."""
    taken, channels = taken_by_rows(grid), _channels(grid)
    variable = found.granted.variable
    for mode in MODES:
        rates = rates_in(grid, taken, mode)
        for path in found.granted.paths:
            for piece in path.pieces:
                extras: list[int | Fraction] = [0]
                hops = zip(piece.routers, piece.channel_ids, strict=False)
                for router, number in hops:
                    terms = taken.get((router, number, int(variable.variable_id)), set())
                    everys = everys_in(terms, mode)
                    extra = events_of(variable, everys | {every}) - events_of(variable, everys)
                    extras.append(extra)
                    bandwidth = channels[piece.owner, number].bandwidth_bytes_per_s
                    load = (rates.get((router, number), 0) + extra) * EVENT_BYTES
                    if bandwidth and not fits(load, bandwidth):
                        return False
                for router in piece.routers:
                    events = through(grid, router, rates) + IN_AND_OUT * max(extras)
                    if events > scaled(_events_per_s_max(grid, router)):
                        return False
    return True


def _channels(grid: TreeGrid) -> dict[tuple[str, int], EventChannel]:
    plan = grid.swarm.plan
    return {
        (name, int(channel.channel_id)): channel
        for some in (plan.brokers, plan.clouds)
        for name, owner in some.items()
        for channel in owner.channels
    }


def _events_per_s_max(grid: TreeGrid, router: str) -> int:
    leaf = grid.leaf(router.partition("/")[0])
    assert leaf is not None
    return leaf.registry.routers[router].events_per_s_max
