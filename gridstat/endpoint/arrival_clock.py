"""A wall clock for arrivals that does not jump when the machine's clock is set.

Stamps come from other machines' wall clocks, so arrivals need wall time as well; but a clock that
is set, by mistake or on purpose, must not make every event late. After a jump the clock uses the
old or the new reading, whichever makes the next events look younger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FOLLOWED_NS_MAX: Final = 5_000_000
"""Largest difference between two readings that counts as slewing of a disciplined clock."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """Time at which a batch was taken, by both clocks, and the correction of this machine's wall
    times."""

    steady_ns: int
    wall_ns: int
    correction_ns: int = 0

    def arrived_ns(self, received_ns: int) -> int:
        """Return an event's arrival on the steady clock."""
        return self.steady_ns - (self.wall_ns - received_ns)

    def age_ns(self, created_ns: int, received_ns: int) -> int:
        """Return the age of an event at its arrival."""
        return received_ns + self.correction_ns - created_ns


class ArrivalClock:
    """Follows the wall clock as long as it moves with the steady clock."""

    def __init__(self, wall_ns: int, steady_ns: int) -> None:
        self._read_ns = wall_ns - steady_ns
        self._believed_ns = self._read_ns
        self.jumps = 0

    @property
    def correction_ns(self) -> int:
        """Correction of this machine's wall times; 0 unless a jump is not followed."""
        return self._believed_ns - self._read_ns

    def observe(self, wall_ns: int, steady_ns: int) -> None:
        """Compare both clocks, read at one instant."""
        read_ns = wall_ns - steady_ns
        moved_ns, self._read_ns = read_ns - self._read_ns, read_ns
        if abs(moved_ns) <= FOLLOWED_NS_MAX:
            self._believed_ns += moved_ns
        else:
            self.jumps += 1

    def settle(self, age_ns: int) -> None:
        """Note the age, by the machine's clock, of an event of good time quality."""
        if abs(age_ns) < abs(age_ns + self.correction_ns):
            self._believed_ns = self._read_ns
