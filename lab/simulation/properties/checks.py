"""All properties of a cloud, and the moments of their checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.simulation.model_keys import unrest_of_keys
from lab.simulation.properties.agreement import (
    check_agreement,
    check_nothing_is_left,
    check_patterns,
)
from lab.simulation.properties.answers import Answers
from lab.simulation.properties.continuity import Continuity
from lab.simulation.properties.delivery import check_deliveries, is_turned_away
from lab.simulation.properties.ledger import (
    check_capacity,
    check_law,
    check_ledger,
    check_no_promise,
)
from lab.simulation.properties.presence import Presence
from lab.simulation.properties.shares import check_shares
from lab.simulation.properties.tables import check_bare_tables, check_tables
from lab.simulation.properties.unrest import (
    absent,
    unrest_of_endpoints,
    unrest_of_sessions,
    unusable,
)
from lab.simulation.rules import check_rules

if TYPE_CHECKING:
    from gridstat.broker.leaf_broker import LeafBroker
    from gridstat.net.command.endpoint_messages import Outcome
    from lab.simulation.application import Asked
    from lab.simulation.cloud import Cloud
    from lab.simulation.endpoint_node import EndPointNode


class Properties:
    """Checks that raise `PropertyBroken` at the first property that does not hold."""

    def __init__(self) -> None:
        self._cloud: Cloud | None = None
        self._presence: Presence | None = None
        self._answers = Answers()

    def watch(self, cloud: Cloud) -> None:
        """Check this cloud from now on."""
        self._cloud = cloud
        self._answers.watch(cloud)
        continuity = Continuity(cloud)
        cloud.on_restored = self._answers.restored
        cloud.on_journal_lost = self._answers.journal_lost
        cloud.on_returned = self._answers.returned
        cloud.on_pushed = self._answers.pushed
        presence = self._presence = Presence(cloud)
        cloud.on_grace_over = presence.grace_over
        for router in cloud.routers.values():
            router.on_torn_down = continuity.torn_down

    @property
    def cloud(self) -> Cloud:
        assert self._cloud is not None
        return self._cloud

    def answered(self, node: EndPointNode, asked: Asked, outcomes: tuple[Outcome, ...]) -> None:
        self._answers.answered(node, asked, outcomes)

    def not_answered(self, node: EndPointNode, asked: Asked) -> None:
        self._answers.not_answered(node, asked)

    def check_safety(self) -> None:
        """Check the properties that are cheap enough for every moment."""
        self._look_at_presence()
        if self.cloud.broker is not None:
            check_capacity(self.cloud.broker)
            check_shares(self.cloud.broker)

    def check_rest(self) -> None:
        """Check at rest, when no message is in transit, that all nodes agree."""
        broker = self._broker()
        check_rules(broker)
        check_agreement(self.cloud, broker)
        check_patterns(self.cloud, broker)
        check_ledger(broker)
        check_law(broker)
        check_tables(self.cloud, broker)
        check_deliveries(self.cloud, broker)

    def check_empty(self) -> None:
        """Check that nothing of the end-points is left once all have left."""
        broker = self._broker()
        check_nothing_is_left(broker)
        check_no_promise(broker)
        check_shares(broker)
        check_bare_tables(self.cloud, broker)

    def unrest(self) -> str | None:
        """Return what is still in progress, or None."""
        self._look_at_presence()
        cloud = self.cloud
        if cloud.broker is None:
            return "the broker is down"
        return (
            self._unrest_of_routers(cloud.broker)
            or unrest_of_sessions(self.cloud.network)
            or unrest_of_endpoints(self.cloud.endpoints)
            or self._unrest_of_keys(cloud.broker)
            or unrest_of_keys(node.keys for node in cloud.endpoints.values() if node.is_up)
            or self._unrest_of_broker(cloud.broker)
            or (None if cloud.operator.is_idle else "the operator waits")
        )

    def _look_at_presence(self) -> None:
        assert self._presence is not None
        self._presence.look()

    def _broker(self) -> LeafBroker:
        assert self.cloud.broker is not None
        return self.cloud.broker

    def _unrest_of_routers(self, broker: LeafBroker) -> str | None:
        for name in broker.registry.routers:
            node = self.cloud.routers.get(name)
            if node is None or not node.is_up:
                continue  # Added, and its process not started.
            if not broker.tables[name].is_in_step:
                return f"router {name} is not in step"
            if node.agent is None or not node.agent.is_accepted:
                return f"router {name} has no broker"
        return None

    def _unrest_of_keys(self, broker: LeafBroker) -> str | None:
        """Return a channel to a router of the cloud whose ends do not agree on a key."""
        routers = [self.cloud.routers.get(name) for name in broker.registry.routers]
        return unrest_of_keys(node.keys for node in routers if node is not None and node.is_up)

    def _unrest_of_broker(self, broker: LeafBroker) -> str | None:
        registry = broker.registry
        if not self.cloud.journal.is_idle:
            return "the journal writes"
        if registry.changing:
            return f"a change of period is under way: {sorted(registry.changing)}"
        if registry.matching_left:
            return f"patterns are being matched: {list(registry.matching_left)[:3]}"
        for number, subscription in registry.subscriptions.items():
            is_impaired = bool(subscription.troubles)
            if subscription.retiring or (
                is_impaired and not is_turned_away(self.cloud, broker, subscription.record)
            ):
                return f"subscription {number} moves or is impaired: {subscription.troubles}"
        return absent(broker) or unusable(broker, self.cloud.routers)
