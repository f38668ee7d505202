"""Delivery of events: a walk from a publisher's edges through the tables of the routers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lab.simulation.modes import active_with
from lab.simulation.world import PropertyBroken

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.leaf_broker import LeafBroker
    from gridstat.broker.records.operations import Subscribed
    from gridstat.model.cloud import EventChannel
    from lab.simulation.cloud import Cloud
    from lab.simulation.endpoint_node import EndPointNode
    from lab.simulation.router_node import RouterNode

SLOTS: Final = (0, 1, 2, 3, 4, 6)
ANY_MODE: Final = -1
"""Mask with all modes active at once."""
RULE: Final = "events arrive exactly once"


def check_deliveries(cloud: Cloud, broker: LeafBroker) -> None:
    """Check that every slot of every variable reaches its subscribers, and no other end-point."""
    registry = broker.registry
    for subscription in registry.subscriptions.values():
        check_paths(cloud, subscription.record, broker)
    owners = {
        here.down_channel_id: name
        for name, endpoint in registry.endpoints.items()
        for here in endpoint.attachments.values()
    }
    for name, publication in registry.publications.items():
        publisher = cloud.endpoints[publication.publisher]
        takers = [registry.subscriptions[number].record for number in publication.subscriptions]
        variable_id = publisher.application.publications[name].variable_id
        if not takers:
            if arrivals(cloud, publisher, variable_id, 0):
                raise PropertyBroken(RULE, f"{name} reaches somebody, and nobody takes it")
            continue
        for mode in sorted({0, *(mode for record in takers for mode in record.granted)}):
            _check_in_mode(cloud, publisher, variable_id, mode, takers, owners)


def _check_in_mode(
    cloud: Cloud,
    publisher: EndPointNode,
    variable_id: int,
    mode: int,
    takers: list[Subscribed],
    owners: dict[int, str],
) -> None:
    """Check every slot while this mode is active, beside the baseline."""
    taken = everys_in(mode, takers)
    all_everys = {every for some in taken.values() for every in some}
    for slot in SLOTS if all_everys != {1} else SLOTS[:2]:
        arrived = arrivals(cloud, publisher, variable_id, slot, active_with(mode))
        what = f"slot {slot} of variable {variable_id} in mode {mode}"
        if any(count > 1 for count in arrived.values()):
            raise PropertyBroken(RULE, f"{what} came twice by one channel")
        reached = {owners.get(channel_id, "nobody") for channel_id in arrived}
        due = {who for who, everys in taken.items() if any(not slot % n for n in everys)}
        if reached != due:
            raise PropertyBroken(RULE, f"{what} reached {sorted(reached)}, not {sorted(due)}")


def everys_in(mode: int, takers: Iterable[Subscribed]) -> dict[str, set[int]]:
    """Return the divisors at which each subscriber takes a variable while this mode is active."""
    found: dict[str, set[int]] = {}
    for record in takers:
        for one, qos in record.granted.items():
            if one in (0, mode):
                found.setdefault(record.subscriber, set()).add(qos.every)
    return found


def is_turned_away(cloud: Cloud, broker: LeafBroker, record: Subscribed) -> bool:
    """Return whether an end of this contract came back to an edge without room for it.

    Then a path that cannot be replaced stays as it was, and resumes when there is room again.
    """
    publisher = cloud.endpoints[broker.registry.publications[record.name].publisher]
    subscriber = cloud.endpoints[record.subscriber]
    return any(
        path.routers[0] in publisher.turned_away or path.routers[-1] in subscriber.turned_away
        for path in record.paths
    )


def check_paths(cloud: Cloud, record: Subscribed, broker: LeafBroker) -> None:
    """Check that the paths of a contract lead from edge to edge and are as disjoint as it says."""
    registry = broker.registry
    publisher, subscriber = registry.publications[record.name].publisher, record.subscriber
    sources = {*registry.endpoints[publisher].attachments, *cloud.endpoints[publisher].turned_away}
    targets = {
        *registry.endpoints[subscriber].attachments,
        *cloud.endpoints[subscriber].turned_away,
    }
    used: set[object] = set()
    inner: list[str] = []
    for path in record.paths:
        if path.routers[0] not in sources or path.routers[-1] not in targets:
            raise PropertyBroken("paths are connected", f"{path} leads not from edge to edge")
        for channel_id, ends in zip(
            path.channel_ids, zip(path.routers, path.routers[1:], strict=False), strict=True
        ):
            channel = registry.channels[channel_id]
            if (channel.from_router, channel.to_router) != ends:
                raise PropertyBroken("paths are connected", f"{path} breaks at {channel.label}")
        if not used.isdisjoint(path.channel_ids):
            raise PropertyBroken("paths are disjoint", f"{record.paths} share a channel")
        used.update(path.channel_ids)
        risks = risks_of([registry.channels[number] for number in path.channel_ids])
        if not used.isdisjoint(risks):
            raise PropertyBroken("paths are disjoint", f"{record.paths} share a link or a risk")
        used.update(risks)
        inner += path.routers[1:-1]
    if record.is_node_disjoint and len(set(inner)) != len(inner):
        raise PropertyBroken("paths are disjoint", f"{record.paths} share a router")
    if len(record.paths) != max(qos.redundancy for qos in record.granted.values()):
        raise PropertyBroken("paths are as many as granted", f"{record}")


def risks_of(channels: Iterable[EventChannel]) -> set[object]:
    """Return what a path can fail by: its links, whichever direction it uses, and named risks."""
    found: set[object] = set()
    for channel in channels:
        found.add((frozenset((channel.from_router, channel.to_router)), channel.name))
        found.update(channel.risks)
    return found


def arrivals(
    cloud: Cloud, publisher: EndPointNode, variable_id: int, slot: int, active: int = ANY_MODE
) -> dict[int, int]:
    """Return how often an event of this slot leaves by each channel to an end-point."""
    found: dict[int, int] = {}
    seen: set[str] = set()
    open_routers: list[RouterNode] = []
    for edge, up in sorted(publisher.channels_up.items()):
        router = cloud.routers[edge]
        order = router.table.variables.get(variable_id)
        if order is not None and order.source == up and up in router.table.sources:
            open_routers.append(router)
            seen.add(edge)
    ends = cloud.channels.ends
    while open_routers:
        table = open_routers.pop().table
        leaving = {
            path.channel_id
            for path in table.paths.values()
            if path.variable_id == variable_id and path.modes & active and not slot % path.every
        }
        for channel_id in sorted(leaving):
            if channel_id not in ends:
                found[channel_id] = found.get(channel_id, 0) + 1
                continue
            name = ends[channel_id][1]
            router = cloud.routers[name]
            if (
                name not in seen
                and channel_id in router.table.sources
                and variable_id in router.table.variables
            ):
                seen.add(name)
                open_routers.append(router)
    return found
