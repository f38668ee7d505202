"""Capacity promised on each channel and router, counted again from the contracts by the law."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from gridstat.model.rate_law import NS_PER_S, union_rate
from lab.simulation.world import PropertyBroken

if TYPE_CHECKING:
    from gridstat.broker.leaf_broker import LeafBroker
    from gridstat.broker.records.operations import Subscribed
    from gridstat.model.status import StatusVariable

EVENT_BYTES: Final = 28 + 16 + 24 + 16
"""Size of the headers of IP, UDP and the datagram, and of a plain event."""
RULE: Final = "promises fit, and are those of the contracts"
NOTHING: Final = Fraction(0)


class Count:
    """Divisors of each variable on channels, at entry edges and at exits to subscribers.

    All counts hold while one mode is active beside the baseline.
    """

    def __init__(self, mode: int) -> None:
        self._active = (0, mode)
        self._over: dict[int, dict[int, set[int]]] = {}
        self._into: dict[tuple[str, int], Fraction] = {}
        self._out: dict[tuple[str, str, int], set[int]] = {}
        self._rates: dict[int, Fraction] = {}

    def publish(self, edge: str, variable: StatusVariable) -> None:
        self._into[edge, variable.variable_id] = rate_of(variable)

    def subscribe(self, record: Subscribed, variable: StatusVariable) -> None:
        number = variable.variable_id
        self._rates[number] = rate_of(variable)
        for index, path in enumerate(record.paths):
            self.publish(path.routers[0], variable)
            everys = {
                qos.every
                for mode, qos in record.granted.items()
                if qos.redundancy > index and mode in self._active
            }
            for channel_id in path.channel_ids:
                self._over.setdefault(channel_id, {}).setdefault(number, set()).update(everys)
            key = path.routers[-1], record.subscriber, number
            self._out.setdefault(key, set()).update(everys)

    def channel(self, channel_id: int) -> Fraction:
        """Return the events a second over a channel."""
        carried = self._over.get(channel_id)
        if carried is None:
            return NOTHING
        return sum(
            (_share(tuple(sorted(everys))) * self._rates[one] for one, everys in carried.items()),
            NOTHING,
        )

    def routers(self, broker: LeafBroker) -> dict[str, Fraction]:
        """Return the events a second in and out of each router."""
        resources = broker.reservations.resources
        found = dict.fromkeys(resources.routers, NOTHING)
        for (edge, _), rate in self._into.items():
            found[edge] += rate
        for (edge, _, number), everys in self._out.items():
            found[edge] += _share(tuple(sorted(everys))) * self._rates[number]
        for channel_id in self._over:
            channel = broker.registry.channels[channel_id]
            rate = self.channel(channel_id)
            found[channel.from_router] += rate
            found[channel.to_router] += rate
        return found


def check_capacity(broker: LeafBroker) -> None:
    """Check that promises fit the capacity, except while a contract has old and new paths."""
    if any(found.retiring for found in broker.registry.subscriptions.values()):
        return  # The overlap of old and new paths may exceed a limit for a moment.
    resources = broker.reservations.resources
    for carriage in resources.channels.values():
        if carriage.streams and carriage.is_overloaded:
            raise PropertyBroken(RULE, f"channel {carriage.channel} is over its bandwidth")
    for name, account in resources.routers.items():
        if account.is_overloaded:
            _check_contracts(broker, name, account.router.events_per_s_max)


def _check_contracts(broker: LeafBroker, name: str, limit: int) -> None:
    """Check that contracts alone fit; no publication is refused for lack of room at its edge."""
    events = max(count.routers(broker)[name] for count in _contracts(broker))
    if events > limit:
        raise PropertyBroken(RULE, f"router {name} is promised for {events} events a second")


def check_ledger(broker: LeafBroker) -> None:
    """Check that the broker's accounts are exactly what the contracts amount to."""
    registry, resources = broker.registry, broker.reservations.resources
    if set(broker.reservations.allocator.contracts) != set(registry.subscriptions):
        raise PropertyBroken(RULE, "contracts are reserved that do not exist, or the reverse")
    counts = _contracts(broker)
    for publication in registry.publications.values():
        publisher = registry.endpoints.get(publication.publisher)
        for edge in publisher.attachments if publisher is not None else ():
            for count in counts:
                count.publish(edge, publication.variable)
    for number, carriage in resources.channels.items():
        counted = max(count.channel(number) for count in counts) * EVENT_BYTES
        if carriage.bytes.value != counted:
            raise PropertyBroken(
                RULE, f"channel {number} has {carriage.bytes.value} bytes/s, not {counted}"
            )
    all_routers = [count.routers(broker) for count in counts]
    for name, account in resources.routers.items():
        counted = max(routers[name] for routers in all_routers)
        if account.events.value != counted:
            raise PropertyBroken(
                RULE, f"router {name} has {account.events.value} events/s, not {counted}"
            )


def _contracts(broker: LeafBroker) -> list[Count]:
    """Return what the contracts take, counted once for each mode while it is active."""
    subscriptions = broker.registry.subscriptions.values()
    modes = {0, *(mode for found in subscriptions for mode in found.record.granted)}
    counts = [Count(mode) for mode in sorted(modes)]
    for subscription in subscriptions:
        for count in counts:
            count.subscribe(subscription.record, subscription.variable)
    return counts


def check_no_promise(broker: LeafBroker) -> None:
    """Check that nothing is promised while there is no contract."""
    resources = broker.reservations.resources
    for number, carriage in resources.channels.items():
        if carriage.streams:
            raise PropertyBroken(RULE, f"channel {number} carries {list(carriage.streams)}")
    for name, account in resources.routers.items():
        if account.events:
            raise PropertyBroken(RULE, f"router {name} has {account.events.value} events/s")


@lru_cache(maxsize=1_024)
def rate_of(variable: StatusVariable) -> Fraction:
    """Return the events a second that a publisher may send."""
    if variable.period is None:
        return Fraction(NS_PER_S, variable.interval_ns_min)
    return Fraction(variable.period.per_seconds, variable.period.seconds)


@lru_cache(maxsize=4_096)
def _share(everys: tuple[int, ...]) -> Fraction:
    return union_rate(everys)
