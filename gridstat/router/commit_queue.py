"""Queue of table changes for the core: a single one is committed at once, many in few commits.

A commit costs the core a copy of the touched pages; a thousand subscriptions that arrive together
should pay that once. So after each commit the next waits, nine times as long as that one took:
commits never take more than a tenth of the time, and no change waits longer than 10 ms. A huge
change goes in several commits, so that the router serves its peers meanwhile.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gridstat.model.identifiers import VariableId

WAIT_NS_MAX: Final = 10_000_000
WAIT_NS_MIN: Final = 1_000_000
WAITS_PER_COST: Final = 9
VARIABLES_AT_ONCE_MAX: Final = 4_096
"""About a tenth of a second of work."""


class CommitQueue:
    """The variables touched since the last commit; empty means that nothing is due.

    The clock is any nanosecond counter that only grows.
    """

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._touched: dict[VariableId, None] = {}
        self._due_ns: int | None = None

    def touch(self, variable_ids: Iterable[VariableId]) -> None:
        self._touched.update(dict.fromkeys(variable_ids))

    def wait_ns(self) -> int | None:
        """Return the time until the next commit is due; None when there is nothing to commit."""
        if not self._touched:
            return None
        return 0 if self._due_ns is None else max(0, self._due_ns - self._clock_ns())

    def take_due(self) -> frozenset[VariableId]:
        """Return the variables to commit now, if the wait is over, and remove them."""
        if self.wait_ns() != 0:
            return frozenset()
        taken = frozenset(islice(self._touched, VARIABLES_AT_ONCE_MAX))
        for variable_id in taken:
            del self._touched[variable_id]
        return taken

    def take_all(self) -> frozenset[VariableId]:
        """Return all variables to commit, without waiting: at the start and at the end of a
        router."""
        taken = frozenset(self._touched)
        self._touched.clear()
        return taken

    def committed(self, *, began_ns: int) -> None:
        """Note a commit that began then and has ended now, and set when the next is due."""
        now_ns = self._clock_ns()
        wait_ns = (now_ns - began_ns) * WAITS_PER_COST
        self._due_ns = now_ns + min(max(wait_ns, WAIT_NS_MIN), WAIT_NS_MAX)
