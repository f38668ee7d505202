"""Effects of operations on subscriptions: contracts, their live changes, and patterns.

A contract whose paths the broker's file no longer contains is unplaced: it is kept in the registry
without reservation or orders, until `placement.py` finds it other paths.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import structs

from gridstat.broker.capacity.allocation import (
    Allocation,
    AllocationRequest,
    gates_used,
    pairs_used,
)
from gridstat.broker.records.operations import (
    MatchingLeft,
    Moved,
    PatternHeld,
    Retired,
    Subscribed,
    Unsubscribed,
)
from gridstat.broker.records.parent_operations import SegmentCommitted
from gridstat.broker.records.registry import Retiring, Subscription
from gridstat.broker.tables.router_orders import RoutedOrder, path_orders

if TYPE_CHECKING:
    from gridstat.broker.effects.reservations import Reservations
    from gridstat.broker.leaf_capability import Apply
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.records.operations import Operation
    from gridstat.broker.records.registry import Registry
    from gridstat.broker.tables.router_tables import RouterTables
    from gridstat.model.status import StatusVariable

RETIRING_MAX: Final = 64
"""Limit of a contract's generations on the routers; path identifiers hold their low byte."""


class ContractEffects:
    """Applies contracts; each live one is reserved, and ordered at every router of its paths."""

    def __init__(
        self, registry: Registry, reservations: Reservations, tables: RouterTables
    ) -> None:
        self._registry = registry
        self._reservations = reservations
        self._tables = tables

    def operations(self) -> dict[type[Operation], Apply]:
        return {
            Subscribed: self._subscribe,
            Unsubscribed: self._unsubscribe,
            Moved: self._move,
            Retired: self._retire,
            PatternHeld: self._hold_pattern,
            MatchingLeft: self._match_later,
            SegmentCommitted: self._commit_segment,
        }

    def _subscribe(self, record: Subscribed, done: Applied) -> None:
        registry = self._registry
        registry.subscription_id_last = max(registry.subscription_id_last, record.subscription_id)
        variable = self._variable_of(record)
        if (
            record.subscription_id in registry.subscriptions
            or variable is None
            or not (record.exits or record.subscriber in registry.endpoints)
        ):
            return
        if record.contract:
            key = record.contract, record.segment_generation
            before = registry.tree.segment(*key)  # Of an unplaced contract that gets paths now.
            registry.tree.add_segment(*key, record.subscription_id)
            done.undo.append(
                partial(registry.tree.add_segment, *key, before)
                if before
                else partial(registry.tree.remove_segment, *key)
            )
        if not self._reservations.holds(record.subscription_id):
            if not self._reservations.has_elements_of(record.paths):
                registry.unplaced[record.subscription_id] = record
                return
            self._reservations.adopt(allocation_of(record, variable))
        found = Subscription(record, variable)
        registry.add_subscription(found)
        done.undo += [
            partial(self._reservations.release, record.subscription_id),
            partial(registry.remove_subscription, record.subscription_id),
        ]
        orders = self._orders(record)
        done.tables += [
            partial(self._tables.set_up, variable, orders, local_edges(record)),
            partial(found.order, record, variable),
        ]

    def _unsubscribe(self, operation: Unsubscribed, done: Applied) -> None:
        self._end(operation.subscription_id, done)

    def _end(self, subscription_id: int, done: Applied) -> None:
        registry = self._registry
        held = registry.remove_pattern(subscription_id)
        if held is not None:
            done.undo.append(partial(registry.add_pattern, held))
            return
        unplaced = registry.unplaced.pop(subscription_id, None)
        if unplaced is not None:
            done.undo.append(partial(registry.unplaced.__setitem__, subscription_id, unplaced))
            self._end_segment(unplaced, done)
        found = registry.subscriptions.get(subscription_id)
        if found is None:
            return
        record, variable = found.record, found.variable
        self._end_segment(record, done)
        orders = self._orders(record)
        registry.remove_subscription(subscription_id)
        retiring = self._reservations.retiring_claims(subscription_id)
        self._reservations.release(subscription_id)
        done.undo += [
            partial(registry.add_subscription, found),
            partial(self._reservations.restore_released, allocation_of(record, variable), retiring),
        ]
        done.tables.append(partial(self._tables.tear_down, variable, orders, local_edges(record)))
        found.retire(record.generation, done, with_held=True)

    def _move(self, operation: Moved, done: Applied) -> None:
        self._replace(operation, done)
        if not (operation.with_publication or operation.until_retired):
            self._retire(operation.subscription, done)

    def _replace(self, operation: Moved, done: Applied) -> None:
        """Add a new generation beside the old one, which retires once the new one is up."""
        registry, record = self._registry, operation.subscription
        unplaced = registry.unplaced.pop(record.subscription_id, None)
        if unplaced is not None:
            done.undo.append(
                partial(registry.unplaced.__setitem__, record.subscription_id, unplaced)
            )
            self._subscribe(record, done)
            return
        found = registry.subscriptions.get(record.subscription_id)
        if found is None or found.record.generation == record.generation:
            return
        if not self._reservations.has_elements_of(record.paths):
            # Only at a start, if the broker's file no longer contains the new paths.
            self._end(record.subscription_id, done)
            registry.unplaced[record.subscription_id] = record
            if record.contract:
                number = record.subscription_id
                registry.tree.add_segment(record.contract, record.segment_generation, number)
            return
        old, old_variable = found.record, found.variable
        new_variable = self._variable_of(record)
        assert new_variable is not None, "a live contract has a variable"
        old_orders, new_orders = self._orders(old), self._orders(record)
        self._reservations.move(
            allocation_of(record, new_variable),
            record.generation,
            is_in_place=operation.in_place,
        )
        registry.replace_record(found, record, new_variable)
        retiring = Retiring(
            record.generation,
            (
                partial(self._tables.tear_down, old_variable, old_orders, local_edges(old)),
                partial(
                    self._reservations.release_retired, record.subscription_id, record.generation
                ),
            ),
            operation.with_publication,
            old,
            operation.in_place,
        )
        found.retiring.append(retiring)
        done.undo += [
            partial(
                self._reservations.revert_change,
                allocation_of(old, old_variable),
                record.generation,
            ),
            partial(registry.replace_record, found, old, old_variable),
            partial(found.keep, retiring),
        ]
        done.tables += [
            partial(self._tables.set_up, new_variable, new_orders, local_edges(record)),
            partial(found.order, record, new_variable),
        ]
        if len(found.retiring) > RETIRING_MAX:
            found.retire(found.retiring[0].generation, done)

    def _commit_segment(self, operation: SegmentCommitted, done: Applied) -> None:
        """Order a segment at its routers that was only reserved before."""
        registry, subscription_id = self._registry, operation.subscription_id
        unplaced = registry.unplaced.get(subscription_id)
        if unplaced is not None:
            registry.unplaced[subscription_id] = structs.replace(unplaced, is_reserved=False)
            done.undo.append(partial(registry.unplaced.__setitem__, subscription_id, unplaced))
        found = registry.subscriptions.get(subscription_id)
        if found is None or not found.record.is_reserved:
            return
        before, variable = found.record, found.variable
        record = structs.replace(before, is_reserved=False)
        registry.replace_record(found, record, variable)
        done.undo.append(partial(registry.replace_record, found, before, variable))
        orders = self._orders(record)
        done.tables += [
            partial(self._tables.set_up, variable, orders, local_edges(record)),
            partial(found.order, record, variable),
        ]

    def _end_segment(self, record: Subscribed, done: Applied) -> None:
        """Remove a segment from the index, and note its end for the parent if it was committed."""
        if not record.contract:
            return
        tree, key = self._registry.tree, (record.contract, record.segment_generation)
        tree.remove_segment(*key)
        done.undo.append(partial(tree.add_segment, *key, record.subscription_id))
        if not record.is_reserved:
            begun_here = "" if record.entries else record.name
            done.tables.append(partial(tree.news.ended_segments.append, (*key, begun_here)))

    def _variable_of(self, record: Subscribed) -> StatusVariable | None:
        if record.foreign is not None:
            return record.foreign
        publication = self._registry.publications.get(record.name)
        return None if publication is None else publication.variable

    def _retire(self, operation: Retired | Subscribed, done: Applied) -> None:
        found = self._registry.subscriptions.get(operation.subscription_id)
        if found is not None:
            found.retire(operation.generation, done)

    def _hold_pattern(self, held: PatternHeld, done: Applied) -> None:
        registry = self._registry
        registry.subscription_id_last = max(registry.subscription_id_last, held.pattern_id)
        if held.pattern_id not in registry.patterns and held.subscriber in registry.endpoints:
            registry.add_pattern(held)
            done.undo.append(partial(registry.remove_pattern, held.pattern_id))
            done.tables.append(partial(registry.tree.news.patterns.append, held.pattern_id))

    def _match_later(self, operation: MatchingLeft, done: Applied) -> None:
        left, key = self._registry.matching_left, (operation.pattern_id, operation.name)
        if operation.is_over:
            left.pop(key, None)
            done.undo.append(partial(left.setdefault, key))
        elif key not in left:
            left[key] = None
            done.undo.append(partial(left.pop, key, None))

    def _orders(self, record: Subscribed) -> list[RoutedOrder]:
        if record.is_reserved:
            return []
        if record.exits:
            return path_orders(record, {})
        return path_orders(record, self._registry.endpoints[record.subscriber].attachments)


