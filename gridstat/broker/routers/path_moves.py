"""Make before break: a contract's new paths are up on every router before the old ones go.

The old ones stay for as long as an event may be on its way on them, also for a broker that starts
anew in between. If a router keeps silent and no new path is confirmed without it, both stay until
one is.
"""

from __future__ import annotations

from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from gridstat.broker.records.operations import Retired

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Set

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.records.operations import Subscribed
    from gridstat.broker.tables.confirmation import Confirmation

RETIRE_TIMER: Final = "retire"
NS_PER_US: Final = 1_000
OVERLAP_NS_MAX: Final = 2_000_000_000


class PathMoves:
    """`_due` is a heap of what retires when; the timer is set for its first."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._due: list[tuple[int, int, int]] = []
        self._refused: list[Callable[[], None]] = []
        """What to look at again, should a router come to hold the rows that it refuses."""

    def resume(self) -> None:
        """After a start: what moved shortly before is up, and retires, as if nothing had been."""
        for _, found in sorted(self._context.registry.subscriptions.items()):
            replaced = [each.replaced for each in found.retiring if not each.is_held]
            if replaced:
                self.follow(replaced[-1], found.record, _nobody)

    def follow(self, old: Subscribed, new: Subscribed, told: Callable[[list[str]], None]) -> None:
        """Once `new` is up, run `told` with the silent routers, and retire `old` a little later."""
        self._await(old, new, told, is_first=True)

    def go_on(self) -> None:
        """A router holds rows now that it refused, or refuses others."""
        refused, self._refused = self._refused, []
        for look in refused:
            look()

    def retire_due(self) -> None:
        retired = []
        while self._due and self._due[0][0] <= self._context.now_ns:
            _, subscription_id, generation = heappop(self._due)
            if subscription_id in self._context.registry.subscriptions:
                retired.append(Retired(subscription_id=subscription_id, generation=generation))
        if retired:
            self._context.commit(retired, _nothing, partial(self._retire_later, retired))
        self._set_timer()

    def _retire_later(self, retired: list[Retired], _: str) -> None:
        """The disk is full: the old paths stay for so long."""
        at_ns = self._context.now_ns + self._context.settings.retry_after_ns
        for each in retired:
            heappush(self._due, (at_ns, each.subscription_id, each.generation))
        self._set_timer()

    def _await(
        self,
        old: Subscribed,
        new: Subscribed,
        told: Callable[[list[str]], None],
        *,
        is_first: bool,
    ) -> None:
        self._context.tables.await_confirmations(
            routers_of((new,)),
            partial(self._confirmed, old, new, told, is_first=is_first),
            deadline_ns=self._context.now_ns + self._context.settings.confirm_within_ns,
            judge=partial(has_a_way, new),
        )

    def _confirmed(
        self,
        old: Subscribed,
        new: Subscribed,
        told: Callable[[list[str]], None],
        waiting: Confirmation,
        *,
        is_first: bool,
    ) -> None:
        refusing = self._context.tables.refusing(new.variable_id, routers_of((new,)))
        silent = refusing.union(waiting.silent)
        if is_first:
            told(sorted(silent))
        found = self._context.registry.subscriptions.get(new.subscription_id)
        if found is None or found.record.generation > new.generation:
            return  # Ended, or moved on: its successor retires this one too.
        if not has_a_way(new, silent):
            look = partial(self._await, old, new, told, is_first=False)
            if has_a_way(new, set(waiting.silent)):
                self._refused.append(look)
            else:
                look()
            return
        slowest_us = max(path.latency_us for path in (*old.paths, *new.paths))
        overlap_ns = self._context.settings.overlap_ns_min + slowest_us * NS_PER_US
        at_ns = self._context.now_ns + min(overlap_ns, OVERLAP_NS_MAX)
        heappush(self._due, (at_ns, new.subscription_id, new.generation))
        self._set_timer()

    def _set_timer(self) -> None:
        if self._due:
            self._context.set_timer(RETIRE_TIMER, self._due[0][0] - self._context.now_ns)


def _nobody(_: list[str]) -> None:
    """Whoever asked for the move was answered before the start, or asks again."""


def _nothing(_: Applied) -> None:
    """The tables have changed, and nobody waits for it."""


def routers_of(records: Iterable[Subscribed]) -> set[str]:
    return {name for record in records for path in record.paths for name in path.routers}


def has_a_way(record: Subscribed, silent: Set[str]) -> bool:
    """Whether one of its paths is confirmed by all of its routers."""
    return any(silent.isdisjoint(path.routers) for path in record.paths)
