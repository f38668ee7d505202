"""Delivered slots of a subscriber, compared with the slots that were due.

The slots of a subscription are known beforehand (every n-th one), so a hole between two deliveries
is exactly a loss, of any cause, without data from other processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gridstat.model.rate_law import slot_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.model.identifiers import VariableId
    from gridstat.model.rate_law import Period


@dataclass(frozen=True, slots=True)
class Expectation:
    """One variable of a subscription."""

    variable_id: VariableId
    period: Period
    every: int
    phase_ns: int = 0


@dataclass(slots=True)
class Tally:
    """The deliveries of one variable; `misplaced` are those in slots not subscribed to."""

    expectation: Expectation
    first_slot: int | None = None
    newest_slot: int = 0
    delivered: int = 0
    misplaced: int = 0
    newest_value: float = 0.0

    @property
    def lost(self) -> int:
        """Holes between the first and the newest slot."""
        if self.first_slot is None:
            return 0
        span = (self.newest_slot - self.first_slot) // self.expectation.every
        return span + 1 - (self.delivered - self.misplaced)

    def take(self, created_ns: int, value: float) -> None:
        expected = self.expectation
        slot = slot_of(created_ns, expected.period, expected.phase_ns)
        self.delivered += 1
        if slot % expected.every:
            self.misplaced += 1
            return
        if self.first_slot is None:
            self.first_slot = self.newest_slot = slot
        if slot >= self.newest_slot:
            self.newest_slot, self.newest_value = slot, value
        self.first_slot = min(self.first_slot, slot)


class Deliveries:
    """All tallies of one subscriber; events of other variables are not its concern."""

    def __init__(self, expectations: Iterable[Expectation]) -> None:
        self.tallies = {expected.variable_id: Tally(expected) for expected in expectations}

    def take(self, variable_id: VariableId, created_ns: int, *, value: float) -> None:
        tally = self.tallies.get(variable_id)
        if tally is not None:
            tally.take(created_ns, value)

    @property
    def delivered(self) -> int:
        return sum(tally.delivered for tally in self.tallies.values())

    @property
    def lost(self) -> int:
        return sum(tally.lost for tally in self.tallies.values())

    @property
    def misplaced(self) -> int:
        return sum(tally.misplaced for tally in self.tallies.values())


def slots_due(first_slot: int, last_slot: int, *, every: int) -> int:
    """Count the slots from first to last that a subscription at every n-th slot sees."""
    return max(0, last_slot // every - (first_slot - 1) // every)
