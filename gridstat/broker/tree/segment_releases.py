"""Release of segments: send Release to each child until the child has answered Released.

States of a release of one key at one child:

    closed --start--> open --Released with the same round--> closed
    open --the child joins, and its SegmentsHeld does not name the key--> closed
    open --the child is removed from the tree--> closed

Messages. `Release` carries a round, which `Released` repeats. An answer with another round belongs
to an earlier release, since which the child was asked to reserve again, and is ignored.

Timeout. A session loses no message, so a Release is sent again only for a child that was too busy
to handle it: after a delay that doubles each time, and in batches, so that a long list of releases
does not delay other messages. An absent child gets every open Release when it joins.

Restart. Open releases are not durable. `HoldingRelease` starts those of holdings in the stage
LEAVING again; other segments are found when the child joins and reports what it holds.
"""

from __future__ import annotations

from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from gridstat.broker.tree.tree_capability import FromChild, TreeCapability
from gridstat.broker.tree.tree_operations import HoldingGone, Stage
from gridstat.model.errors import LimitReached
from gridstat.net.command.segment_messages import Release, Released

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gridstat.broker.tree.subscriber_distances import SubscriberDistances
    from gridstat.broker.tree.tree_capability import Facts
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.broker.tree.tree_operations import Holding

RELEASE_TIMER: Final = "release"
RELEASES_AT_ONCE_MAX: Final = 2_000
"""Repeated releases that are sent to one child at once; new ones come on top."""
BATCHES_PER_RETRY: Final = 10
"""Batches of repeated releases in the time of one retry."""
RETRIES_APART_MAX: Final = 32
"""Longest delay between two retries, in multiples of the first."""

Key = tuple[str, int]
"""Contract and generation."""


class _Retry(NamedTuple):
    """Next time to send a Release to a child, and the delay after which to repeat it."""

    due_ns: int
    delay_ns: int
    key: Key
    round: int


class ReleaseListener(Protocol):
    """Notified when a child has released a segment, and when an own channel has capacity again."""

    def child_released(self, key: Key, child: str) -> None: ...

    def capacity_freed(self) -> None: ...


