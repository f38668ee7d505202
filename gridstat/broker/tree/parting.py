"""Letting go of what is held: children give it back first, then it is forgotten, durably."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.tree.records import HoldingGone, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gridstat.broker.tree.desk import TreeDesk
    from gridstat.broker.tree.nearness import Subscribers
    from gridstat.broker.tree.records import Holding
    from gridstat.broker.tree.releases import Key, Releases


class Parting:
    """Channels stay charged until whoever sends on them has said that it no longer does.

    `gone` is told of what no longer takes any of an own channel.
    """

    def __init__(self, desk: TreeDesk, releases: Releases, subscribers: Subscribers) -> None:
        self._desk = desk
        self._releases = releases
        self.subscribers = subscribers
        self.gone: Callable[[], None] = _nothing

    def leave(self, holding: Holding, then: Callable[[], None] | None = None) -> None:
        """It is leaving, durably: have it given back, and forget it."""

        def gone() -> None:
            if self._desk.state.holdings.find(*holding.key) is None:
                if then is not None:
                    then()
                return
            self._desk.insist(lambda: self._ending(holding), forgotten)

        def forgotten() -> None:
            if then is not None:
                then()
            if holding.channel_ids:
                self.gone()

        self._releases.start(holding.key, holding.children, gone)

    def _ending(self, holding: Holding) -> list[HoldingGone]:
        if self._desk.state.holdings.find(*holding.key) != holding:
            return []
        return [HoldingGone(contract=holding.contract, generation=holding.generation)]

    def leave_superseded(self, holding: Holding) -> list[Holding]:
        """Older generations of a contract whose newest is up; those that go now."""
        holdings = self._desk.state.holdings
        older = [
            found
            for found in holdings.of(holding.contract)
            if found.generation < holding.generation and holdings.stage(found) is Stage.COMMITTED
        ]

        def left() -> None:
            for found in older:
                self.leave(found)

        if older:
            self._desk.insist(lambda: holdings.moves(older, Stage.LEAVING), left)
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
        for holding, stage in self._desk.state.holdings.unsettled():
            if stage is Stage.LEAVING:
                self.leave(holding)


def _nothing() -> None:
    """Nobody waits for it."""
