"""Latencies between clouds: how a contract's is divided, and that no load breaks a part of it.

Every part of a path is promised a share by who carries it: a cloud for its segment, a broker for
each channel between clouds. All shares of a path together lie within what the contract allows; and
no channel between clouds takes longer, by our count of its load, than any contract was promised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.broker.tree.tree_operations import body_of
from lab.simulation import arithmetic
from lab.simulation.modes import MODES, active_with
from lab.simulation.tree.properties.last_count import LastCount, bodies
from lab.simulation.world import PropertyBroken

if TYPE_CHECKING:
    from gridstat.broker.records.operations import Subscribed
    from gridstat.broker.tree.qos_broker import QosBroker
    from gridstat.broker.tree.tree_operations import HoldingBody
    from gridstat.model.cloud import EventChannel
    from gridstat.net.command.segment_messages import PathSegment
    from lab.simulation.tree.grid import TreeGrid

LATE: Final = "new load makes no older contract late"
DIVIDED: Final = "the shares of a path lie within the latency of its contract"
CURRENT: Final = "owners know by which way a contract goes"

Held = tuple[tuple["HoldingBody", ...], tuple[tuple[int, "EventChannel"], ...]]
"""Contracts of a broker, and its channels by number."""


def check_no_channel_late(name: str, broker: QosBroker) -> None:
    """Check, at any moment, every share of a channel that a held contract relies on."""
    accounts = broker.state.channels.accounts.items()
    channels = tuple([(number, account.channel) for number, account in accounts])
    late = _LATE.of(broker, (bodies(broker), channels))
    if late is not None:
        raise PropertyBroken(LATE, f"{name}: {late}")


def _late_channel(held: Held) -> str | None:
    """Return a channel that takes longer than a contract relies on, if there is one."""
    contracts, channels = held[0], dict(held[1])
    carried: dict[int, dict[int, set[int]]] = {}
    shares_us: dict[int, list[int]] = {}
    for body in contracts:
        modes = sum(1 << mode for mode in body.granted)
        for path in body.scope_paths:
            for number, share_us in zip(path.channel_ids, path.shares_us, strict=True):
                shares_us.setdefault(number, []).append(share_us)
                taken = carried.setdefault(number, {})
                taken.setdefault(int(body.variable.variable_id), set()).add(modes)
    for number, some_us in shares_us.items():
        channel = channels[number]
        burst = max(
            sum(
                any(modes & active_with(mode) for modes in each)
                for each in carried[number].values()
            )
            for mode in MODES
        )
        takes_us = channel.latency_us + arithmetic.burst_us(burst, channel.bandwidth_bytes_per_s)
        if takes_us > min(some_us):
            return f"{channel.label} takes {float(takes_us)} us of {sorted(some_us)}"
    return None


_LATE: LastCount[Held, str | None] = LastCount(_late_channel)


def check_divisions(grid: TreeGrid) -> None:
    """Check, at rest, that the shares of every path add up to what is granted, or less."""
    for broker in grid.qos_brokers().values():
        for holding, _ in broker.state.holdings.all():
            if holding.is_owned:
                body = broker.state.holdings.body(holding)
                _check_divided(grid, holding.key, body)


def _check_divided(grid: TreeGrid, key: tuple[str, int], body: HoldingBody) -> None:
    for path in body.paths:
        total_us = dict.fromkeys(body.granted, int(arithmetic.ENDS_US))
        for piece in path.pieces:
            share = _share_us(grid, key, piece)
            for mode in total_us:
                total_us[mode] += share.get(mode, share.get(-1, 0))
        for mode, qos in body.granted.items():
            if total_us[mode] > qos.latency_us:
                raise PropertyBroken(
                    DIVIDED,
                    f"{key[0]} in mode {mode}: {total_us[mode]} us are promised of "
                    f"{qos.latency_us}: {path}",
                )


def _share_us(grid: TreeGrid, key: tuple[str, int], piece: PathSegment) -> dict[int, int]:
    """Return what is promised for a piece: in each mode, or (-1) in all."""
    leaf = grid.leaves().get(piece.owner)
    if leaf is not None:
        record = leaf.registry.subscriptions[leaf.registry.tree.segment(*key)].record
        _check_current(piece, record)
        # A cloud counts two ends in every path; those of the whole contract count once.
        ends_us = int(arithmetic.ENDS_US)
        return {mode: qos.latency_us - ends_us for mode, qos in record.granted.items()}
    broker = grid.qos_brokers()[piece.owner]
    found = broker.state.holdings.find(*key)
    assert found is not None
    return {
        -1: next(
            share_us
            for path in body_of(found).scope_paths
            for number, share_us in zip(path.channel_ids, path.shares_us, strict=True)
            if number == piece.channel_ids[0]
        )
    }


def _check_current(piece: PathSegment, record: Subscribed) -> None:
    ways = [(path.routers, tuple(path.channel_ids)) for path in record.paths]
    if (piece.routers, tuple(piece.channel_ids)) not in ways:
        raise PropertyBroken(
            CURRENT, f"{record.contract} goes {ways} in {piece.owner}, not {piece.routers}"
        )
