"""Budget of a search: time by the caller's clock, and steps in case the clock stands still."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS_PER_S_MAX: Final = 400_000
"""Steps a second that are assumed where the clock stands still: in brokers and simulators.

A step is one router or label that a search settles, so that the same request always has the same
answer, whatever the machine does beside.
"""

STEPS_PER_CLOCK_READ: Final = 16


class Budget:
    """Once spent, a budget stays spent. A share spends of the whole too."""

    __slots__ = ("_clock", "_ends_at_s", "_steps_max", "_whole", "steps", "was_spent")

    def __init__(
        self, clock: Callable[[], float], seconds: float, *, whole: Budget | None = None
    ) -> None:
        self._clock = clock
        self._ends_at_s = clock() + seconds
        self._steps_max = int(seconds * STEPS_PER_S_MAX)
        self._whole = whole
        self.steps = 0
        self.was_spent = False

    def left_s(self) -> float:
        """Return the time that is left, by the clock or by the steps, whichever is less."""
        by_steps_s = (self._steps_max - self.steps) / STEPS_PER_S_MAX
        return max(0.0, min(self._ends_at_s - self._clock(), by_steps_s))

    def share(self, parts: int) -> Budget:
        """Return a budget of the remaining time divided by `parts`."""
        return Budget(self._clock, self.left_s() / parts, whole=self)

    def at_most(self, seconds: float) -> Budget:
        """Return a budget of the remaining time, or of so many seconds if that is less."""
        return Budget(self._clock, min(self.left_s(), seconds), whole=self)

    def is_spent(self, steps: int = 1) -> bool:
        """Count some steps, and return whether the budget is spent; the clock is read rarely."""
        before = self.steps // STEPS_PER_CLOCK_READ
        self.steps += steps
        if self.steps // STEPS_PER_CLOCK_READ != before:
            self.was_spent |= self.steps > self._steps_max or self._clock() >= self._ends_at_s
        if self._whole is not None:
            self._whole.charge(steps)
        return self.was_spent

    def charge(self, steps: int) -> None:
        """Count some steps; whether the budget is spent is looked at later."""
        self.steps += steps
        self.was_spent |= self.steps > self._steps_max
        if self._whole is not None:
            self._whole.charge(steps)
