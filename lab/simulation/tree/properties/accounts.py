"""Capacity promised on channels and routers, inside clouds and between them, counted again.

The count uses the rows of the routers, so that it shows whatever a broker has charged and not
ordered, or ordered and not charged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lab.simulation.arithmetic import EVENT_BYTES, events_of, fits, is_sum, scaled, unscaled
from lab.simulation.modes import MODES, active_with
from lab.simulation.properties.ledger import check_capacity, check_no_promise
from lab.simulation.properties.shares import check_shares
from lab.simulation.tree.properties.last_count import LastCount, bodies
from lab.simulation.tree.properties.latencies import check_no_channel_late
from lab.simulation.tree.properties.scope_shares import check_scope_shares
from lab.simulation.world import PropertyBroken
from lab.tree_plan import cloud_of

if TYPE_CHECKING:
    from gridstat.broker.tree.qos_broker import QosBroker
    from gridstat.broker.tree.tree_operations import HoldingBody
    from gridstat.model.status import StatusVariable
    from lab.simulation.arithmetic import Amount
    from lab.simulation.tree.grid import TreeGrid

RULE: Final = "promises fit, and are those of the contracts"
EVERY_SLOT: Final = frozenset({1})

Rates = dict[tuple[str, int], "Amount"]
"""Events a second, in parts, out of a router over a channel of that number."""
Term = tuple[int, int]
"""A divisor, and the mask of the modes in which it holds."""
Taken = dict[tuple[str, int, int], set[Term]]
"""Terms at which a router sends: by router, channel and variable."""
Carried = tuple[
    tuple["HoldingBody", ...],
    tuple[tuple["StatusVariable", tuple[tuple[int, int], ...]], ...],
    tuple[int, ...],
]
"""Contracts of a broker, floods each with the divisor of each mode, and channels of the floods."""


def check_fitting(grid: TreeGrid) -> None:
    """Check that promises fit the capacity, at any moment."""
    for leaf in grid.leaves().values():
        check_capacity(leaf)
        check_shares(leaf)
    for name, broker in grid.qos_brokers().items():
        _check_borders(name, broker)
        check_scope_shares(name, broker)
        check_no_channel_late(name, broker)


def _check_borders(name: str, broker: QosBroker) -> None:
    """Check what contracts and floods take of each channel between clouds, counted again."""
    accounts = broker.state.channels.accounts
    taken = broker.parts.flooding.reservations.taken()
    floods = tuple([(variable, tuple(everys.items())) for variable, everys in taken])
    counted = _COUNTED.of(broker, (bodies(broker), floods, tuple(accounts)))
    for channel_id, bytes_per_s in counted.items():
        account = accounts[channel_id]
        bandwidth = account.channel.bandwidth_bytes_per_s
        booked = account.carriage.bytes.value
        parts = scaled(booked)
        if bytes_per_s > parts or not fits(parts, bandwidth):
            raise PropertyBroken(
                RULE,
                f"{name}: contracts take {unscaled(bytes_per_s)} bytes/s of "
                f"{account.channel.label}, which has {booked} of {bandwidth}",
            )


def _count(carried: Carried) -> dict[int, Amount]:
    """Return the bytes a second over each channel, in the mode with most."""
    contracts, floods, channels = carried
    taken: dict[tuple[int, int, Amount], tuple[StatusVariable, set[Term]]] = {}
    for body in contracts:
        for channel_id in {one for way in body.scope_paths for one in way.channel_ids}:
            some = taken.setdefault(_key(channel_id, body.variable), (body.variable, set()))[1]
            some |= {(qos.every, 1 << mode) for mode, qos in body.granted.items()}
    for variable, everys in floods:
        for channel_id in channels if everys else ():
            some = taken.setdefault(_key(channel_id, variable), (variable, set()))[1]
            some |= {(every, 1 << mode) for mode, every in everys}
    counted: dict[int, dict[int, Amount]] = {}
    for (channel_id, _, _), (variable, some) in taken.items():
        by_mode = counted.setdefault(channel_id, dict.fromkeys(MODES, 0))
        for mode in MODES:
            by_mode[mode] += events_of(variable, everys_in(some, mode)) * EVENT_BYTES
    return {channel_id: max(by_mode.values()) for channel_id, by_mode in counted.items()}


_COUNTED: LastCount[Carried, dict[int, Amount]] = LastCount(_count)


def _key(channel_id: int, variable: StatusVariable) -> tuple[int, int, Amount]:
    """Return a key that tells apart a variable before and after a change of its period."""
    return channel_id, int(variable.variable_id), events_of(variable, EVERY_SLOT)


def check_accounts(grid: TreeGrid) -> None:
    """Check that accounts are exactly what the rows amount to, with floods that are overridden."""
    taken = taken_by_rows(grid)
    all_rates = [rates_in(grid, taken, mode) for mode in MODES]
    for leaf in grid.leaves().values():
        for number, carriage in leaf.reservations.resources.channels.items():
            channel = leaf.registry.channels[number]
            counted = _most(all_rates, (channel.from_router, number)) * EVENT_BYTES
            if not is_sum(carriage.bytes.value, counted):
                raise PropertyBroken(
                    RULE,
                    f"{channel.label} has {carriage.bytes.value} bytes/s, not {unscaled(counted)}",
                )
            if not fits(counted, channel.bandwidth_bytes_per_s):
                raise PropertyBroken(RULE, f"{channel.label} is over its bandwidth")
        for name, account in leaf.reservations.resources.routers.items():
            counted = max(through(grid, name, rates) for rates in all_rates)
            if not is_sum(account.events.value, counted):
                raise PropertyBroken(
                    RULE,
                    f"router {name} has {account.events.value} events/s, not {unscaled(counted)}",
                )
    for broker in grid.qos_brokers().values():
        of_broker = _taken_of(broker, taken)
        all_rates = [rates_in(grid, of_broker, mode) for mode in MODES]
        for number, found in broker.state.channels.accounts.items():
            counted = _most(all_rates, (found.channel.from_router, number)) * EVENT_BYTES
            if not is_sum(found.carriage.bytes.value, counted):
                raise PropertyBroken(
                    RULE,
                    f"{found.channel.label} has {found.carriage.bytes.value} bytes/s, "
                    f"not {unscaled(counted)}",
                )


def _most(all_rates: list[Rates], key: tuple[str, int]) -> Amount:
    """Return what is promised: the most that any mode takes, active beside the baseline."""
    return max(rates.get(key, 0) for rates in all_rates)


def check_nothing_promised(grid: TreeGrid) -> None:
    for leaf in grid.leaves().values():
        check_no_promise(leaf)
    for name, broker in grid.qos_brokers().items():
        for account in broker.state.channels.accounts.values():
            carriage = account.carriage
            is_charged = carriage.streams or carriage.bytes or carriage.burst.events
            if is_charged or account.relied_us:
                raise PropertyBroken(RULE, f"{name}: {account.channel.label} is still charged")
        if books := broker.state.channels.shares.books():
            raise PropertyBroken(RULE, f"{name}: the books still hold {books}")


def _variables(grid: TreeGrid) -> dict[int, StatusVariable]:
    return {
        int(found.variable.variable_id): found.variable
        for leaf in grid.leaves().values()
        for found in leaf.registry.publications.values()
    }


def taken_by_rows(grid: TreeGrid) -> Taken:
    """Return what rows of routers take, and operators' floods that the parent's override."""
    taken: Taken = {}
    for name, node in grid.routers.items():
        for order in node.table.paths.values():
            _take(taken, (name, order.channel_id, order.variable_id), (order.every, order.modes))
        for number, variable in node.table.variables.items():
            for flood in variable.floods:
                for channel_id in _in_scope(grid, name, flood.level):
                    _take(taken, (name, channel_id, number), (flood.every, flood.modes))
    for leaf in grid.leaves().values():
        for found in leaf.floods.variables.values():
            for mode, term in found.own.items():
                for number, channel in leaf.registry.channels.items():
                    key = channel.from_router, number, int(found.variable.variable_id)
                    _take(taken, key, (term.every, 1 << mode))
    return taken


def _taken_of(broker: QosBroker, taken: Taken) -> Taken:
    """Return the same with the floods of a broker's own operators, on its own channels."""
    all_taken = {key: set(some) for key, some in taken.items()}
    for found in broker.parts.flooding.floods.values():
        for mode, term in found.own.items():
            for number, account in broker.state.channels.accounts.items():
                key = account.channel.from_router, number, int(found.variable.variable_id)
                _take(all_taken, key, (term.every, 1 << mode))
    return all_taken