class SegmentReleases:
    """Open releases by key and child, and the functions to call once a key is released."""

    def __init__(self, context: TreeContext, listener: ReleaseListener) -> None:
        self._context = context
        self._listener = listener
        self._open: dict[Key, dict[str, int]] = {}
        """Round of the open release at each child."""
        self._of_child: dict[str, set[Key]] = {}
        self._retries: dict[str, list[_Retry]] = {}
        """Heap of the retries of each child in its present session."""
        self._unknown: dict[str, set[Key]] = {}
        """Keys that a child holds without a request of this broker."""
        self._after_release: dict[Key, list[Callable[[], None]]] = {}
        self._is_timer_set = False

    def __len__(self) -> int:
        return len(self._open)

    def is_open(self, key: Key, child: str | None = None) -> bool:
        found = self._open.get(key)
        return found is not None and (child is None or child in found)

    def start(
        self, key: Key, children: Iterable[str], then: Callable[[], None] | None = None
    ) -> None:
        """Send Release to the children; call `then` when no child holds the key any more.

        Whoever is no child any more holds nothing, and would never answer.
        """
        if then is not None:
            self._after_release.setdefault(key, []).append(then)
        known = self._context.state.families.children
        for child in (name for name in children if name in known):
            found = self._open.setdefault(key, {})
            if child not in found:
                found[child] = self._context.next_request()
                self._of_child.setdefault(child, set()).add(key)
                self._schedule(key, child, self._context.settings.retry_after_ns)
            self._send(key, child)
        if not self._open.get(key):
            # No child has to release anything, so nothing will be received for this key.
            self._finish(key)
        elif not self._is_timer_set:
            self._set_timer()

    def start_unknown(self, key: Key, child: str) -> bool:
        """Release a segment unknown to this broker; return False if the child has too many."""
        unknown = self._unknown.setdefault(child, set())
        has_room = len(unknown) < self._context.settings.unknown_child_max
        if has_room:
            unknown.add(key)
            self.start(key, [child])
        return has_room

    def too_many_unknown(self, child: str) -> LimitReached:
        """Return the error that ends the session of a child after `start_unknown` has failed."""
        most = self._context.settings.unknown_child_max
        text = f"broker {child} holds more than {most} segments that its parent does not know"
        return LimitReached(text)

    def receive(self, child: str, message: Released) -> None:
        self.released((message.contract, message.generation), child, message.round)

    def released(self, key: Key, child: str, round_: int = 0) -> None:
        found = self._open.get(key)
        if found is None or round_ not in {0, found.get(child)} or child not in found:
            return  # The answer to an earlier release, since which the child has reserved again.
        del found[child]
        for index in (self._of_child, self._unknown):
            keys = index.get(child, set())
            keys.discard(key)
            if not keys:
                index.pop(child, None)
        self._listener.child_released(key, child)
        if not found and self._open.get(key) is found:
            # The listener may have started another release of the key meanwhile.
            self._finish(key)

    def child_joined(self, child: str) -> None:
        self._retries[child] = []
        for key in sorted(self._of_child.get(child, ())):
            self._schedule(key, child, 0)
        if self._send_due(child):
            self._set_timer(BATCHES_PER_RETRY)

    def child_holds(self, child: str, held: set[Key]) -> None:
        """Close every release of a child that is not in the list of what the child holds."""
        for key in sorted(self._of_child.get(child, set()) - held):
            self.released(key, child)

    def child_removed(self, child: str) -> None:
        """Close every release of a broker that is no longer a child."""
        self.child_holds(child, set())
        self._retries.pop(child, None)

    def retry(self) -> None:
        self._is_timer_set = False
        behind = [
            self._send_due(child) for child in sorted(self._context.joined & self._retries.keys())
        ]
        if self._open:
            self._set_timer(BATCHES_PER_RETRY if any(behind) else 1)

    def _set_timer(self, part: int = 1) -> None:
        self._is_timer_set = True
        self._context.set_timer(RELEASE_TIMER, self._context.settings.retry_after_ns // part)

    def _schedule(self, key: Key, child: str, delay_ns: int) -> None:
        """Plan the next Release to a joined child; an absent child gets all when it joins."""
        if child not in self._context.joined:
            return
        retry_ns = self._context.settings.retry_after_ns
        delay_next_ns = min(max(retry_ns, 2 * delay_ns), RETRIES_APART_MAX * retry_ns)
        again = _Retry(self._context.now_ns + delay_ns, delay_next_ns, key, self._open[key][child])
        heappush(self._retries.setdefault(child, []), again)

    def _send_due(self, child: str) -> bool:
        """Send what is due; return whether more is due than may be sent at once."""
        heap, sent = self._retries[child], 0
        while heap and heap[0].due_ns <= self._context.now_ns and sent < RELEASES_AT_ONCE_MAX:
            _, delay_ns, key, round_ = heappop(heap)
            if self._open.get(key, {}).get(child) == round_:  # Otherwise closed, or started again.
                self._send(key, child)
                self._schedule(key, child, delay_ns)
                sent += 1
        return sent == RELEASES_AT_ONCE_MAX

    def _send(self, key: Key, child: str) -> None:
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
        for then in self._after_release.pop(key, ()):
            then()


# Release of holdings: every child releases its segment, then the holding is removed durably.


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

    def capability(self) -> TreeCapability:
        """Return the registration of releases, of segments and of whole holdings."""
        releases = self._releases
        return TreeCapability(
            name="releases",
            child_messages={Released: FromChild(releases.receive)},
            survey=self._facts,
            timers={RELEASE_TIMER: releases.retry},
            resume=self.resume,
            child_joined=releases.child_joined,
            child_removed=releases.child_removed,
            parent_replaced=self.resume,
        )

    def _facts(self) -> Facts:
        return {"releases": len(self._releases)}

    def release(self, holding: Holding, then: Callable[[], None] | None = None) -> None:
        """Release a holding whose stage is durably LEAVING, and remove it; then call `then`."""
        released = partial(self._children_released, holding, then)
        self._releases.start(holding.key, holding.children, released)

    def _children_released(self, holding: Holding, then: Callable[[], None] | None) -> None:
        if self._context.state.holdings.find(*holding.key) is None:
            if then is not None:
                then()
            return
        self._context.insist(partial(self._removal, holding), partial(self._removed, holding, then))

    def _removed(self, holding: Holding, then: Callable[[], None] | None) -> None:
        if then is not None:
            then()
        if holding.channel_ids:
            self._listener.capacity_freed()

    def _removal(self, holding: Holding) -> list[HoldingGone]:
        if self._context.state.holdings.find(*holding.key) != holding:
            return []
        return [HoldingGone(contract=holding.contract, generation=holding.generation)]

    def release_superseded(self, holding: Holding) -> list[Holding]:
        """Release the older generations of a contract, and return them."""
        holdings = self._context.state.holdings
        older = [
            found
            for found in holdings.of(holding.contract)
            if found.generation < holding.generation and holdings.stage(found) is Stage.COMMITTED
        ]
        if older:
            self._context.insist(
                partial(holdings.moves, older, Stage.LEAVING), partial(self._release_all, older)
            )
        return older

    def _release_all(self, released: list[Holding]) -> None:
        for holding in released:
            self.release(holding)

    def release_reserved(self, key: Key, children: Iterable[str]) -> None:
        """Release segments that were reserved for a holding that did not become durable."""
        self._releases.start(key, children)

    def when_released(self, key: Key, then: Callable[[], None]) -> None:
        """Call `then` once no release of the key is open."""
        if self._releases.is_open(key):
            self._releases.start(key, (), then)
        else:
            then()

    def resume(self) -> None:
        """Release every holding in the stage LEAVING, after a start or a change of the parent."""
        for holding, stage in self._context.state.holdings.unsettled():
            if stage is Stage.LEAVING:
                self.release(holding)
