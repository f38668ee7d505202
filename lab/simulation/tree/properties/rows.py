"""The rows of all routers, computed again from the state of the brokers; there are no others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from lab.simulation.modes import active_with, terms
from lab.simulation.tree.properties.promises import contracts_between, is_cut
from lab.simulation.world import PropertyBroken
from lab.tree_plan import cloud_of

if TYPE_CHECKING:
    from gridstat.broker.leaf_broker import LeafBroker
    from gridstat.broker.records.operations import Subscribed
    from gridstat.model.qos import Qos
    from lab.simulation.endpoint_node import EndPointNode
    from lab.simulation.router_node import RouterNode
    from lab.simulation.tree.grid import TreeGrid

ROWS: Final = "tables are those of the contracts"
ARRIVE: Final = "events reach those who take them, and nobody else"
SLOTS: Final = (0, 1, 2, 3, 4, 6)

Row = tuple[int, int, tuple[int, int, int]]
"""Variable, channel; divisor, priority and mode mask."""

Taker = tuple[str, Mapping[int, "Qos"]]
"""A subscriber, and its granted quality in each mode."""


def check_rows(grid: TreeGrid) -> None:
    """Check that broker, agent and core of every router hold exactly the rows of the contracts."""
    for leaf in grid.leaves().values():
        expected = _expected(leaf)
        for name in leaf.registry.routers:
            node, wanted = grid.routers[name], leaf.tables[name].wanted
            found = Counter(
                (order.variable_id, order.channel_id, (order.every, order.priority, order.modes))
                for order in node.table.paths.values()
            )
            if found != expected[name]:
                raise PropertyBroken(
                    ROWS, f"{name} has {found - expected[name]}, lacks {expected[name] - found}"
                )
            _check_in_step(name, node, wanted.digest)
            carried = {order.variable_id for order in node.table.paths.values()}
            published = _published_at(leaf, name)
            flooded = {int(one.variable.variable_id) for one in leaf.floods.variables.values()}
            if node.table.variables.keys() != carried | published | flooded:
                raise PropertyBroken(ROWS, f"{name} carries {sorted(node.table.variables)}")


def check_bare(grid: TreeGrid) -> None:
    """Check that routers without attachments hold only their channels with each other."""
    for leaf in grid.leaves().values():
        known = leaf.registry.channels.keys() | leaf.registry.tree.borders.keys()
        for name in leaf.registry.routers:
            node = grid.routers[name]
            extra = [*node.table.variables, *node.table.paths]
            extra += (node.table.channels.keys() | node.table.sources.keys()) - known
            if extra:
                raise PropertyBroken("nothing is left behind", f"orders {extra} of router {name}")
            _check_in_step(name, node, leaf.tables[name].wanted.digest)


def _check_in_step(name: str, node: RouterNode, digest: int) -> None:
    if node.agent is None or node.agent.table.digest != digest:
        raise PropertyBroken("tables are in step", f"{name} has another digest")


def _published_at(leaf: LeafBroker, router: str) -> set[int]:
    registry = leaf.registry
    return {
        int(publication.variable.variable_id)
        for publication in registry.publications.values()
        if router in registry.endpoints[publication.publisher].attachments
    }


def _expected(leaf: LeafBroker) -> dict[str, Counter[Row]]:
    found: dict[str, Counter[Row]] = {name: Counter() for name in leaf.registry.routers}
    for subscription in leaf.registry.subscriptions.values():
        record = subscription.record
        if record.is_reserved:
            continue
        number = int(subscription.variable.variable_id)
        lasts = _lasts(leaf, record)
        for index, path in enumerate(record.paths):
            channels = (*path.channel_ids, lasts[index])
            for router, channel_id in zip(path.routers, channels, strict=True):
                some = terms(record.granted, index)
                found[router].update((number, channel_id, term) for term in some)
    return found


def _lasts(leaf: LeafBroker, record: Subscribed) -> list[int]:
    """Return the channel by which each path leaves its last router."""
    if not record.exits:
        attachments = leaf.registry.endpoints[record.subscriber].attachments
        return [attachments[path.routers[-1]].down_channel_id for path in record.paths]
    left = list(record.exits)
    found = []
    for path in record.paths:
        gate = next(one for one in left if one[0] == path.routers[-1])
        left.remove(gate)
        found.append(gate[1])
    return found


# Delivery of events.


def check_deliveries(grid: TreeGrid) -> None:
    """Check that every slot of every variable reaches its subscribers, and no other."""
    takers, unreached = _takers(grid), _unreached(grid)
    owners = {
        (edge, here.down_channel_id): name
        for leaf in grid.leaves().values()
        for name, endpoint in leaf.registry.endpoints.items()
        for edge, here in endpoint.attachments.items()
    }
    for publisher in grid.endpoints.values():
        for name, variable in publisher.application.publications.items():
            helpless = unreached.get(name, set())
            some = takers.get(name, [])
            for mode in sorted({0, *(mode for _, granted in some for mode in granted)}):
                everys = _everys_in(mode, some)
                for slot in SLOTS:
                    active = active_with(mode)
                    arrived = arrivals(grid, publisher, variable.variable_id, slot, active)
                    reached = {owners.get(where, "nobody") for where in arrived}
                    due = {who for who, some in everys.items() if any(not slot % n for n in some)}
                    if reached - helpless != due - helpless:
                        raise PropertyBroken(
                            ARRIVE,
                            f"slot {slot} of {name} in mode {mode} reached {sorted(reached)}, "
                            f"not {sorted(due)}",
                        )


def _everys_in(mode: int, takers: list[Taker]) -> dict[str, set[int]]:
    """Return the divisors at which each subscriber takes a variable while this mode is active."""
    found: dict[str, set[int]] = {}
    for who, granted in takers:
        for one, qos in granted.items():
            if one in (0, mode):
                found.setdefault(who, set()).add(qos.every)
    return found


def _takers(grid: TreeGrid) -> dict[str, list[Taker]]:
    """Return the subscribers of each variable with their quality, as leaf brokers granted it."""
    found: dict[str, list[Taker]] = {}
    for leaf in grid.leaves().values():
        for subscription in leaf.registry.subscriptions.values():
            record = subscription.record
            if not record.contract:
                found.setdefault(record.name, []).append((record.subscriber, record.granted))
        for asked in leaf.registry.tree.asked.values():
            assert asked.granted is not None
            taker = asked.record.subscriber, asked.granted.granted
            found.setdefault(asked.record.name, []).append(taker)
    return found


def _unreached(grid: TreeGrid) -> dict[str, set[str]]:
    """Return subscribers with only cut paths; an event may reach them by another's path though."""
    found: dict[str, set[str]] = {}
    for contract in contracts_between(grid):
        if all(is_cut(grid, path) for path in contract.granted.paths):
            found.setdefault(contract.name, set()).add(contract.subscriber)
    return found


def arrivals(
    grid: TreeGrid, publisher: EndPointNode, variable_id: int, slot: int, active: int
) -> set[tuple[str, int]]:
    """Return edges and channels by which an event of this slot leaves for an end-point."""
    found: set[tuple[str, int]] = set()
    seen: set[str] = set()
    open_routers: list[RouterNode] = []
    for edge, up in sorted(publisher.channels_up.items()):
        router = grid.routers[edge]
        order = router.table.variables.get(variable_id)
        if order is not None and order.source == up and up in router.table.sources:
            open_routers.append(router)
            seen.add(edge)
    while open_routers:
        here = open_routers.pop()
        leaving = {
            path.channel_id
            for path in here.table.paths.values()
            if path.variable_id == variable_id and path.modes & active and not slot % path.every
        }
        for channel_id in sorted(leaving):
            if grid.wires.is_cut(cloud_of(here.name), channel_id):
                continue
            name = grid.wires.receiver(cloud_of(here.name), channel_id)
            if not name:
                found.add((here.name, channel_id))
                continue
            router = grid.routers[name]
            is_taken = channel_id in router.table.sources and variable_id in router.table.variables
            if name not in seen and is_taken:
                seen.add(name)
                open_routers.append(router)
    return found
