"""Books of identities at brokers above clouds, counted again from contracts and open plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lab.simulation.arithmetic import EVENT_BYTES, SEAL_BYTES, events_of, scaled
from lab.simulation.tree.properties.last_count import LastCount, bodies
from lab.simulation.world import PropertyBroken

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gridstat.broker.tree.channel_account import ChannelAccount
    from gridstat.broker.tree.qos_broker import QosBroker
    from gridstat.broker.tree.tree_operations import ScopePath
    from gridstat.model.qos import Qos
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.segment_messages import Payer
    from lab.simulation.arithmetic import Amount

    Divisors = tuple[tuple[int, int], ...]
    Charged = tuple[StatusVariable, Divisors, tuple[ScopePath, ...], tuple[Payer, ...]]
    Charges = tuple[tuple[Charged, ...], tuple[tuple[int, int], ...]]

RULE: Final = "the books of every identity between clouds are those of its contracts"


def check_scope_shares(name: str, broker: QosBroker) -> None:
    """Check that the books equal a recount, at any moment between two events."""
    accounts = broker.state.channels.accounts.items()
    sizes = tuple([(number, _size(account)) for number, account in accounts])
    used, caught = _COUNTED.of(broker, (tuple(_charged(broker)), sizes))
    books = {
        who: {number: scaled(bytes_per_s) for number, bytes_per_s in channels.items()}
        for who, channels in broker.state.channels.shares.books().items()
    }
    if books != used:
        raise PropertyBroken(RULE, f"{name} has {books}, not {used}")
    for (who, number), counted in caught.items():
        found = scaled(broker.state.channels.shares.caught(who, number))
        if found != counted:
            raise PropertyBroken(RULE, f"{name}: of {who} {found} is caught, not {counted}")


def _count(charges: Charges) -> tuple[dict[str, dict[int, Amount]], dict[tuple[str, int], Amount]]:
    """Return the bytes a second that identities use, and those that patterns catch of them."""
    charged, sizes = charges[0], dict(charges[1])
    modes = {0, *(mode for _, divisors, _, _ in charged for mode, _ in divisors)}
    return _used(charged, modes, sizes), _caught(charged, modes, sizes)


_COUNTED: LastCount[Charges, tuple[dict[str, dict[int, Amount]], dict[tuple[str, int], Amount]]] = (
    LastCount(_count)
)


def _used(
    charged: tuple[Charged, ...], modes: set[int], sizes: Mapping[int, int]
) -> dict[str, dict[int, Amount]]:
    """Return what each identity uses of each channel, in the mode with most.

    A contract takes its divisors in the baseline and in the mode that is active.
    """
    used: dict[tuple[str, int, int], Amount] = {}
    for variable, divisors, paths, payers in charged:
        for mode in modes:
            taken = {every for each, every in divisors if each in (0, mode)}
            if not taken:
                continue
            rate = events_of(variable, frozenset(taken))
            for who in (payer.name for payer in payers[:1]):
                for number in (number for path in paths for number in path.channel_ids):
                    key = who, number, mode
                    used[key] = used.get(key, 0) + rate * sizes[number]
    counted: dict[str, dict[int, Amount]] = {}
    for (who, number, _), bytes_per_s in used.items():
        of_channel = counted.setdefault(who, {})
        of_channel[number] = max(of_channel.get(number, 0), bytes_per_s)
    return counted


def _caught(
    charged: tuple[Charged, ...], modes: set[int], sizes: Mapping[int, int]
) -> dict[tuple[str, int], Amount]:
    """Return what patterns catch of a publisher: a variable once, at the largest of its rates."""
    most: dict[tuple[str, int, int], Amount] = {}
    for variable, divisors, paths, payers in charged:
        rates = [
            events_of(variable, frozenset(taken))
            for mode in modes
            if (taken := {every for each, every in divisors if each in (0, mode)})
        ]
        for who in (payer.name for payer in payers[1:]):
            for number in (number for path in paths for number in path.channel_ids):
                key = who, number, variable.variable_id
                most[key] = max(most.get(key, 0), *rates)
    caught: dict[tuple[str, int], Amount] = {}
    for (who, number, _), rate in most.items():
        key_of = who, number
        caught[key_of] = caught.get(key_of, 0) + rate * sizes[number]
    return caught


def _size(account: ChannelAccount) -> int:
    return EVENT_BYTES if account.channel.is_sealed else EVENT_BYTES - SEAL_BYTES


def _charged(broker: QosBroker) -> Iterator[Charged]:
    """Yield what is charged: every holding, and every plan that children are asked for."""
    for body in bodies(broker):
        yield body.variable, _divisors(body.granted), body.scope_paths, body.payers
    for transaction in broker.parts.coordinator.open_transactions():
        if transaction.charged is not None and transaction.division is not None:
            yield (
                transaction.variable,
                _divisors(transaction.charged),
                transaction.division.scope_paths,
                transaction.payers,
            )


def _divisors(granted: Mapping[int, Qos]) -> Divisors:
    """Return the divisor of each mode; between clouds every path carries all modes."""
    return tuple([(mode, qos.every) for mode, qos in granted.items()])
