"""Repairs of faults: what is broken now, and the time of its repair."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.simulation.world import NS_PER_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.simulation.world import World


class Mending:
    """Scheduled repairs; `stop` carries out all that are left."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._mending: dict[int, Callable[[], None]] = {}
        self._number = 0

    def after(self, low_ms: int, high_ms: int, mending: Callable[[], None]) -> None:
        self._number += 1
        self._mending[self._number] = mending
        after_ns = self._world.between(low_ms, high_ms) * NS_PER_MS
        self._world.after(after_ns, self._mend, self._number)

    def stop(self) -> None:
        for number in sorted(self._mending):
            self._mend(number)

    def _mend(self, number: int) -> None:
        mending = self._mending.pop(number, None)
        if mending is not None:
            mending()
