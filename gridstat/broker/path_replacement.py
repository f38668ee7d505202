"""Planning of other paths for contracts whose paths failed, or are refused by a router (S0 A19).

A plan is reserved and neither journalled nor sent. `recovery.py` and `requests/pending_grants.py`
commit it as `Moved`, and the old paths are released only after the new ones are confirmed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.capacity.allocation import AllocationRequest, Refusal
from gridstat.broker.effects.contract_effects import allocation_of, uses_its_gates
from gridstat.broker.requests.subscriptions import renewed
from gridstat.broker.routers.path_moves import routers_of

if TYPE_CHECKING:
    from gridstat.broker.capacity.allocation import Allocation
    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operations import Subscribed
    from gridstat.broker.records.registry import Subscription
    from gridstat.broker.routers.router_health import RouterHealth
    from gridstat.broker.routers.row_refusals import RowRefusals


class PathReplacement:
    """Returns the next generation of a contract, or None if its paths stay as they are."""

    def __init__(self, context: BrokerContext, health: RouterHealth, refusals: RowRefusals) -> None:
        self._context = context
        self._health = health
        self._refusals = refusals

    def around_refusals(self, record: Subscribed) -> Subscribed | None:
        """Replace the paths of a contract of which a router has just refused the row."""
        for name in routers_of((record,)):
            self._refusals.update(name, self._context.tables[name].refused)
        found = self._context.registry.subscriptions.get(record.subscription_id)
        if found is None or found.record is not record:
            return None
        self._health.clear_routes()
        return self.around_failures(found)

    def around_failures(self, found: Subscription) -> Subscribed | None:
        """Replace the paths of a contract that do not work, as far as there are others."""
        old = record = found.record
        for index in self.broken_paths(old):
            if index not in self.broken_paths(record):
                continue  # An earlier replacement has chosen all paths anew.
            record = self._next_generation(old, self._allocate(found, index)) or record
        return None if record is old else record

    def onto_free_edge(self, found: Subscription, record: Subscribed) -> Subscribed | None:
        """Move one of two paths that share an edge to an edge that no path of `record` uses."""
        crowded = self._crowded_path(record)
        if crowded is None or self._health.failed_paths(record):
            return None
        index, edges = crowded
        spread = self._context.reservations.replace_path(self._request(found), index, edges)
        return self._next_generation(found.record, spread)

    def is_crowded(self, record: Subscribed) -> bool:
        """Return whether two paths share an edge while another edge is free."""
        return self._crowded_path(record) is not None

    def broken_paths(self, record: Subscribed) -> list[int]:
        """Return the indices of the paths that failed, or that a router refuses to carry."""
        failed, refused = self._health.failed_paths(record), self._health.refused_paths(record)
        return sorted({*failed, *refused}) if refused else failed

    def _allocate(self, found: Subscription, index: int) -> Allocation | Refusal | None:
        """Reserve another path of the same quality, between the present edges of the end-points.

        If there is none and the end-points have moved, any quality of the requested band is
        accepted. Return None if no usable channels connect the two ends.
        """
        record, request = found.record, self._request(found)
        if not self._health.has_route(request.sources, request.targets):
            return None
        allocated = self._context.reservations.replace_path(request, index)
        has_moved = (request.sources, request.targets) != (record.sources, record.targets)
        if not isinstance(allocated, Refusal) or not has_moved:
            return allocated
        if len(self._health.failed_paths(record)) < len(record.paths):
            return allocated  # A working path is not given up for less than was granted.
        return self._context.reservations.change(request, is_kept=True)

    def _request(self, found: Subscription) -> AllocationRequest:
        sources, targets = self._health.ends(found.record)
        return AllocationRequest(
            subscription_id=found.record.subscription_id,
            variable=found.variable,
            sources=sources or found.record.sources,
            targets=targets or found.record.targets,
            qos=found.record.qos,
            subscriber=found.record.subscriber,
            entries=found.record.entries,
            exits=found.record.exits,
            charged_to=found.record.charged_to,
            every_worst=found.record.every_worst,
            is_paired=found.record.is_paired,
        )

    def _crowded_path(self, record: Subscribed) -> tuple[int, set[str]] | None:
        """Return a path that shares an edge while another edge is free, and the edges in use."""
        if not record.shares_edge:
            return None
        sources, targets = self._health.ends(record)
        for end, edges in ((0, sources), (-1, targets)):
            used = [path.routers[end] for path in record.paths]
            if len(set(used)) < min(len(used), len(edges)):
                index = next(i for i, edge in enumerate(used) if edge in used[:i])
                return index, set(used)
        return None

    def _next_generation(
        self, old: Subscribed, allocated: Allocation | Refusal | None
    ) -> Subscribed | None:
        """Return the contract on its new paths; undo an allocation that leaves its borders."""
        if allocated is None or isinstance(allocated, Refusal):
            return None
        record = renewed(old, allocated)
        if uses_its_gates(record):
            return record
        found = self._context.registry.subscriptions[old.subscription_id]
        before = allocation_of(old, found.variable)
        self._context.reservations.revert_change(before, record.generation)
        return None
