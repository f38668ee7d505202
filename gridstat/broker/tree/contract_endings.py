"""Ends of contracts.

At the owner an end is made durable, then confirmed, and then every segment is released. On the way
up an `EndContract` is kept by each broker that forwards it, until the owner has confirmed it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from gridstat.broker.tree.tree_operations import Holding, Stage
from gridstat.model.errors import LimitReached

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.tree.membership import Membership
    from gridstat.broker.tree.segment_commits import SegmentCommits
    from gridstat.broker.tree.segment_releases import HoldingRelease
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.net.command.segment_messages import EndContract


class ContractEndings:
    """Ends of owned contracts; every request is confirmed once the end is durable."""

    def __init__(
        self, context: TreeContext, commits: SegmentCommits, holding_release: HoldingRelease
    ) -> None:
        self._context = context
        self._commits = commits
        self._holding_release = holding_release

    def end(self, contract: str, then: Callable[[], None]) -> None:
        """Release every owned generation of a contract; call `then` once that is durable."""
        holdings = self._context.state.holdings
        owned = [
            found
            for found in holdings.of(contract)
            if found.is_owned and holdings.stage(found) is Stage.COMMITTED
        ]
        if not owned and not self._context.pending_count:
            then()
            return
        self._context.decide(
            holdings.moves(owned, Stage.LEAVING),
            partial(self._ended, owned, then),
            partial(self._not_written, contract, then),
        )

    def _ended(self, owned: list[Holding], then: Callable[[], None]) -> None:
        for found in owned:
            self._commits.forget(found.key)
            self._holding_release.release(found)
        then()

    def _not_written(self, contract: str, then: Callable[[], None], reason: str) -> None:
        del reason
        self._context.later(partial(self.end, contract, then))


class ContractEndingsAbove:
    """Ends that are forwarded to the parent, and kept until the owner has confirmed them.

    A child that has ended more contracts than can be kept has to join again once the parent is
    there, since it then repeats them.
    """

    def __init__(self, context: TreeContext, membership: Membership) -> None:
        self._context = context
        self._membership = membership
        self._open: dict[str, EndContract] = {}
        self._unkept: set[str] = set()
        """Children that have ended more contracts than could be kept."""

    def __len__(self) -> int:
        return len(self._open)

    def forward(self, child: str, message: EndContract) -> None:
        """Send an end to the parent, now and after every join, until it is confirmed."""
        if message.contract not in self._open:
            if len(self._open) < self._context.settings.transactions_max:
                self._open[message.contract] = message
            else:
                self._unkept.add(child)
        self._context.send_parent(structs.replace(message, term=self._context.term))

    def confirmed(self, contract: str) -> None:
        self._open.pop(contract, None)

    def parent_joined(self) -> None:
        for ending in self._open.values():
            self._context.send_parent(structs.replace(ending, term=self._context.term))
        unkept, self._unkept = self._unkept, set()
        for child in sorted(unkept & self._context.joined):
            text = f"broker {child} has ended more contracts than are kept for an absent parent"
            again = LimitReached(text, hint="the broker joins again, and repeats them")
            self._membership.end_session(child, again)
