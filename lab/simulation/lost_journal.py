"""When journals are lost: the broker dies with all that it has written, and begins anew.

As `docs/operating/failures.md` says, no other process of the broker is alive then, and the next one
begins at a term above all that routers, children and the parent have heard of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lab.simulation.world import NS_PER_MS

if TYPE_CHECKING:
    from random import Random

LOST_SEEDS: Final = 6
LOST_REST: Final = 5
"""Remainder of the seeds, one in six, that lose a journal once or twice."""
LOSSES_MAX: Final = 2
LOST_NS_MIN: Final = 800 * NS_PER_MS
"""Time by which the first contracts exist."""


def draw_losses(random: Random, seed: int, chaos_ns: int) -> tuple[int, ...]:
    """Draw the times of the losses, none in most seeds."""
    if seed % LOST_SEEDS != LOST_REST:
        return ()
    count = random.randint(1, LOSSES_MAX)
    return tuple(sorted(random.randint(LOST_NS_MIN, chaos_ns) for _ in range(count)))
