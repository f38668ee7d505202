"""Make before break: a contract that is up stays up while its paths move.

The check runs whenever a router tears paths down: an event that its publisher sends at this moment
must still arrive, as long as no router is away or being rebuilt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.broker.tables.router_orders import path_orders
from lab.simulation.properties.delivery import arrivals
from lab.simulation.world import PropertyBroken

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.records.registry import Subscription
    from lab.simulation.cloud import Cloud

RULE: Final = "make before break"


class Continuity:
    """Check of contracts that are in force; an ended contract may be torn down."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def torn_down(self, path_ids: Iterable[int]) -> None:
        broker = self._cloud.broker
        if broker is None or not self._is_calm():
            return
        for number in sorted({path_id >> 16 for path_id in path_ids}):
            found = broker.registry.subscriptions.get(number)
            if found is not None and found.record.generation > 0:
                self._check(found)
                self._check_rows(found)

    def _is_calm(self) -> bool:
        cloud = self._cloud
        return cloud.crashes == 0 and all(router.is_up for router in cloud.routers.values())

    def _check_rows(self, subscription: Subscription) -> None:
        """Check that all routers of some path, old or new, have it, even if it is cut."""
        broker = self._cloud.broker
        assert broker is not None
        attachments = broker.registry.endpoints[subscription.record.subscriber].attachments
        records = [subscription.record, *(found.replaced for found in subscription.retiring)]
        paths: dict[int, bool] = {}
        for record in records:
            for router, order in path_orders(record, attachments):
                is_here = order.path_id in self._cloud.routers[router].table.paths
                paths[order.path_id] = paths.get(order.path_id, True) and is_here
        if not any(paths.values()):
            number = subscription.record.subscription_id
            raise PropertyBroken(RULE, f"subscription {number} is not whole anywhere")

    def _check(self, subscription: Subscription) -> None:
        broker = self._cloud.broker
        assert broker is not None
        registry, record = broker.registry, subscription.record
        publication = registry.publications.get(record.name)
        subscriber = registry.endpoints.get(record.subscriber)
        if publication is None or subscriber is None:
            return
        publisher = self._cloud.endpoints[publication.publisher]
        variable = publisher.application.publications.get(record.name)
        if variable is None or variable != publication.variable or not publisher.is_up:
            return  # The publisher changes its period or is absent.
        if publisher.attached != registry.endpoints[publisher.name].attachments.keys():
            return  # Back at one edge, it does not send to the other yet.
        if publisher.attached.isdisjoint(path.routers[0] for path in record.paths):
            return  # It has come back elsewhere since, and the contract moves once more.
        downs = {here.down_channel_id for here in subscriber.attachments.values()}
        if downs.isdisjoint(arrivals(self._cloud, publisher, variable.variable_id, 0)):
            raise PropertyBroken(
                RULE, f"subscription {record.subscription_id} has no way while it moves"
            )