def allocation_of(record: Subscribed, variable: StatusVariable) -> Allocation:
    """Return a contract in the form that the allocator holds."""
    request = AllocationRequest(
        subscription_id=record.subscription_id,
        variable=variable,
        sources=record.sources,
        targets=record.targets,
        qos=record.qos,
        subscriber=record.subscriber,
        entries=record.entries,
        exits=record.exits,
        charged_to=record.charged_to,
        every_worst=record.every_worst,
        is_paired=record.is_paired,
    )
    return Allocation(
        request=request,
        granted=record.granted,
        paths=record.paths,
        is_node_disjoint=record.is_node_disjoint,
        shares_edge=record.shares_edge,
        degraded=record.degraded,
    )


def uses_its_gates(record: Subscribed) -> bool:
    """Return whether each entry and each exit of a segment has one path, as they are paired."""
    if record.is_paired:
        inside = [(path.routers[0], path.routers[-1]) for path in record.paths]
        return pairs_used(record.entries, record.exits, inside) is not None
    ends = (record.entries, 0), (record.exits, -1)
    return all(
        not gates or gates_used(gates, [path.routers[at] for path in record.paths]) is not None
        for gates, at in ends
    )


def local_edges(record: Subscribed) -> tuple[str, ...]:
    """Return the edges that serve a local subscriber; none for segments that leave the cloud."""
    if record.exits or record.is_reserved:
        return ()
    if len(record.paths) == 1:
        return record.paths[0].routers[-1:]
    return tuple(sorted({path.routers[-1] for path in record.paths}))