def _take(taken: Taken, key: tuple[str, int, int], term: Term) -> None:
    taken.setdefault(key, set()).add(term)


def rates_in(grid: TreeGrid, taken: Taken, mode: int) -> Rates:
    """Return the rates while this mode is active beside the baseline."""
    variables = _variables(grid)
    rates: Rates = {}
    for (router, channel_id, number), some in taken.items():
        rate = events_of(variables[number], everys_in(some, mode))
        rates[router, channel_id] = rates.get((router, channel_id), 0) + rate
    return rates


def everys_in(some: set[Term], mode: int) -> frozenset[int]:
    active = active_with(mode)
    return frozenset(every for every, modes in some if modes & active)


def _in_scope(grid: TreeGrid, router: str, level: int) -> list[int]:
    """Return the channels from a router to others that a flood from this depth takes."""
    plan = grid.swarm.plan
    return [
        channel_id
        for owner in plan.scope(cloud_of(router))
        if plan.brokers[owner].depth >= level
        for channel_id, (sender, _) in grid.wires.owned[owner].ends.items()
        if sender == router and channel_id in grid.wiring.numbers_of(owner)
    ]


def through(grid: TreeGrid, router: str, rates: Rates) -> Amount:
    """Return the events a second in and out of a router: from publishers, and over all channels."""
    leaf = grid.leaf(cloud_of(router))
    assert leaf is not None
    registry = leaf.registry
    total = sum(
        (
            events_of(found.variable, EVERY_SLOT)
            for found in registry.publications.values()
            if router in registry.endpoints[found.publisher].attachments
        ),
        0,
    )
    for (sender, channel_id), rate in rates.items():
        receiver = grid.wires.receiver(cloud_of(sender), channel_id)
        total += rate * ((sender == router) + (receiver == router))
    return total
