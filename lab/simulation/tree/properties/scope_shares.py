"""Books of identities at brokers above clouds, counted again from contracts and open plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.broker.tree.tree_operations import body_of
from lab.simulation.arithmetic import EVENT_BYTES, SEAL_BYTES, events_of, scaled
from lab.simulation.world import PropertyBroken

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gridstat.broker.tree.qos_broker import QosBroker
    from gridstat.broker.tree.tree_operations import ScopePath
    from gridstat.model.qos import Qos
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.segment_messages import Payer
    from lab.simulation.arithmetic import Amount

    Charged = tuple[StatusVariable, Mapping[int, int], tuple[ScopePath, ...], tuple[Payer, ...]]

RULE: Final = "the books of every identity between clouds are those of its contracts"


def check_scope_shares(name: str, broker: QosBroker) -> None:
    """Check that the books equal a recount, at any moment between two events."""
    charged = list(_charged(broker))
    modes = {0, *(mode for _, divisors, _, _ in charged for mode in divisors)}
    used: dict[tuple[str, int, int], Amount] = {}
    for variable, divisors, paths, payers in charged:
        for mode in modes:
            taken = {every for each, every in divisors.items() if each in (0, mode)}
            if not taken:
                continue
            rate = events_of(variable, frozenset(taken))
            for who in (payer.name for payer in payers[:1]):
                for number in (number for path in paths for number in path.channel_ids):
                    key = who, number, mode
                    used[key] = used.get(key, 0) + rate * _size(broker, number)
    counted: dict[str, dict[int, Amount]] = {}
    for (who, number, _), bytes_per_s in used.items():
        of_channel = counted.setdefault(who, {})
        of_channel[number] = max(of_channel.get(number, 0), bytes_per_s)
    books = {
        who: {number: scaled(bytes_per_s) for number, bytes_per_s in channels.items()}
        for who, channels in broker.state.channels.shares.books().items()
    }
    if books != counted:
        raise PropertyBroken(RULE, f"{name} has {books}, not {counted}")
    _check_caught(name, broker, charged, modes)


def _check_caught(name: str, broker: QosBroker, charged: list[Charged], modes: set[int]) -> None:
    """Check what patterns catch of a publisher: a variable once, at the largest of its rates."""
    most: dict[tuple[str, int, int], Amount] = {}
    for variable, divisors, paths, payers in charged:
        rates = [
            events_of(variable, frozenset(taken))
            for mode in modes
            if (taken := {every for each, every in divisors.items() if each in (0, mode)})
        ]
        for who in (payer.name for payer in payers[1:]):
            for number in (number for path in paths for number in path.channel_ids):
                key = who, number, variable.variable_id
                most[key] = max(most.get(key, 0), *rates)
    caught: dict[tuple[str, int], Amount] = {}
    for (who, number, _), rate in most.items():
        key_of = who, number
        caught[key_of] = caught.get(key_of, 0) + rate * _size(broker, number)
    for (who, number), counted in caught.items():
        found = scaled(broker.state.channels.shares.caught(who, number))
        if found != counted:
            raise PropertyBroken(RULE, f"{name}: of {who} {found} is caught, not {counted}")


def _size(broker: QosBroker, channel_id: int) -> int:
    is_sealed = broker.state.channels.accounts[channel_id].channel.is_sealed
    return EVENT_BYTES if is_sealed else EVENT_BYTES - SEAL_BYTES


def _charged(broker: QosBroker) -> Iterator[Charged]:
    """Yield what is charged: every holding, and every plan that children are asked for."""
    for holding, _ in broker.state.holdings.all():
        body = body_of(holding)
        yield body.variable, _divisors(body.granted), body.scope_paths, body.payers
    for transaction in broker.parts.coordinator.open_transactions():
        if transaction.charged is not None and transaction.division is not None:
            yield (
                transaction.variable,
                _divisors(transaction.charged),
                transaction.division.scope_paths,
                transaction.payers,
            )


def _divisors(granted: Mapping[int, Qos]) -> dict[int, int]:
    """Return the divisor of each mode; between clouds every path carries all modes."""
    return {mode: qos.every for mode, qos in granted.items()}
