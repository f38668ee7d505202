"""All properties of a tree, and the moments of their checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.simulation.model_keys import unrest_of_keys
from lab.simulation.properties.unrest import (
    absent,
    unrest_of_endpoints,
    unrest_of_sessions,
    unusable,
)
from lab.simulation.rules import check_rules
from lab.simulation.tree.properties.accounts import (
    check_accounts,
    check_fitting,
    check_nothing_promised,
)
from lab.simulation.tree.properties.answers import TreeAnswers
from lab.simulation.tree.properties.belief import check_all_is_empty, check_belief
from lab.simulation.tree.properties.closed_channels import ClosedChannels
from lab.simulation.tree.properties.contracts import check_contracts
from lab.simulation.tree.properties.floods import check_floods, unrest_of_floods
from lab.simulation.tree.properties.latencies import check_divisions
from lab.simulation.tree.properties.promises import check_promises, unrest_of_promises
from lab.simulation.tree.properties.rows import check_bare, check_deliveries, check_rows
from lab.simulation.tree.properties.talk import check_talk
from lab.simulation.tree.properties.terms import Terms

if TYPE_CHECKING:
    from gridstat.broker.leaf_broker import LeafBroker
    from gridstat.net.command.endpoint_messages import Outcome
    from lab.simulation.application import Asked
    from lab.simulation.endpoint_node import EndPointNode
    from lab.simulation.tree.grid import TreeGrid


class TreeProperties:
    """Checks that raise `PropertyBroken` at the first property that does not hold."""

    def __init__(self) -> None:
        self._grid: TreeGrid | None = None
        self._answers: TreeAnswers | None = None
        self._closed: ClosedChannels | None = None
        self._terms = Terms()

    def watch(self, grid: TreeGrid) -> None:
        """Check this tree from now on."""
        self._grid = grid
        closed = self._closed = ClosedChannels(grid)
        answers = self._answers = TreeAnswers(grid, closed)
        grid.on_journal_lost.append(self._journal_lost)
        for node in grid.brokers.values():
            node.on_restored = answers.restored
            node.on_returned = answers.returned
            node.on_sent = closed.sent

    @property
    def grid(self) -> TreeGrid:
        assert self._grid is not None
        return self._grid

    def answered(self, node: EndPointNode, asked: Asked, outcomes: tuple[Outcome, ...]) -> None:
        assert self._answers is not None
        self._answers.answered(node, asked, outcomes)

    def not_answered(self, node: EndPointNode, asked: Asked) -> None:
        assert self._answers is not None
        self._answers.not_answered(node, asked)

    def _journal_lost(self, name: str) -> None:
        assert self._answers is not None
        self._answers.journal_lost(name)
        self._terms.journal_lost(name)

    def check_safety(self) -> None:
        """Check the properties that are cheap enough for every moment."""
        check_fitting(self.grid)
        self._terms.check(self.grid)
        check_talk(self.grid)

    def check_rest(self) -> None:
        """Check at rest, when no message is in transit, that all nodes agree."""
        for leaf in self.grid.leaves().values():
            check_rules(leaf)
        check_belief(self.grid)
        check_contracts(self.grid)
        check_divisions(self.grid)
        assert self._closed is not None
        check_promises(self.grid, self._closed)
        check_floods(self.grid)
        check_rows(self.grid)
        check_accounts(self.grid)
        check_deliveries(self.grid)

    def check_empty(self) -> None:
        """Check that nothing of the end-points is left once all have left."""
        check_all_is_empty(self.grid)
        check_nothing_promised(self.grid)
        check_bare(self.grid)

    # Unrest: what is still in progress.

    def unrest(self) -> str | None:
        """Return what is still in progress, or None."""
        return (
            self._unrest_of_brokers()
            or unrest_of_sessions(self.grid.network)
            or unrest_of_endpoints(self.grid.endpoints)
            or unrest_of_keys(node.keys for node in self.grid.routers.values() if node.is_up)
            or unrest_of_keys(node.keys for node in self.grid.endpoints.values() if node.is_up)
            or next(filter(None, map(self._unrest_of_leaf, self.grid.clouds)), None)
            or self._unrest_of_qos_brokers()
            or unrest_of_floods(self.grid)
            or self._unrest_of_promises()
        )

    def _unrest_of_brokers(self) -> str | None:
        for name, node in self.grid.brokers.items():
            if not node.is_up:
                return f"broker {name} is down"
            if not node.journal.is_idle:
                return f"the journal of {name} writes"
            parent = self.grid.brokers.get(node.plan.parent)
            if parent is not None and not (
                parent.peer in node.sessions and node.peer in parent.sessions
            ):
                return f"broker {name} has no session with its parent"
            if parent is not None and node.sessions[parent.peer].is_cut:
                return f"broker {name} has not noticed that its session with its parent is cut"
        return None

    def _unrest_of_leaf(self, cloud: str) -> str | None:
        leaf = self.grid.leaf(cloud)
        assert leaf is not None
        return (
            self._unrest_of_routers(leaf)
            or self._unrest_of_contracts(cloud, leaf)
            or absent(leaf)
            or unusable(leaf, self.grid.routers)
        )

    def _unrest_of_routers(self, leaf: LeafBroker) -> str | None:
        for name in leaf.registry.routers:
            node = self.grid.routers[name]
            if not leaf.tables[name].is_in_step:
                return f"router {name} is not in step"
            if node.agent is None or not node.agent.is_accepted:
                return f"router {name} has no broker"
        return None

    @staticmethod
    def _unrest_of_contracts(cloud: str, leaf: LeafBroker) -> str | None:
        registry = leaf.registry
        for number, subscription in registry.subscriptions.items():
            if subscription.retiring or subscription.troubles or subscription.record.is_reserved:
                return f"{cloud}: {number} moves or is impaired: {subscription.troubles}"
        for number, asked in registry.tree.asked.items():
            if asked.is_ending or asked.waiting is not None or asked.granted is None:
                return f"{cloud}: {number} awaits its owner"
            if not registry.tree.segment(f"{cloud}#{number}", asked.granted.generation):
                return f"{cloud}: nothing is held of {number}, and it asks why"
        if registry.tree.begun:
            return f"{cloud}: answers are not complete: {sorted(registry.tree.begun)[:3]}"
        return None

    def _unrest_of_qos_brokers(self) -> str | None:
        for name, broker in self.grid.qos_brokers().items():
            if broker.open_count:
                return f"{name} plans {broker.open_count} contracts"
            for holding, stage in broker.state.holdings.unsettled():
                return f"{name}: {holding.key} is {stage.name}"
            cut = self.grid.wires.owned[name].cut
            for number, account in broker.state.channels.accounts.items():
                if account.is_usable is (number in cut):
                    return f"{name}: of channel {account.channel.label} it is not known how it is"
        return None

    def _unrest_of_promises(self) -> str | None:
        assert self._answers is not None
        return unrest_of_promises(self.grid, self._answers.granted)
