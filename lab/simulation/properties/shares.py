"""Books of identities: what each uses of the channels, counted again from the contracts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.model.channel_security import TAG_BYTES
from gridstat.model.rate_law import union_rate
from lab.simulation.properties.ledger import EVENT_BYTES, NOTHING, rate_of
from lab.simulation.world import PropertyBroken

if TYPE_CHECKING:
    from fractions import Fraction

    from gridstat.broker.leaf_broker import LeafBroker
    from gridstat.broker.records.operations import Subscribed

RULE: Final = "the books of every identity are those of its contracts"


def check_shares(broker: LeafBroker) -> None:
    """Check that the books equal a recount, at any moment between two events."""
    counts: dict[str, int] = {}
    used: dict[tuple[str, int, int], Fraction] = {}
    caught: dict[tuple[str, int, int], Fraction] = {}
    variables: dict[str, set[int]] = {}
    found = broker.registry.subscriptions.values()
    modes = {0, *(mode for each in found for mode in each.record.granted)}
    for subscription in found:
        record = subscription.record
        for who in _payers(record)[1:]:
            variables.setdefault(who, set()).add(record.variable_id)
            for index, path in enumerate(record.paths):
                most = max(_share(record, index, mode) for mode in modes)
                for number in path.channel_ids:
                    key = who, number, record.variable_id
                    rate = rate_of(subscription.variable) * most * _event_bytes(broker, number)
                    caught[key] = max(rate, caught.get(key, NOTHING))
        for who in _payers(record)[:1]:
            counts[who] = counts.get(who, 0) + 1
            for index, path in enumerate(record.paths):
                for mode in modes:
                    rate = rate_of(subscription.variable) * _share(record, index, mode)
                    for number in path.channel_ids:
                        key = who, number, mode
                        used[key] = used.get(key, NOTHING) + rate * _event_bytes(broker, number)
    books = broker.reservations.shares.books()
    if {who: count for who, (count, _) in books.items()} != counts:
        raise PropertyBroken(RULE, f"contracts {books}, and not {counts}")
    for who, (_, channels) in books.items():
        for number in {*channels, *(each for name, each, _ in used if name == who)}:
            counted = max(used.get((who, number, mode), NOTHING) for mode in modes)
            if channels.get(number, NOTHING) != counted:
                raise PropertyBroken(
                    RULE,
                    f"{who} has {channels.get(number)} bytes/s of channel {number}, not {counted}",
                )
    _check_caught(broker, variables, caught)


def _check_caught(
    broker: LeafBroker,
    variables: dict[str, set[int]],
    caught: dict[tuple[str, int, int], Fraction],
) -> None:
    """Check what patterns catch of each publisher: every variable once on each channel."""
    counted: dict[str, tuple[int, dict[int, Fraction]]] = {
        who: (len(found), {}) for who, found in variables.items()
    }
    for (who, number, _), rate in caught.items():
        channels = counted[who][1]
        channels[number] = channels.get(number, NOTHING) + rate
    books = broker.reservations.shares.caught_books()
    if books != counted:
        raise PropertyBroken(RULE, f"caught {books}, and not {counted}")


def _event_bytes(broker: LeafBroker, channel_id: int) -> int:
    channel = broker.registry.channels.get(channel_id)
    is_plain = channel is not None and not channel.is_sealed
    return EVENT_BYTES - TAG_BYTES if is_plain else EVENT_BYTES


def _payers(record: Subscribed) -> tuple[str, ...]:
    return record.charged_to or ((record.subscriber,) if record.subscriber else ())


def _share(record: Subscribed, index: int, mode: int) -> Fraction:
    everys = {
        qos.every
        for each, qos in record.granted.items()
        if qos.redundancy > index and each in (0, mode)
    }
    return union_rate(tuple(sorted(everys))) if everys else NOTHING
