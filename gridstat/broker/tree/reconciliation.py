"""After a child has joined: what it holds against what is held here, until both say the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.tree.records import Stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.tree.commits import Commits
    from gridstat.broker.tree.coordinator import Coordinator
    from gridstat.broker.tree.desk import TreeDesk
    from gridstat.broker.tree.failures import Failures
    from gridstat.broker.tree.records import Holding
    from gridstat.broker.tree.releases import Key, Releases
    from gridstat.net.command.stretch_messages import HeldStretch, StretchesHeld


class Reconciliation:
    """Presumed abort: what nobody here has decided, or is deciding, goes."""

    def __init__(
        self,
        desk: TreeDesk,
        coordinator: Coordinator,
        releases: Releases,
        commits: Commits,
        failures: Failures,
    ) -> None:
        self._desk = desk
        self._coordinator = coordinator
        self._releases = releases
        self._commits = commits
        self._failures = failures
        self._told: dict[str, set[Key]] = {}
        self.told_too_much: Callable[[str], None] = _nothing

    def child_joined(self, child: str) -> None:
        self._told[child] = set()

    def child_left(self, child: str) -> None:
        self._told.pop(child, None)

    def held(self, child: str, message: StretchesHeld) -> None:
        told = self._told.get(child)
        if told is None:
            return
        for stretch in message.held:
            told.add((stretch.contract, stretch.generation))
            if not self._compare(child, stretch):
                self.told_too_much(child)
                return
        if message.is_last:
            del self._told[child]
            self._releases.child_holds(child, told)
            self._find_missing(child, told)

    def _compare(self, child: str, stretch: HeldStretch) -> bool:
        """Whether more of it can be taken in."""
        key = (stretch.contract, stretch.generation)
        holdings = self._desk.state.holdings
        holding = holdings.find(*key)
        if holding is None or child not in holding.children:
            transaction = self._coordinator.find(key)
            is_wanted = transaction is not None and child in transaction.children()
            if not is_wanted and not self._releases.is_open(key, child):
                return self._releases.start_unknown(key, child)
        elif holdings.stage(holding) is Stage.COMMITTED and not stretch.is_committed:
            self._desk.when_durable(lambda: self._commit(holding, child))
        return True

    def _commit(self, holding: Holding, child: str) -> None:
        """If it still counts: that was being written when the child told of it."""
        holdings = self._desk.state.holdings
        if holdings.find(*holding.key) == holding and holdings.stage(holding) is Stage.COMMITTED:
            self._commits.say(holding.key, child)

    def _find_missing(self, child: str, told: set[Key]) -> None:
        holdings = self._desk.state.holdings
        for contract in sorted(holdings.of_child(child)):
            for holding in holdings.of(contract):
                is_lost = child in holding.children and holding.key not in told
                if is_lost and holdings.stage(holding) is Stage.COMMITTED:
                    self._failures.lost(child, holding)


def _nothing(_: object) -> None:
    """Nobody listens yet."""
