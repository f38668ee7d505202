"""Capacity and latency of a cloud, counted again from its contracts by the simulator's arithmetic.

`Load` is what contracts put on channels and routers. The broker's accounts, the limits of its
elements and the latencies of its contracts are compared with it.
"""

from __future__ import annotations

import operator
from fractions import Fraction
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from lab.simulation import arithmetic
from lab.simulation.arithmetic import EVENT_BYTES, events_of, is_sum, most, scaled, unscaled
from lab.simulation.world import PropertyBroken

if TYPE_CHECKING:
    from gridstat.broker.capacity.allocation import AllocatedPath
    from gridstat.broker.leaf_broker import LeafBroker
    from gridstat.broker.records.operations import Subscribed
    from gridstat.broker.records.registry import Registry
    from gridstat.model.cloud import EventChannel
    from gridstat.model.status import StatusVariable
    from lab.simulation.arithmetic import Amount

RULE: Final = "promises fit, and are those of the contracts"
LATE: Final = "new load makes no older contract late"
LAW: Final = "latencies are predicted by the law"
ALL_SLOTS: Final = frozenset({1})


class Load:
    """What all contracts take of channels, entries and exits while one mode is active.

    The baseline is always active, and beside it at most one mode.
    """

    def __init__(self, mode: int) -> None:
        self._active = (0, mode)
        self._over: dict[int, dict[StatusVariable, set[int]]] = {}
        self._into: dict[tuple[str, StatusVariable], set[int]] = {}
        self._out: dict[tuple[str, str, StatusVariable], set[int]] = {}
        self.channels: dict[int, Amount] = {}
        """Events a second over each channel, in parts."""
        self.bursts: dict[int, int] = {}
        """Events that may arrive at each channel at one instant."""
        self.routers: dict[str, Amount] = {}
        """Events a second in and out of each router, in parts."""

    def publish(self, edge: str, variable: StatusVariable) -> None:
        self._into.setdefault((edge, variable), set()).add(1)

    def subscribe(self, record: Subscribed, variable: StatusVariable) -> None:
        for index, path in enumerate(record.paths):
            everys = {
                qos.every
                for mode, qos in record.granted.items()
                if qos.redundancy > index and mode in self._active
            }
            if not record.entries:
                self.publish(path.routers[0], variable)
            for channel_id in path.channel_ids:
                of_channel = self._over.setdefault(channel_id, {})
                of_channel.setdefault(variable, set()).update(everys)
            if not record.exits:
                key = path.routers[-1], record.subscriber, variable
                self._out.setdefault(key, set()).update(everys)

    def total(self, registry: Registry) -> None:
        """Add all up; a channel loads the routers at both of its ends."""
        routers: dict[str, Amount] = dict.fromkeys(registry.routers, 0)
        for (edge, variable), everys in self._into.items():
            routers[edge] += events_of(variable, frozenset(everys))
        for (edge, _, variable), everys in self._out.items():
            routers[edge] += events_of(variable, frozenset(everys))
        for channel_id, carried in self._over.items():
            events: Amount = 0
            for variable, everys in carried.items():
                events += events_of(variable, frozenset(everys))
            channel = registry.channels[channel_id]
            routers[channel.from_router] += events
            routers[channel.to_router] += events
            self.channels[channel_id] = events
            self.bursts[channel_id] = _burst(carried)
        self.routers = routers


def _burst(carried: dict[StatusVariable, set[int]]) -> int:
    """Return the events at one instant: in these clouds all variables have a slot together."""
    taken = [variable for variable, everys in carried.items() if everys]
    assert not any(variable.phase_ns for variable in taken), "phases that differ need more thought"
    return len(taken)


class Count:
    """A count of these contracts, whose records are never changed, and what was seen of it."""

    def __init__(self, broker: LeafBroker, records: list[Subscribed]) -> None:
        self.records = records
        self.loads = _counted(broker)
        self.is_fitting = False
        """Whether all that was counted has been found to fit."""
        self.impaired: set[int] | None = None
        """The contracts that were impaired when the latencies of the others were looked at."""

    def is_of(self, records: list[Subscribed]) -> bool:
        return len(records) == len(self.records) and all(map(operator.is_, records, self.records))


