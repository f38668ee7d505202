"""Books of identities: what each uses of the channels, counted again from the contracts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from lab.simulation.arithmetic import (
    EVENT_BYTES,
    SEAL_BYTES,
    events_of,
    most,
    scaled,
    unscaled,
)
from lab.simulation.world import PropertyBroken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gridstat.broker.leaf_broker import LeafBroker
    from gridstat.broker.records.operations import Subscribed
    from gridstat.broker.records.registry import Subscription
    from lab.simulation.arithmetic import Amount

RULE: Final = "the books of every identity are those of its contracts"


class Books:
    """Count of contracts: by payer, by its channels and modes, and what patterns catch."""

    def __init__(self, found: Sequence[Subscription]) -> None:
        self.records = [each.record for each in found]
        self.modes = {0, *(mode for record in self.records for mode in record.granted)}
        self.counts: dict[str, int] = {}
        self.used: dict[tuple[str, int, int], Amount] = {}
        """Events a second of a payer, on a channel, in a mode; in parts."""
        self.caught: dict[tuple[str, int, int], Amount] = {}
        """The same of a publisher, on a channel, of a variable, in the mode with most."""
        self.variables: dict[str, set[int]] = {}
        for subscription in found:
            payers = _payers(subscription.record)
            for who in payers[:1]:
                self.counts[who] = self.counts.get(who, 0) + 1
            for who in payers[1:]:
                self.variables.setdefault(who, set()).add(subscription.record.variable_id)
            for index in range(len(subscription.record.paths) if payers else 0):
                self._count_path(subscription, index, payers)

    def _count_path(self, subscription: Subscription, index: int, payers: tuple[str, ...]) -> None:
        record, variable = subscription.record, subscription.variable
        rates = {mode: events_of(variable, _everys(record, index, mode)) for mode in self.modes}
        for number in record.paths[index].channel_ids:
            for who in payers[:1]:
                for mode, rate in rates.items():
                    key = who, number, mode
                    self.used[key] = self.used.get(key, 0) + rate
            for who in payers[1:]:
                key = who, number, record.variable_id
                self.caught[key] = max(self.caught.get(key, 0), *rates.values())

    def is_of(self, found: Sequence[Subscription]) -> bool:
        """Return whether these are the contracts that were counted; records never change."""
        return len(found) == len(self.records) and all(
            each.record is record for each, record in zip(found, self.records, strict=True)
        )


_COUNTED: WeakKeyDictionary[LeafBroker, Books] = WeakKeyDictionary()


def check_shares(broker: LeafBroker) -> None:
    """Check that the books equal a recount, at any moment between two events."""
    found = list(broker.registry.subscriptions.values())
    counted = _COUNTED.get(broker)
    if counted is None or not counted.is_of(found):
        counted = _COUNTED[broker] = Books(found)
    books = broker.reservations.shares.books()
    if {who: count for who, (count, _) in books.items()} != counted.counts:
        raise PropertyBroken(RULE, f"contracts {books}, and not {counted.counts}")
    for who, (_, channels) in books.items():
        numbers = {*channels, *(each for name, each, _ in counted.used if name == who)}
        for number in numbers:
            events = most(counted.used.get((who, number, mode), 0) for mode in counted.modes)
            expected = events * _event_bytes(broker, number)
            if scaled(channels.get(number, 0)) != expected:
                raise PropertyBroken(
                    RULE,
                    f"{who} has {channels.get(number)} bytes/s of channel {number}, "
                    f"not {unscaled(expected)}",
                )
    _check_caught(broker, counted)


def _check_caught(broker: LeafBroker, counted: Books) -> None:
    """Check what patterns catch of each publisher: every variable once on each channel."""
    expected: dict[str, tuple[int, dict[int, Amount]]] = {
        who: (len(found), {}) for who, found in counted.variables.items()
    }
    for (who, number, _), events in counted.caught.items():
        channels = expected[who][1]
        channels[number] = channels.get(number, 0) + events * _event_bytes(broker, number)
    books = {
        who: (count, {number: scaled(found) for number, found in channels.items()})
        for who, (count, channels) in broker.reservations.shares.caught_books().items()
    }
    if books != expected:
        raise PropertyBroken(RULE, f"caught {books}, and not {expected}")


def _event_bytes(broker: LeafBroker, channel_id: int) -> int:
    channel = broker.registry.channels.get(channel_id)
    is_plain = channel is not None and not channel.is_sealed
    return EVENT_BYTES - SEAL_BYTES if is_plain else EVENT_BYTES


def _payers(record: Subscribed) -> tuple[str, ...]:
    return record.charged_to or ((record.subscriber,) if record.subscriber else ())


def _everys(record: Subscribed, index: int, mode: int) -> frozenset[int]:
    return frozenset(
        qos.every
        for each, qos in record.granted.items()
        if qos.redundancy > index and each in (0, mode)
    )
