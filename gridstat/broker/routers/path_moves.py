"""Path moves, make before break: new paths are up on every router before the old ones are removed.

States of a move:
- Waiting: the orders of the new paths are sent, and the broker waits for the routers to confirm.
- Refused: all routers have answered, but some refuse the variable's row, and no new path works
  without them. The move waits until a router's refusals change (`retry_refused`).
- Retiring: a new path works. The old paths stay for as long as an event may be in flight on them;
  then `Retired` is made durable, which removes their orders and releases their capacity.
- Ended: the contract has ended, or a later generation replaces this one and retires its old paths.

Timeout: when routers do not confirm in time, the requester is notified with their names. If no new
path works without them, the move waits again, and both sets of paths stay. If the journal cannot
be written, the old paths are retired after a retry interval.

Restart of the broker: the registry has kept the replaced generations. `resume` waits again for
each, without a requester, who was notified before the restart or requests again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, TypeAlias

from gridstat.broker.records.operations import Retired
from gridstat.model.stamp_law import charged_delay_us

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Set

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.records.operations import Subscribed
    from gridstat.broker.records.registry import Subscription
    from gridstat.broker.tables.confirmation import Confirmation
    from gridstat.model.status import StatusVariable

    Notify: TypeAlias = Callable[[list[str]], None]
    """Function that receives the routers that have not confirmed the new paths, or refuse them."""

RETIRE_TIMER: Final = "retire"
NS_PER_US: Final = 1_000
OVERLAP_NS_MAX: Final = 2_000_000_000


@dataclass(slots=True)
class _Move:
    """Move of one contract; the requester is notified after the first wait only."""

    old: Subscribed
    new: Subscribed
    notify: Notify
    is_notified: bool = False


class PathMoves:
    """All moves; `_due` is a heap of retirements by time, and the timer is set for its first."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._due: list[tuple[int, int, int]] = []
        self._refused: list[_Move] = []
        """Moves that wait until a router's refusals of rows change."""

    def resume(self) -> None:
        """Continue, after a start, the moves whose old paths have not retired."""
        for _, found in sorted(self._context.registry.subscriptions.items()):
            replaced = [each.replaced for each in found.retiring if not each.is_held]
            if replaced:
                self.follow(replaced[-1], found.record, _ignore_routers)

    def follow(self, old: Subscribed, new: Subscribed, notify: Notify) -> None:
        """Wait until `new` is up, run `notify` with the silent routers, and retire `old` later."""
        self._await(_Move(old, new, notify))

    def is_up(self, found: Subscription) -> bool:
        """Return whether the move to a contract's newest paths was confirmed.

        The old paths then wait to be retired, or have been. A generation of a change of period,
        whose old paths are held, is followed by `PublicationChanges` and not here.
        """
        record = found.record
        if not record.generation:
            return False
        if all(each.generation != record.generation for each in found.retiring):
            return True
        due = record.subscription_id, record.generation
        return any((number, generation) == due for _, number, generation in self._due)

    def retry_refused(self) -> None:
        """Check the refused moves again, because a router's refusals of rows have changed."""
        refused, self._refused = self._refused, []
        for move in refused:
            self._await(move)

    def retire_due(self) -> None:
        retired = []
        while self._due and self._due[0][0] <= self._context.now_ns:
            _, subscription_id, generation = heappop(self._due)
            if subscription_id in self._context.registry.subscriptions:
                retired.append(Retired(subscription_id=subscription_id, generation=generation))
        if retired:
            self._context.commit(retired, _no_op, partial(self._retire_later, retired))
        self._set_timer()

    def _retire_later(self, retired: list[Retired], _: str) -> None:
        """Keep the old paths for a retry interval, because the journal could not be written."""
        at_ns = self._context.now_ns + self._context.settings.retry_after_ns
        for each in retired:
            heappush(self._due, (at_ns, each.subscription_id, each.generation))
        self._set_timer()

    def _await(self, move: _Move) -> None:
        self._context.tables.await_confirmations(
            routers_of((move.new,)),
            partial(self._confirmed, move),
            deadline_ns=self._context.now_ns + self._context.settings.confirm_within_ns,
            judge=partial(has_confirmed_path, move.new),
        )

    def _confirmed(self, move: _Move, waiting: Confirmation) -> None:
        """Handle the end of a wait: retire the old paths, or wait again."""
        old, new = move.old, move.new
        refusing = self._context.tables.refusing(new.variable_id, routers_of((new,)))
        silent = refusing.union(waiting.silent)
        if not move.is_notified:
            move.is_notified = True
            move.notify(sorted(silent))
        found = self._context.registry.subscriptions.get(new.subscription_id)
        if found is None or found.record.generation > new.generation:
            return  # Ended, or replaced: the later move retires these old paths too.
        if not has_confirmed_path(new, silent):
            if has_confirmed_path(new, set(waiting.silent)):
                self._refused.append(move)  # Only refusals prevent it; waiting would not help.
            else:
                self._await(move)
            return
        slowest_us = max(_in_flight_us(each, found.variable) for each in (old, new))
        overlap_ns = self._context.settings.overlap_ns_min + slowest_us * NS_PER_US
        at_ns = self._context.now_ns + min(overlap_ns, OVERLAP_NS_MAX)
        heappush(self._due, (at_ns, new.subscription_id, new.generation))
        self._set_timer()

    def _set_timer(self) -> None:
        if self._due:
            self._context.set_timer(RETIRE_TIMER, self._due[0][0] - self._context.now_ns)


def _ignore_routers(_: list[str]) -> None:
    """Notify nobody: the requester was notified before the restart, or requests again."""


def _no_op(_: Applied) -> None:
    """Do nothing: the tables have changed, and nobody waits for it."""


def _in_flight_us(record: Subscribed, variable: StatusVariable) -> int:
    """Return how long an event may be on its way from the first router to the last.

    The predicted latency of a path has the publisher's declared delay in it, unless the path is a
    segment of a contract across clouds. That delay has passed when the event reaches the first
    router.
    """
    is_segment = bool(record.entries or record.exits)
    delay_us = 0 if is_segment else charged_delay_us(variable.delay_ms)
    return max(path.latency_us for path in record.paths) - delay_us


def routers_of(records: Iterable[Subscribed]) -> set[str]:
    return {name for record in records for path in record.paths for name in path.routers}


def has_confirmed_path(record: Subscribed, silent: Set[str], broken: Collection[int] = ()) -> bool:
    """Return whether all routers of some path, and not of a broken one, have confirmed it."""
    return any(
        silent.isdisjoint(path.routers)
        for index, path in enumerate(record.paths)
        if index not in broken
    )
