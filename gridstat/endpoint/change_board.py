"""The changes of one connection: made here from what the session says, and told in order."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gridstat.endpoint.change import OnChange
    from gridstat.endpoint.contract import Contract
    from gridstat.endpoint.publisher import Publication
    from gridstat.endpoint.subscriber import Subscription
    from gridstat.net.clock import Clock
    from gridstat.net.command.endpoint_messages import RefusedOutcome

_EDGE_WORDS = {
    CODE_LINK_FAILED: "after a link failure",
    CODE_PURGED: "what had been registered was purged meanwhile",
    CODE_EDGE_RESTARTED: "the edge router was restarted",
}
FORGOTTEN = "the cloud had purged what this end-point had registered; it is registered again"


class ChangeBoard:
    """Tells each change to those who follow its subject, and to those of the whole connection.

    That an edge is lost or back concerns everything at it, so whoever follows a subscription or a
    publication is told as well. Called on the session's thread, with no lock held.
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
        self.subjects: Callable[[], Iterable[ChangeFollowers]] = tuple
        """All subscriptions and publications that live."""
        self._lost: set[str] = set()

    def new_followers(self, on_change: OnChange | None = None) -> ChangeFollowers:
        """For one subscription or publication."""
        return ChangeFollowers(self._post, on_change)

    # Edges.

    def edge_lost(self, edge: str, left: int) -> None:
        """The session with an edge is gone; so many remain."""
        self._lost.add(edge)
        reason = f"{left} edge routers left" if left != 1 else "1 edge router left"
        self._tell_of_edge(
            Change(
                ChangeKind.EDGE_LOST,
                Subject.EDGE,
                edge,
                self._clock.posix_ns(),
                reason=reason,
                edges_left=left,
                edge=edge,
            )
        )

    def edge_attached(self, edge: str, left: int, code: int) -> None:
        """An edge has us; news only if it was lost before."""
        if edge not in self._lost:
            return
        self._lost.discard(edge)
        self._tell_of_edge(
            Change(
                ChangeKind.RESTORED,
                Subject.EDGE,
                edge,
                self._clock.posix_ns(),
                reason=_EDGE_WORDS.get(code, "attached again"),
                code=code,
                edges_left=left,
                edge=edge,
            )
        )

    def earlier_process_purged(self, name: str) -> None:
        """The cloud took us for a restart of an earlier process, and has ended what that had."""
        reason = "what an earlier process of this name had registered is gone"
        at_ns = self._clock.posix_ns()
        self.followers.tell(
            Change(ChangeKind.PURGED, Subject.END_POINT, name, at_ns, reason, CODE_PURGED)
        )

    def _tell_of_edge(self, change: Change) -> None:
        self.followers.tell(change)
        for each in self.subjects():
            if each.has_any:
                each.tell(change)

    # Subscriptions.

    def contract_changed(
        self, subscription: Subscription, before: Contract, granted: Contract
    ) -> None:
        """The broker has put another contract in the place of one."""
        for found in compare(granted, before, subscription.contract):
            self._tell_subscription(subscription, found.kind, found.reason)

    def subscription_purged(
        self, subscription: Subscription, reason: str, code: int, *, is_over: bool
    ) -> None:
        """The cloud has removed it, for good or until it is granted again."""
        change = Change(
            ChangeKind.PURGED,
            Subject.SUBSCRIPTION,
            subscription.name,
            self._clock.posix_ns(),
            reason,
            code,
            is_over=is_over,
        )
        self._tell(change, subscription.followers)

    def subscription_restored(self, subscription: Subscription) -> None:
        """The cloud has granted it again."""
        self._tell_subscription(subscription, ChangeKind.RESTORED, "granted again")

    def _tell_subscription(self, subscription: Subscription, kind: ChangeKind, reason: str) -> None:
        change = Change(
            kind,
            Subject.SUBSCRIPTION,
            subscription.name,
            self._clock.posix_ns(),
            reason,
            contract=subscription.contract,
        )
        self._tell(change, subscription.followers)

    # Publications.

    def publication_purged(self, publication: Publication, reason: str, code: int) -> None:
        """The cloud has removed it; it is registered again as soon as the cloud takes it."""
        self._tell_publication(publication, ChangeKind.PURGED, reason, code)

    def publication_restored(self, publication: Publication) -> None:
        """The cloud has registered it again."""
        self._tell_publication(publication, ChangeKind.RESTORED, "registered again")

    def publication_policed(
        self, publication: Publication, edge: str, counts: Mapping[str, int]
    ) -> None:
        """An edge has not let events pass; the counts are the totals at that edge."""
        words = ", ".join(f"{reason} {count}" for reason, count in sorted(counts.items()))
        change = Change(
            ChangeKind.POLICED,
            Subject.PUBLICATION,
            publication.name,
            self._clock.posix_ns(),
            reason=f"edge router {edge} did not let events pass: {words}",
            edge=edge,
            policed=MappingProxyType(dict(counts)),
        )
        self._tell(change, publication.followers)

    def _tell_publication(
        self, publication: Publication, kind: ChangeKind, reason: str, code: int = 0
    ) -> None:
        at_ns = self._clock.posix_ns()
        change = Change(kind, Subject.PUBLICATION, publication.name, at_ns, reason, code)
        self._tell(change, publication.followers)

    def _tell(self, change: Change, followers: ChangeFollowers) -> None:
        followers.tell(change)
        self.followers.tell(change)


def refused_words(outcome: RefusedOutcome) -> str:
    """Why the cloud does not take something back."""
    return f"the cloud does not take it back for now: {outcome.reason}"