_COUNTED: WeakKeyDictionary[LeafBroker, Count] = WeakKeyDictionary()
"""Last count of each broker."""


def count_of(broker: LeafBroker) -> Count:
    """Return what the contracts take, counted once for each mode while it is active."""
    records = [found.record for found in broker.registry.subscriptions.values()]
    found = _COUNTED.get(broker)
    if found is None or not found.is_of(records):
        found = _COUNTED[broker] = Count(broker, records)
    return found


def _counted(broker: LeafBroker, *, with_publications: bool = False) -> list[Load]:
    registry = broker.registry
    subscriptions = registry.subscriptions.values()
    modes = {0, *(mode for found in subscriptions for mode in found.record.granted)}
    loads = [Load(mode) for mode in sorted(modes)]
    for load in loads:
        for subscription in subscriptions:
            load.subscribe(subscription.record, subscription.variable)
        for publication in registry.publications.values() if with_publications else ():
            publisher = registry.endpoints.get(publication.publisher)
            for edge in publisher.attachments if publisher is not None else ():
                load.publish(edge, publication.variable)
        load.total(registry)
    return loads


def _is_moving(broker: LeafBroker) -> bool:
    """Return whether a contract has old and new paths, which may exceed a limit for a moment."""
    return any(found.retiring for found in broker.registry.subscriptions.values())


def check_capacity(broker: LeafBroker) -> None:
    """Check that what is promised fits the capacity, in the books and as counted again."""
    if _is_moving(broker):
        return
    count, resources = count_of(broker), broker.reservations.resources
    if not count.is_fitting:
        _check_fitting(broker, count.loads)
        count.is_fitting = True
    for number, channel in broker.registry.channels.items():
        if channel.bandwidth_bytes_per_s and resources.channels[number].streams:
            booked = scaled(resources.channels[number].bytes.value)
            if not arithmetic.fits(booked, channel.bandwidth_bytes_per_s):
                raise PropertyBroken(RULE, f"channel {channel} is over its bandwidth")
    check_latencies(broker)


def _check_fitting(broker: LeafBroker, loads: list[Load]) -> None:
    """Check that all that is counted fits."""
    resources = broker.reservations.resources
    for number, channel in broker.registry.channels.items():
        carried = most(load.channels.get(number, 0) for load in loads) * EVENT_BYTES
        if not arithmetic.fits(carried, channel.bandwidth_bytes_per_s):
            raise PropertyBroken(RULE, f"channel {channel} is over its bandwidth")
        burst = max(load.bursts.get(number, 0) for load in loads)
        if channel.bandwidth_bytes_per_s and burst > channel.queue_events_max:
            raise PropertyBroken(RULE, f"channel {channel} has a burst of {burst} events")
    for name, account in resources.routers.items():
        # Contracts alone: no publication is refused for lack of room at its edge.
        events = most(load.routers.get(name, 0) for load in loads)
        if events > scaled(account.router.events_per_s_max):
            raise PropertyBroken(
                RULE, f"router {name} is promised for {unscaled(events)} events a second"
            )


def check_ledger(broker: LeafBroker) -> None:
    """Check that the broker's accounts are exactly what the contracts amount to."""
    registry, resources = broker.registry, broker.reservations.resources
    if set(broker.reservations.allocator.contracts) != set(registry.subscriptions):
        raise PropertyBroken(RULE, "contracts are reserved that do not exist, or the reverse")
    loads = _counted(broker, with_publications=True)
    for number, carriage in resources.channels.items():
        counted = most(load.channels.get(number, 0) for load in loads) * EVENT_BYTES
        if not is_sum(carriage.bytes.value, counted):
            raise PropertyBroken(
                RULE,
                f"channel {number} has {carriage.bytes.value} bytes/s, not {unscaled(counted)}",
            )
        _check_probes(registry.channels[number], carriage.probe_charge.value)
        burst = max(load.bursts.get(number, 0) for load in loads)
        if carriage.burst.worst() != (burst, burst * EVENT_BYTES):
            raise PropertyBroken(
                RULE, f"channel {number} has a burst of {carriage.burst.worst()}, not {burst}"
            )
    for name, account in resources.routers.items():
        counted = most(load.routers[name] for load in loads)
        if not is_sum(account.events.value, counted):
            raise PropertyBroken(
                RULE,
                f"router {name} has {account.events.value} events/s, not {unscaled(counted)}",
            )


