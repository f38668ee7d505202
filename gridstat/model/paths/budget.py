"""Budget of a search: time by the caller's clock, and steps in case the clock stands still."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS_PER_S_MAX: Final = 400_000
"""Maximum steps a second, since a simulator's clock stands still during a search."""

STEPS_PER_CLOCK_READ: Final = 16


class Budget:
    """Once spent, a budget stays spent."""

    __slots__ = ("_clock", "_ends_at_s", "_steps", "_steps_max", "was_spent")

    def __init__(self, clock: Callable[[], float], seconds: float) -> None:
        self._clock = clock
        self._ends_at_s = clock() + seconds
        self._steps = 0
        self._steps_max = int(seconds * STEPS_PER_S_MAX)
        self.was_spent = False

    def share(self, parts: int) -> Budget:
        """Return a budget of the remaining time divided by `parts`."""
        return Budget(self._clock, max(0.0, self._ends_at_s - self._clock()) / parts)

    def is_spent(self, steps: int = 1) -> bool:
        """Count some steps, and return whether the budget is spent; the clock is read rarely."""
        before = self._steps // STEPS_PER_CLOCK_READ
        self._steps += steps
        if self._steps // STEPS_PER_CLOCK_READ != before:
            self.was_spent |= self._steps > self._steps_max or self._clock() >= self._ends_at_s
        return self.was_spent
