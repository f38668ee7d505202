"""Giving back: children are asked to release until they have, however often they come and go.

Within a session nothing is lost, so a release is said again only for a child that was too busy to
see to it: ever more rarely, and never so much at once that others wait for it.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from gridstat.broker.tree.tree_operations import HoldingGone, Stage
from gridstat.model.errors import LimitReached
from gridstat.net.command.segment_messages import Release

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gridstat.broker.tree.subscriber_distances import SubscriberDistances
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.broker.tree.tree_operations import Holding

RELEASE_TIMER: Final = "release"
TURN_MAX: Final = 2_000
"""SegmentReleases that are said to one child in one turn, beside those that are new."""
TURNS_PER_RETRY: Final = 10
"""What is left over follows after such a part of the time of a retry."""
RETRIES_APART_MAX: Final = 32
"""The longest time between two tries, in times of the first."""

Key = tuple[str, int]
"""A contract and its generation."""


class _Again(NamedTuple):
    """When a child is told next, and how long after that it would be told again."""

    due_ns: int
    delay_ns: int
    key: Key
    round: int


class ReleaseListener(Protocol):
    """Notified when a child has released a segment, and when an own channel has capacity again."""

    def child_released(self, key: Key, child: str) -> None: ...

    def capacity_freed(self) -> None: ...


class SegmentReleases:
    """What is open stays so until the child says that nothing is held, or shows it by joining."""

    def __init__(self, context: TreeContext, listener: ReleaseListener) -> None:
        self._context = context
        self._listener = listener
        self._open: dict[Key, dict[str, int]] = {}
        """By child the round of the release, which its answer carries."""
        self._of_child: dict[str, set[Key]] = {}
        self._again: dict[str, list[_Again]] = {}
        """By child a heap of what it was told in this session, or is about to be."""
        self._unknown: dict[str, set[Key]] = {}
        """What of it nobody here had asked for."""
        self._then: dict[Key, list[Callable[[], None]]] = {}
        self._is_timer_set = False

    def __len__(self) -> int:
        return len(self._open)

    def is_open(self, key: Key, child: str | None = None) -> bool:
        found = self._open.get(key)
        return found is not None and (child is None or child in found)

    def start(
        self, key: Key, children: Iterable[str], then: Callable[[], None] | None = None
    ) -> None:
        """Ask them all; `then` follows when nobody holds anything of it any more."""
        if then is not None:
            self._then.setdefault(key, []).append(then)
        for child in children:
            found = self._open.setdefault(key, {})
            if child not in found:
                found[child] = self._context.next_request()
                self._of_child.setdefault(child, set()).add(key)
                self._plan(key, child, self._context.settings.retry_after_ns)
            self._say(key, child)
        if not self._open.get(key):
            self._finish(key)
        elif not self._is_timer_set:
            self._set_timer()

    def start_unknown(self, key: Key, child: str) -> bool:
        """What a child holds and nobody here knows of; not of one that tells of too much of it."""
        unknown = self._unknown.setdefault(child, set())
        has_room = len(unknown) < self._context.settings.unknown_child_max
        if has_room:
            unknown.add(key)
            self.start(key, [child])
        return has_room

    def too_many_unknown(self, child: str) -> LimitReached:
        """Return the error that ends the session of a child after `start_unknown` has failed."""
        most = self._context.settings.unknown_child_max
        text = f"broker {child} holds more than {most} segments that nobody here knows of"
        return LimitReached(text)

    def released(self, key: Key, child: str, round_: int = 0) -> None:
        found = self._open.get(key)
        if found is None or round_ not in {0, found.get(child)} or child not in found:
            return  # Perhaps the answer to an earlier one, since which it was asked to hold more.
        del found[child]
        for index in (self._of_child, self._unknown):
            keys = index.get(child, set())
            keys.discard(key)
            if not keys:
                index.pop(child, None)
        self._listener.child_released(key, child)
        if not found and self._open.get(key) is found:
            self._finish(key)

    def child_joined(self, child: str) -> None:
        self._again[child] = []
        for key in sorted(self._of_child.get(child, ())):
            self._plan(key, child, 0)
        if self._say_due(child):
            self._set_timer(TURNS_PER_RETRY)

    def child_holds(self, child: str, held: set[Key]) -> None:
        """It has told all that it holds: whatever else it was to give back, it has."""
        for key in sorted(self._of_child.get(child, set()) - held):
            self.released(key, child)

    def child_is_gone(self, child: str) -> None:
        """It is no child any more."""
        self.child_holds(child, set())
        self._again.pop(child, None)

    def say_again(self) -> None:
        self._is_timer_set = False
        behind = [
            self._say_due(child) for child in sorted(self._context.joined & self._again.keys())
        ]
        if self._open:
            self._set_timer(TURNS_PER_RETRY if any(behind) else 1)

    def _set_timer(self, part: int = 1) -> None:
        self._is_timer_set = True
        self._context.set_timer(RELEASE_TIMER, self._context.settings.retry_after_ns // part)

    def _plan(self, key: Key, child: str, delay_ns: int) -> None:
        """To a child that is away nothing is said; it is told all when it joins."""
        if child not in self._context.joined:
            return
        retry_ns = self._context.settings.retry_after_ns
        delay_next_ns = min(max(retry_ns, 2 * delay_ns), RETRIES_APART_MAX * retry_ns)
        again = _Again(self._context.now_ns + delay_ns, delay_next_ns, key, self._open[key][child])
        heappush(self._again.setdefault(child, []), again)

    def _say_due(self, child: str) -> bool:
        """Whether more is due than is said in one turn."""
        heap, said = self._again[child], 0
        while heap and heap[0].due_ns <= self._context.now_ns and said < TURN_MAX:
            _, delay_ns, key, round_ = heappop(heap)
            if self._open.get(key, {}).get(child) == round_:  # Else it is done, or asked anew.
                self._say(key, child)
                self._plan(key, child, delay_ns)
                said += 1
        return said == TURN_MAX

    def _say(self, key: Key, child: str) -> None:
        self._context.send_child(
            child,
            Release(
                term=self._context.term,
                contract=key[0],
                generation=key[1],
                round=self._open[key][child],
            ),
        )

    def _finish(self, key: Key) -> None:
        self._open.pop(key, None)
        for then in self._then.pop(key, ()):
            then()


# Letting go of what is held: children give it back first, then it is forgotten, durably.


class HoldingRelease:
    """Release of holdings: channels stay charged until every child has released its segment."""

    def __init__(
        self,
        context: TreeContext,
        releases: SegmentReleases,
        subscribers: SubscriberDistances,
        listener: ReleaseListener,
    ) -> None:
        self._context = context
        self._releases = releases
        self.subscribers = subscribers
        self._listener = listener

    def leave(self, holding: Holding, then: Callable[[], None] | None = None) -> None:
        """It is leaving, durably: have it given back, and forget it."""

        def gone() -> None:
            if self._context.state.holdings.find(*holding.key) is None:
                if then is not None:
                    then()
                return
            self._context.insist(lambda: self._ending(holding), forgotten)

        def forgotten() -> None:
            if then is not None:
                then()
            if holding.channel_ids:
                self._listener.capacity_freed()

        self._releases.start(holding.key, holding.children, gone)

    def _ending(self, holding: Holding) -> list[HoldingGone]:
        if self._context.state.holdings.find(*holding.key) != holding:
            return []
        return [HoldingGone(contract=holding.contract, generation=holding.generation)]

    def leave_superseded(self, holding: Holding) -> list[Holding]:
        """Older generations of a contract whose newest is up; those that go now."""
        holdings = self._context.state.holdings
        older = [
            found
            for found in holdings.of(holding.contract)
            if found.generation < holding.generation and holdings.stage(found) is Stage.COMMITTED
        ]

        def left() -> None:
            for found in older:
                self.leave(found)

        if older:
            self._context.insist(lambda: holdings.moves(older, Stage.LEAVING), left)
        return older

    def give_back(self, key: Key, children: Iterable[str]) -> None:
        """What was reserved for nothing."""
        self._releases.start(key, children)

    def when_given_back(self, key: Key, then: Callable[[], None]) -> None:
        """Run this once no child is asked for anything of it any more."""
        if self._releases.is_open(key):
            self._releases.start(key, (), then)
        else:
            then()

    def resume(self) -> None:
        """After a start, or when there is another parent."""
        for holding, stage in self._context.state.holdings.unsettled():
            if stage is Stage.LEAVING:
                self.leave(holding)
