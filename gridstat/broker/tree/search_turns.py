"""Search time of a broker above clouds: charged to the contract, and shared among the children.

The steps of all searches for a contract are counted in its transaction: those made here, and those
that children report with their answers. The sum is told with the grant or the refusal, and the
cloud of the subscriber charges it to the subscriber (ADR-0032).

That cloud may be of an earlier release, or count nothing. So each child also has a part of this
broker's time for the contracts that are asked for below it. While it has used it up, its further
requests wait here, and those of other children do not.

    planned --its child has used up its part--> waiting
    waiting --the child has time again--> planned
    waiting --for longer than `WAIT_NS_MAX`, or with too many others--> refused

Restart. Nothing is durable: a cloud repeats its open requests when it joins.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from gridstat.broker.requests.outcomes import refused
from gridstat.broker.requests.search_times import SearchTimes
from gridstat.broker.tree.search_budget import us_of
from gridstat.broker.tree.transaction import Purpose
from gridstat.model.errors import QuotaReached
from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.tree.transaction import Transaction
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.net.command.endpoint_messages import RefusedOutcome

SEARCH_TURN_TIMER: Final = "search-turn"
CHILD_PARTS: Final = 4
"""Parts of the broker's time of which one child may use one for searches."""
CHILD_BURST_NS: Final = NS_PER_S
"""Search time of a child that may be used at once after a pause."""
WAIT_NS_MAX: Final = 5 * NS_PER_S
"""Longest wait for search time; a cloud gives a request up after some seconds."""
WAITING_MAX: Final = 1_024
"""Requests from below one child that may wait."""


class _Waiting(NamedTuple):
    """Request that waits for search time: how to go on, or how to refuse it."""

    until_ns: int
    go_on: Callable[[], None]
    refuse: Callable[[RefusedOutcome], None]


class SearchTurns:
    """Search time that each child has left, and the requests that wait for it."""

    def __init__(self, context: TreeContext) -> None:
        self._context = context
        self.times = SearchTimes(CHILD_PARTS, CHILD_BURST_NS)
        self._waiting: dict[str, deque[_Waiting]] = {}
        self._used_us: dict[str, int] = {}
        """Time that the searches for a contract have taken, until its cloud is told."""

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def charge(self, transaction: Transaction) -> None:
        """Charge what a transaction has searched since the last call to the child that asked."""
        search = transaction.search
        steps = search.steps - search.steps_charged
        if not steps or transaction.purpose is not Purpose.CONTRACT:
            return
        contract = transaction.key[0]
        self._used_us[contract] = search.used_us
        child = self._context.state.families.child_of(contract.partition("#")[0]) or ""
        is_again = search.steps_charged > 0
        search.steps_charged += steps
        took_ns = us_of(steps) * 1_000
        self.times.use(child, took_ns, self._context.now_ns, is_again=is_again)

    def take_used_us(self, contract: str) -> int:
        """Return what the searches for a request have taken; once, as it is charged once."""
        return self._used_us.pop(contract, 0)

    def plan(
        self, child: str, go_on: Callable[[], None], refuse: Callable[[RefusedOutcome], None]
    ) -> None:
        """Go on with a request from below a child as soon as the child has search time left."""
        line = self._waiting.setdefault(child, deque())
        now_ns = self._context.now_ns
        until_ns = now_ns + WAIT_NS_MAX
        ready_ns = self.times.ready_ns(child, now_ns)
        if not line and ready_ns <= now_ns:
            del self._waiting[child]
            go_on()
        elif len(line) >= WAITING_MAX or ready_ns > until_ns:
            refuse(self._refusal(child))
            if not line:
                del self._waiting[child]
        else:
            line.append(_Waiting(until_ns, go_on, refuse))
            self._set_timer()

    def serve_waiting(self) -> None:
        """Go on with what may be planned now, and refuse what has waited too long."""
        now_ns = self._context.now_ns
        for child, line in list(self._waiting.items()):
            while line:
                if line[0].until_ns <= now_ns:
                    line.popleft().refuse(self._refusal(child))
                elif self.times.ready_ns(child, now_ns) <= now_ns:
                    line.popleft().go_on()
                else:
                    break
            if not line:
                self._waiting.pop(child, None)
        self._set_timer()

    def _set_timer(self) -> None:
        if not self._waiting:
            return
        now_ns = self._context.now_ns
        next_ns = min(
            min(line[0].until_ns, self.times.ready_ns(child, now_ns))
            for child, line in self._waiting.items()
        )
        self._context.set_timer(SEARCH_TURN_TIMER, max(1, next_ns - now_ns))

    def _refusal(self, child: str) -> RefusedOutcome:
        return refused(
            QuotaReached(
                f"searches for contracts that are asked for below {child} have used up its part of "
                f"the time of broker {self._context.settings.name}",
                hint="ask again in a few seconds, for fewer paths or with more latency",
            )
        )
