"""How much a search may take: time by the caller's clock, and steps so that it ends without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS_PER_S_MAX: Final = 400_000
"""A clock that stands still, as a simulator's does, must not let a search run for ever."""

STEPS_PER_LOOK: Final = 16


class Budget:
    """Once spent it stays spent."""

    __slots__ = ("_clock", "_ends_at_s", "_steps", "_steps_max", "was_spent")

    def __init__(self, clock: Callable[[], float], seconds: float) -> None:
        self._clock = clock
        self._ends_at_s = clock() + seconds
        self._steps = 0
        self._steps_max = int(seconds * STEPS_PER_S_MAX)
        self.was_spent = False

    def share(self, parts: int) -> Budget:
        """A budget of the time that is left, divided by so many."""
        return Budget(self._clock, max(0.0, self._ends_at_s - self._clock()) / parts)

    def is_spent(self, steps: int = 1) -> bool:
        """Count some steps; the clock is looked at now and then only."""
        before = self._steps // STEPS_PER_LOOK
        self._steps += steps
        if self._steps // STEPS_PER_LOOK != before:
            self.was_spent |= self._steps > self._steps_max or self._clock() >= self._ends_at_s
        return self.was_spent