def _check_probes(channel: EventChannel, charged: Fraction) -> None:
    """Check what is charged for the probes of a channel, if it has a bandwidth."""
    counted = arithmetic.probe_bytes_per_s(channel.bandwidth_bytes_per_s)
    if charged != counted:
        raise PropertyBroken(
            RULE, f"probes of {channel.label} are charged {charged} bytes/s, not {counted}"
        )


# Latency.


def check_latencies(broker: LeafBroker) -> None:
    """Check that no path takes longer, by our count of the load, than its contract allows."""
    count, subscriptions = count_of(broker), broker.registry.subscriptions
    impaired = {number for number, found in subscriptions.items() if found.troubles}
    if count.impaired is not None and count.impaired <= impaired:
        return  # The others have been looked at.
    count.impaired, loads = impaired, count.loads
    for number, subscription in subscriptions.items():
        if subscription.troubles:
            continue  # It is planned again; until then it stays where it is.
        record = subscription.record
        for index, path in enumerate(record.paths):
            allowed = [qos.latency_us for qos in record.granted.values() if qos.redundancy > index]
            takes_us = latency_us(broker, loads, path)
            if not record.contract:
                takes_us += arithmetic.ENDS_US
            if takes_us > min(allowed):
                raise PropertyBroken(
                    LATE, f"path {index} of {number} takes {float(takes_us)} of {allowed} us"
                )


def latency_us(broker: LeafBroker, loads: list[Load], path: AllocatedPath) -> Fraction:
    """Return the latency of a path with the present load, before any rounding."""
    registry = broker.registry
    total = sum((channel_us(registry, loads, number) for number in path.channel_ids), Fraction(0))
    for name in path.routers:
        total += arithmetic.router_us(most(load.routers[name] for load in loads))
    return total


def channel_us(registry: Registry, loads: list[Load], channel_id: int) -> Fraction:
    channel = registry.channels[channel_id]
    burst = max(load.bursts.get(channel_id, 0) for load in loads)
    return channel.latency_us + arithmetic.burst_us(burst, channel.bandwidth_bytes_per_s)


def check_law(broker: LeafBroker) -> None:
    """Check that channels and routers are predicted by the law, but for its rounding.

    Only in a cloud without floods: those are load, too, and not a contract.
    """
    registry, resources = broker.registry, broker.reservations.resources
    loads = _counted(broker, with_publications=True)
    for number, carriage in resources.channels.items():
        own_us = registry.channels[number].latency_us
        _check_predicted(
            f"channel {number}",
            carriage.latency_us - own_us,
            channel_us(registry, loads, number) - own_us,
        )
    for name, account in resources.routers.items():
        events = most(load.routers[name] for load in loads)
        _check_predicted(f"router {name}", account.latency_us, arithmetic.router_us(events))


def _check_predicted(what: str, predicted_us: int, counted_us: Fraction) -> None:
    if not counted_us <= predicted_us <= arithmetic.rounded_us_max(counted_us):
        raise PropertyBroken(LAW, f"{what} is predicted {predicted_us} us, not {float(counted_us)}")


def check_no_promise(broker: LeafBroker) -> None:
    """Check that nothing is promised while there is no contract."""
    resources = broker.reservations.resources
    for number, carriage in resources.channels.items():
        if carriage.streams:
            raise PropertyBroken(RULE, f"channel {number} carries {list(carriage.streams)}")
    for name, account in resources.routers.items():
        if account.events:
            raise PropertyBroken(RULE, f"router {name} has {account.events.value} events/s")
