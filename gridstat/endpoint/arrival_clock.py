"""A wall clock for arrivals that does not jump when somebody sets the machine's.

Stamps come from other machines' wall clocks, so arrivals must be told in wall time as well; but a
clock that is set, by mistake or on purpose, must not make every event late. After a jump the old
or the new reading is believed, whichever makes the events that come next look younger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FOLLOWED_NS_MAX: Final = 5_000_000
"""Up to so much between two readings is taken for the slewing of a disciplined clock."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """When a batch was taken: both clocks, and what to add to wall times of this machine."""

    steady_ns: int
    wall_ns: int
    correction_ns: int = 0

    def arrived_ns(self, received_ns: int) -> int:
        """An event's arrival on the steady clock."""
        return self.steady_ns - (self.wall_ns - received_ns)

    def age_ns(self, created_ns: int, received_ns: int) -> int:
        """How old an event was when it arrived."""
        return received_ns + self.correction_ns - created_ns


class ArrivalClock:
    """Believes the wall clock's reading as long as it moves with the steady clock."""

    def __init__(self, wall_ns: int, steady_ns: int) -> None:
        self._read_ns = wall_ns - steady_ns
        self._believed_ns = self._read_ns
        self.jumps = 0

    @property
    def correction_ns(self) -> int:
        """What to add to this machine's wall times; 0 unless a jump is disbelieved."""
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
        """An event of good time quality has come, so old by the machine's clock."""
        if abs(age_ns) < abs(age_ns + self.correction_ns):
            self._believed_ns = self._read_ns
