"""Promises of contracts between clouds: within the request, in time, and the best possible.

The number of ways is computed again, from the channels of the plan and the cuts among them. Where
room is tight, no check knows what fits, so only bands and latencies are checked there.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple

from gridstat.model.qos import BASELINE_MODE
from gridstat.model.rate_law import NS_PER_S
from lab.simulation.tree.properties.room import has_room
from lab.simulation.tree.properties.ways import ways_between
from lab.simulation.tree.shapes import BRAID, DRAWN
from lab.simulation.world import PropertyBroken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.broker.capacity.negotiation import Quality
    from gridstat.net.command.segment_messages import ContractGranted, SegmentedPath
    from lab.simulation.tree.grid import TreeGrid
    from lab.simulation.tree.properties.closed_channels import ClosedChannels
    from lab.simulation.tree.properties.ways import Channel

BAND: Final = "what is granted lies between what is desired and the worst"
LATE: Final = "paths keep the latency that is granted"
BEST: Final = "what is desired is granted where there is room"
ROOMY_US: Final = 1_000_000
"""Latency that any way can keep."""

TRIED_NS: Final = 40 * NS_PER_S
"""Time within which brokers try again whatever was lowered."""


class Between(NamedTuple):
    """A contract between clouds, as the subscriber's cloud has it.

    All modes have as many paths as the one that asks for most, and no path takes longer than the
    mode with the shortest latency allows.
    """

    contract: str
    name: str
    subscriber: str
    granted: ContractGranted
    desired: Quality
    worst: Quality

    @property
    def quality(self) -> Quality:
        return self.granted.granted

    @property
    def redundancy(self) -> int:
        return _paths_of(self.quality)


def contracts_between(grid: TreeGrid) -> Iterator[Between]:
    for cloud, leaf in grid.leaves().items():
        for number, asked in leaf.registry.tree.asked.items():
            if asked.granted is not None and not asked.is_ending:
                record, period = asked.record, asked.granted.variable.period
                requests = record.qos.modes.items()
                yield Between(
                    f"{cloud}#{number}",
                    record.name,
                    record.subscriber,
                    asked.granted,
                    {mode: request.desired(period) for mode, request in requests},
                    {mode: request.worst(period) for mode, request in requests},
                )


def _paths_of(quality: Quality) -> int:
    return max(qos.redundancy for qos in quality.values())


def is_cut(grid: TreeGrid, path: SegmentedPath) -> bool:
    """Return whether nothing arrives by a path, since a wire on it is cut."""
    return any(number in grid.wires.owned[owner].cut for owner, number in channels_of(path))


# At rest.


def check_promises(grid: TreeGrid, closed: ClosedChannels) -> None:
    latencies = _latencies(grid)
    for found in contracts_between(grid):
        _check_bands(found)
        within_us = min(qos.latency_us for qos in found.quality.values())
        for path in found.granted.paths:
            wires_us = sum(latencies[channel] for channel in channels_of(path))
            if max(wires_us, path.latency_us) > within_us:
                raise PropertyBroken(LATE, f"{found.contract} has {found.quality}, takes {path}")
        has_all = grid.swarm.quotas().capacity_share == 1  # Else a share may lower a new contract.
        if grid.swarm.is_quiet and has_all and _is_free(grid, found):
            _check_best(grid, found, closed.to_contract(found.contract))


def _check_bands(found: Between) -> None:
    """Check the quality in every mode; with several modes a divisor may be below the desired."""
    if found.quality.keys() != found.desired.keys():
        raise PropertyBroken(BAND, f"{found.contract} has the modes {list(found.quality)}")
    for mode, qos in found.quality.items():
        desired, worst = found.desired[mode], found.worst[mode]
        every_min = desired.every if len(found.desired) == 1 else 1
        if not (
            every_min <= qos.every <= worst.every
            and worst.redundancy <= qos.redundancy <= _paths_of(found.desired)
            and desired.latency_us <= qos.latency_us <= worst.latency_us
        ):
            raise PropertyBroken(
                BAND, f"{found.contract} has {qos} of {desired} to {worst} in mode {mode}"
            )


def _check_best(grid: TreeGrid, found: Between, closed: frozenset[Channel]) -> None:
    """Check that a contract has the best quality if nothing was ever broken and there is room.

    The channels that were `closed` when it was granted do not count: it is not raised later.
    """
    wanted = _paths_of(found.desired)
    is_lowered = found.redundancy < wanted or any(
        qos.every > found.desired[mode].every for mode, qos in found.quality.items()
    )
    if is_lowered and _free_ways(grid, found, closed) >= wanted:
        raise PropertyBroken(
            BEST, f"{found.contract} has {found.quality}, desired was {found.desired}"
        )


def _latencies(grid: TreeGrid) -> dict[Channel, int]:
    plan = grid.swarm.plan
    return {
        (name, int(channel.channel_id)): channel.latency_us
        for some in (plan.brokers, plan.clouds)
        for name, owner in some.items()
        for channel in owner.channels
    }


def _is_free(grid: TreeGrid, found: Between) -> bool:
    """Return whether nothing but the wires limits a contract.

    In drawn trees the ways may lead through one cloud twice, or through a broker's scope from one
    channel back to another; brokers know no more of a child than its abstract links, and miss such
    ways.
    """
    return is_roomy(grid) and not has_tight_latency(found.desired)


def is_roomy(grid: TreeGrid) -> bool:
    """Return whether there is room for all contracts, on all ways that the wires have."""
    outline = grid.swarm.outline
    return outline.tree not in {*DRAWN, BRAID} and outline.room == "ample"


# What is still in progress.


def unrest_of_promises(grid: TreeGrid, promised: dict[str, Quality]) -> str | None:
    """Return a contract that can still be restored or moved off a cut wire, or a stale report."""
    broken: dict[str, int] = {}
    for found in contracts_between(grid):
        cut = [is_cut(grid, path) for path in found.granted.paths]
        owner = found.granted.owner
        broken[owner] = broken.get(owner, 0) + any(cut)
        again = owed(found, promised.get(found.contract, {}))
        wanted = _wanted(found, cut, again)
        if again and found.granted.lowered_for and _could_rise(grid, found, again):
            return f"{found.contract} has {found.quality}, and there is room for {again}"
        if wanted and _is_free(grid, found) and _free_ways(grid, found) >= wanted:
            return (
                f"{found.contract} has {found.quality}, {cut} are cut, and could have "
                f"{wanted} paths, and is owed {again}"
            )
    for name, broker in grid.qos_brokers().items():
        reported = broker.survey()["broken"]
        if reported != broken.get(name, 0):
            return f"{name} takes {reported} contracts for broken, not {broken.get(name, 0)}"
    return None


def _could_rise(grid: TreeGrid, found: Between, again: Quality) -> bool:
    """Return whether a contract that gave way to another has room on its paths, and works."""
    if found.granted.paths_down or set(again) != {BASELINE_MODE}:
        return False
    if any(has_tight_latency(other.quality) for other in contracts_between(grid)):
        return False
    # A share of some latency may be short, though that latency is not.
    late_ns = [node.refused_late_ns.get(found.contract) for node in grid.brokers.values()]
    if any(at_ns is not None and grid.world.now_ns - at_ns < TRIED_NS for at_ns in late_ns):
        return False
    return has_room(grid, found, again[BASELINE_MODE].every)


def owed(found: Between, before: Quality) -> Quality:
    """Return the modes that have less than was granted before, with the quality to restore.

    The former grant may be more than is desired since a change.
    """
    lacking: Quality = {}
    most = _paths_of(found.desired)
    for mode, qos in found.quality.items():
        if mode in before:
            desired = found.desired[mode]
            again = replace(
                qos,
                every=min(qos.every, max(before[mode].every, desired.every)),
                redundancy=max(qos.redundancy, min(before[mode].redundancy, most)),
                latency_us=min(qos.latency_us, max(before[mode].latency_us, desired.latency_us)),
            )
            if again != qos:
                lacking[mode] = again
    return lacking


def _wanted(found: Between, cut: list[bool], again: Quality) -> int:
    """Return the number of ways with which a contract must change; 0 if it may stay as it is."""
    if again:
        return _paths_of(again)
    if all(cut):
        return _paths_of(found.worst)
    return found.redundancy if any(cut) else 0


def _free_ways(grid: TreeGrid, found: Between, closed: frozenset[Channel] = frozenset()) -> int:
    return free_ways(grid, found.granted.owner, found.name, found.subscriber, closed)


def free_ways(
    grid: TreeGrid,
    owner: str,
    name: str,
    subscriber: str,
    closed: frozenset[Channel] = frozenset(),
) -> int:
    """Count ways over channels that are neither `closed` nor have contracts of tight latency."""
    return ways_between(grid, owner, name, subscriber, closed | relied_on(grid))


def relied_on(grid: TreeGrid) -> set[Channel]:
    """Return the channels with contracts of tight latency, which more load might delay."""
    found: set[Channel] = set()
    for other in contracts_between(grid):
        if has_tight_latency(other.quality):
            found.update(channel for path in other.granted.paths for channel in channels_of(path))
    for cloud, leaf in grid.leaves().items():
        for subscription in leaf.registry.subscriptions.values():
            record = subscription.record
            if not record.contract and has_tight_latency(record.granted):
                found.update((cloud, one) for path in record.paths for one in path.channel_ids)
    return found


def has_tight_latency(quality: Quality) -> bool:
    return any(qos.latency_us < ROOMY_US for qos in quality.values())


def channels_of(path: SegmentedPath) -> list[Channel]:
    return [(piece.owner, number) for piece in path.pieces for number in piece.channel_ids]


def _ways(grid: TreeGrid, found: Between, without: frozenset[Channel]) -> int:
    return ways_between(grid, found.granted.owner, found.name, found.subscriber, without)


# Cuts that lower a contract.


def lowering_cuts(grid: TreeGrid, found: Between) -> list[tuple[Channel, ...]]:
    """Return the cuts of one wire a path that leave fewer paths than granted, but enough.

    For a contract with its fewest allowed paths: the cuts that leave so many, perhaps slower ones.
    """
    if found.worst == found.desired:
        return []
    paths = [channels_of(path) for path in found.granted.paths]
    worst = _paths_of(found.worst)
    allowed = range(worst, found.redundancy) or range(worst, worst + 1)
    all_cuts = sorted(set(product(*paths)))
    return [cuts for cuts in all_cuts if _ways(grid, found, frozenset(cuts)) in allowed]
