"""Budget of all searches for one transaction: its own, and those of its children.

A child is told how much is left with each `Reserve`, and tells what it has used with its answer.
"""

from __future__ import annotations

from typing import Final

from gridstat.broker.tree.path_planner import no_clock
from gridstat.model.paths.budget import STEPS_PER_S_MAX, Budget
from gridstat.model.paths.search import BUDGET_S

US_PER_S: Final = 1_000_000
SEARCH_S: Final = 2 * BUDGET_S
"""Time, by steps, of all searches for one transaction: as much as one request has in a cloud."""


def us_of(steps: int) -> int:
    """Return how many microseconds so many steps of a search count as."""
    return steps * US_PER_S // STEPS_PER_S_MAX


class SearchBudget:
    """Time that searches may still take, and time that they have taken, both by steps."""

    __slots__ = ("budget", "steps_charged", "steps_of_splits")

    def __init__(self) -> None:
        self.budget = Budget(no_clock, SEARCH_S)
        self.steps_of_splits = 0
        """Steps of children that looked for room by lowering others: counted, and not bounded."""
        self.steps_charged = 0
        """Steps that are charged already to the child from below which the request came."""

    @property
    def steps(self) -> int:
        """Steps of all searches so far, here and in the children."""
        return self.budget.steps + self.steps_of_splits

    @property
    def used_us(self) -> int:
        return us_of(self.steps)

    @property
    def left_us(self) -> int:
        return int(self.budget.left_s() * US_PER_S)

    def limit(self, search_us: int) -> None:
        """Leave no more time than the parent has told, before the first search."""
        self.budget = Budget(no_clock, min(SEARCH_S, search_us / US_PER_S))

    def searched_below(self, search_us: int, *, is_split: bool) -> None:
        """Note how long a child has searched; not even a faulty one has more than all the time."""
        steps = int(min(search_us / US_PER_S, SEARCH_S) * STEPS_PER_S_MAX)
        if is_split:
            self.steps_of_splits += steps
        else:
            self.budget.charge(steps)
