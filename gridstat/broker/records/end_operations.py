"""Operations that end contracts, variables and end-points, in order, and the notices about them.

Dependents end first: subscriptions before their variable, all registrations before the end-point.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gridstat.broker.records.operations import (
    AttachmentEnded,
    EndPointEnded,
    Published,
    Unsubscribed,
    Withdrawn,
)
from gridstat.broker.records.parent_operations import ContractEnding
from gridstat.broker.records.parent_state import contract_name
from gridstat.net.command.endpoint_messages import Unpublished

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.records.operations import Operation
    from gridstat.broker.records.registry import EndPoint, Registry


@dataclass(slots=True)
class Ending:
    """Operations to commit, and the notices to send once the operations are durable."""

    operations: list[Operation] = field(default_factory=list)
    notices: list[tuple[str, Unpublished]] = field(default_factory=list)
    routers: set[str] = field(default_factory=set)

    def unsubscribe(self, registry: Registry, subscription_ids: Iterable[int]) -> None:
        """End subscriptions; a contract across clouds ends with all of its segments in this
        cloud."""
        tree = registry.tree
        for subscription_id in sorted(subscription_ids):
            if subscription_id in tree.asked:
                contract = contract_name(registry.cloud, subscription_id)
                self.unsubscribe(registry, tree.segments.get(contract, {}).values())
                self.operations.append(ContractEnding(number=subscription_id))
                continue
            self.operations.append(Unsubscribed(subscription_id=subscription_id))
            found = registry.subscriptions.get(subscription_id)
            if found is not None:
                self.routers |= {name for path in found.record.paths for name in path.routers}

    def withdraw(self, registry: Registry, names: Iterable[str], *, but_not: str = "") -> None:
        """Withdraw variables after ending their subscriptions; `but_not` is not notified."""
        unplaced: dict[str, dict[int, str]] = {}
        for record in registry.unplaced.values():
            unplaced.setdefault(record.name, {})[record.subscription_id] = record.subscriber
        for name in sorted(names):
            subscribers = unplaced.get(name, {}) | {
                subscription_id: registry.subscriptions[subscription_id].record.subscriber
                for subscription_id in registry.publications[name].subscriptions
            }
            self.unsubscribe(registry, subscribers)
            for subscription_id, subscriber in sorted(subscribers.items()):
                if subscriber and subscriber != but_not:
                    notice = Unpublished(subscription_id=subscription_id, name=name)
                    self.notices.append((subscriber, notice))
            self.operations.append(Withdrawn(name=name))

    def end(self, registry: Registry, endpoint: EndPoint, *, request_id: int = 0) -> None:
        """End an end-point and all that it has; `request_id` is its own request to leave, if
        any."""
        self.unsubscribe(registry, registry.contracts_of(endpoint) | endpoint.patterns)
        self.withdraw(registry, endpoint.publications, but_not=endpoint.name)
        self._leave_edges(endpoint)
        floor = max(endpoint.answer_cache.newest(), request_id)
        self.operations.append(EndPointEnded(endpoint=endpoint.name, floor=floor))

    def restart(self, registry: Registry, endpoint: EndPoint) -> None:
        """End all but the publications of a restarted end-point; publications become dormant."""
        self.unsubscribe(registry, registry.contracts_of(endpoint) | endpoint.patterns)
        for name in sorted(endpoint.publications):
            variable = registry.publications[name].variable
            self.operations.append(
                Published(publisher=endpoint.name, variable=variable, is_dormant=True)
            )
        self._leave_edges(endpoint)

    def _leave_edges(self, endpoint: EndPoint) -> None:
        self.routers |= set(endpoint.attachments)
        self.operations += [
            AttachmentEnded(endpoint=endpoint.name, edge=edge)
            for edge in sorted(endpoint.attachments)
        ]
