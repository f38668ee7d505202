"""Notifications of one connection: builds `Change` objects and passes them to followers in
order."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from gridstat.endpoint.change import (
    CODE_EDGE_RESTARTED,
    CODE_LINK_FAILED,
    CODE_PURGED,
    Change,
    ChangeKind,
    Subject,
    compare,
)
from gridstat.endpoint.change_stream import ChangeFollowers
from gridstat.model.errors import LinkDown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gridstat.endpoint.change import OnChange
    from gridstat.endpoint.contract import Contract
    from gridstat.endpoint.publisher import Publication
    from gridstat.endpoint.subscriber import Subscription
    from gridstat.net.clock import Clock
    from gridstat.net.command.endpoint_messages import AddressRefused, RefusedOutcome

_EDGE_REASONS = {
    CODE_LINK_FAILED: "after a link failure",
    CODE_PURGED: "what had been registered was purged meanwhile",
    CODE_EDGE_RESTARTED: "the edge router was restarted",
}
REFUSED_MAX: Final = 64
"""Refused channels of which a later proof is reported."""
FORGOTTEN = "the cloud had purged what this end-point had registered; it is registered again"


class ChangeNotifier:
    """Notifies the followers of a change's subject, and those of the whole connection.

    The loss and return of an edge concerns everything attached to it, so followers of subscriptions
    and publications are notified as well. Called on the session's thread, with no lock held.
    """

    def __init__(
        self,
        post: Callable[[Callable[[], object]], object],
        clock: Clock,
        on_change: OnChange | None = None,
    ) -> None:
        self._post = post
        self._clock = clock
        self.followers = ChangeFollowers(post, on_change)
        self._lost: set[str] = set()
        self._refused: set[tuple[str, int]] = set()

    def new_followers(self, on_change: OnChange | None = None) -> ChangeFollowers:
        """Return the followers of one new subscription or publication."""
        return ChangeFollowers(self._post, on_change)

    # Edges.

    def edge_lost(self, edge: str, left: int, others: Iterable[ChangeFollowers]) -> None:
        """Report that the session with an edge is lost; `others` follow subscriptions and
        publications."""
        self._lost.add(edge)
        reason = f"{left} edge routers left" if left != 1 else "1 edge router left"
        self._notify_of_edge(
            Change(
                ChangeKind.EDGE_LOST,
                Subject.EDGE,
                edge,
                self._clock.posix_ns(),
                reason=reason,
                edges_left=left,
                edge=edge,
            ),
            others,
        )

    def edge_attached(
        self, edge: str, left: int, code: int, others: Iterable[ChangeFollowers]
    ) -> None:
        """Report that an edge is attached, if it was lost before."""
        if edge not in self._lost:
            return
        self._lost.discard(edge)
        self._notify_of_edge(
            Change(
                ChangeKind.RESTORED,
                Subject.EDGE,
                edge,
                self._clock.posix_ns(),
                reason=_EDGE_REASONS.get(code, "attached again"),
                code=code,
                edges_left=left,
                edge=edge,
            ),
            others,
        )

    def address_refused(
        self, edge: str, refused: AddressRefused, others: Iterable[ChangeFollowers]
    ) -> None:
        """Report that an edge sends no events to our address, for now."""
        if len(self._refused) < REFUSED_MAX:
            self._refused.add((edge, refused.channel_id))
        reason = f"it sends no events: {refused.reason}; {refused.hint}"
        self._notify_of_edge(
            Change(
                ChangeKind.LOWERED,
                Subject.EDGE,
                edge,
                self._clock.posix_ns(),
                reason=reason,
                code=LinkDown.code,
                edge=edge,
            ),
            others,
        )

    def address_proved(self, edge: str, channel_id: int, others: Iterable[ChangeFollowers]) -> None:
        """Report that an edge sends events to our address, if it had refused to."""
        if (edge, channel_id) not in self._refused:
            return
        self._refused.discard((edge, channel_id))
        self._notify_of_edge(
            Change(
                ChangeKind.RESTORED,
                Subject.EDGE,
                edge,
                self._clock.posix_ns(),
                reason="it sends events again: the address is proved",
                edge=edge,
            ),
            others,
        )

    def earlier_process_purged(self, name: str) -> None:
        """Report that the cloud removed the registrations of an earlier process of this name."""
        reason = "what an earlier process of this name had registered is gone"
        at_ns = self._clock.posix_ns()
        self.followers.notify(
            Change(ChangeKind.PURGED, Subject.END_POINT, name, at_ns, reason, CODE_PURGED)
        )

    def _notify_of_edge(self, change: Change, others: Iterable[ChangeFollowers]) -> None:
        self.followers.notify(change)
        for each in others:
            if each.has_any:
                each.notify(change)

    # Subscriptions.

    def contract_changed(
        self, subscription: Subscription, before: Contract, granted: Contract
    ) -> None:
        """Report that the broker replaced a contract."""
        for found in compare(granted, before, subscription.contract):
            self._notify_subscription(subscription, found.kind, found.reason)

    def subscription_purged(
        self, subscription: Subscription, reason: str, code: int, *, is_over: bool
    ) -> None:
        """Report that the cloud removed a subscription, for good or until it is granted again."""
        change = Change(
            ChangeKind.PURGED,
            Subject.SUBSCRIPTION,
            subscription.name,
            self._clock.posix_ns(),
            reason,
            code,
            is_over=is_over,
        )
        self._notify(change, subscription.followers)

    def pattern_purged(
        self, pattern: str, reason: str, code: int, followers: ChangeFollowers
    ) -> None:
        """Report that the cloud ended a pattern for good, also one that had caught nothing."""
        at_ns = self._clock.posix_ns()
        change = Change(
            ChangeKind.PURGED, Subject.SUBSCRIPTION, pattern, at_ns, reason, code, is_over=True
        )
        self._notify(change, followers)

    def subscription_restored(self, subscription: Subscription) -> None:
        """Report that the cloud granted a subscription again."""
        self._notify_subscription(subscription, ChangeKind.RESTORED, "granted again")

    def _notify_subscription(
        self, subscription: Subscription, kind: ChangeKind, reason: str
    ) -> None:
        change = Change(
            kind,
            Subject.SUBSCRIPTION,
            subscription.name,
            self._clock.posix_ns(),
            reason,
            contract=subscription.contract,
        )
        self._notify(change, subscription.followers)

    # Publications.

    def publication_purged(self, publication: Publication, reason: str, code: int) -> None:
        """Report that the cloud removed a publication; it is registered again as soon as the cloud
        accepts it."""
        self._notify_publication(publication, ChangeKind.PURGED, reason, code)

    def publication_restored(self, publication: Publication) -> None:
        """Report that the cloud registered a publication again."""
        self._notify_publication(publication, ChangeKind.RESTORED, "registered again")

    def publication_policed(
        self, publication: Publication, edge: str, counts: Mapping[str, int]
    ) -> None:
        """Report that an edge policed events; the counts are the totals at that edge."""
        totals = ", ".join(f"{reason} {count}" for reason, count in sorted(counts.items()))
        change = Change(
            ChangeKind.POLICED,
            Subject.PUBLICATION,
            publication.name,
            self._clock.posix_ns(),
            reason=f"edge router {edge} did not let events pass: {totals}",
            edge=edge,
            policed=MappingProxyType(dict(counts)),
        )
        self._notify(change, publication.followers)

    def _notify_publication(
        self, publication: Publication, kind: ChangeKind, reason: str, code: int = 0
    ) -> None:
        at_ns = self._clock.posix_ns()
        change = Change(kind, Subject.PUBLICATION, publication.name, at_ns, reason, code)
        self._notify(change, publication.followers)

    def _notify(self, change: Change, followers: ChangeFollowers) -> None:
        followers.notify(change)
        self.followers.notify(change)


def refusal_reason(outcome: RefusedOutcome) -> str:
    """Return the reason for which the cloud does not restore a registration."""
    return f"the cloud does not take it back for now: {outcome.reason}"
