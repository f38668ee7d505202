"""What contracts between clouds promise: within what was asked, in time, and the best there is.

How many ways there are is worked out anew, from the channels of the plan and what is cut of them.
Where room is tight nobody here knows what fits, so there only bands and latencies are looked at.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from lab.simulation.tree.properties.ways import ways_between
from lab.simulation.world import PropertyBroken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.model.qos import Qos
    from gridstat.net.command.segment_messages import ContractGranted, SegmentedPath
    from lab.simulation.tree.grid import TreeGrid
    from lab.simulation.tree.properties.ways import Channel

BAND: Final = "what is granted lies between what is desired and the worst"
LATE: Final = "paths keep the latency that is granted"
BEST: Final = "what is desired is granted where there is room"
ROOMY_US: Final = 1_000_000
"""Whoever may take so long may take any way."""


class Between(NamedTuple):
    """A contract between clouds, as its subscriber's cloud has it.

    Of several modes the first one speaks for how often. All of them have as many paths as the one
    that asks for most, and none is roomier in time than the most hurried.
    """

    contract: str
    name: str
    subscriber: str
    desired: Qos
    worst: Qos
    granted: ContractGranted
    bands: dict[int, tuple[Qos, Qos]]
    """What each mode desires, and the worst that it accepts."""

    @property
    def qos(self) -> Qos:
        return self.granted.granted[min(self.granted.granted)]


def contracts_between(grid: TreeGrid) -> Iterator[Between]:
    for cloud, leaf in grid.leaves().items():
        for number, asked in leaf.registry.tree.asked.items():
            if asked.granted is not None and not asked.is_ending:
                record, period = asked.record, asked.granted.variable.period
                bands = {
                    mode: (request.desired(period), request.worst(period))
                    for mode, request in record.qos.modes.items()
                }
                yield Between(
                    f"{cloud}#{number}",
                    record.name,
                    record.subscriber,
                    _together([bands[mode][0] for mode in sorted(bands)]),
                    _together([bands[mode][1] for mode in sorted(bands)]),
                    asked.granted,
                    bands,
                )


def _together(some: list[Qos]) -> Qos:
    return replace(
        some[0],
        redundancy=max(qos.redundancy for qos in some),
        latency_us=min(qos.latency_us for qos in some),
    )


def is_cut(grid: TreeGrid, path: SegmentedPath) -> bool:
    """Whether nothing arrives by it, since a wire is cut on the way."""
    return any(
        number in grid.wires.owned[piece.owner].cut
        for piece in path.pieces
        for number in piece.channel_ids
    )


# At rest.


def check_promises(grid: TreeGrid) -> None:
    latencies = _latencies(grid)
    for found in contracts_between(grid):
        _check_bands(found)
        within_us = min(qos.latency_us for qos in found.granted.granted.values())
        for path in found.granted.paths:
            wires_us = sum(
                latencies[piece.owner, number]
                for piece in path.pieces
                for number in piece.channel_ids
            )
            if max(wires_us, path.latency_us) > within_us:
                raise PropertyBroken(LATE, f"{found.contract} has {found.qos}, and takes {path}")
        if grid.swarm.is_quiet and _is_free(grid, found):
            _check_best(grid, found)


def _check_bands(found: Between) -> None:
    """In every mode; the divisors of several form a chain, so one may be less than desired."""
    if found.granted.granted.keys() != found.bands.keys():
        raise PropertyBroken(BAND, f"{found.contract} has the modes {list(found.granted.granted)}")
    for mode, qos in found.granted.granted.items():
        desired, worst = found.bands[mode]
        every_min = desired.every if len(found.bands) == 1 else 1
        if not (
            every_min <= qos.every <= worst.every
            and worst.redundancy <= qos.redundancy <= found.desired.redundancy
            and desired.latency_us <= qos.latency_us <= worst.latency_us
        ):
            raise PropertyBroken(
                BAND, f"{found.contract} has {qos} of {desired} to {worst} in mode {mode}"
            )


def _check_best(grid: TreeGrid, found: Between) -> None:
    """Nothing was ever broken, and nobody has taken the room."""
    qos, desired = found.qos, found.desired
    is_lowered = qos.every > desired.every or qos.redundancy < desired.redundancy
    if is_lowered and _ways(grid, found) >= desired.redundancy:
        raise PropertyBroken(BEST, f"{found.contract} has {qos}, desired was {desired}")


def _latencies(grid: TreeGrid) -> dict[Channel, int]:
    plan = grid.swarm.plan
    return {
        (name, int(channel.channel_id)): channel.latency_us
        for some in (plan.brokers, plan.clouds)
        for name, owner in some.items()
        for channel in owner.channels
    }


def _is_free(grid: TreeGrid, found: Between) -> bool:
    """Whether nothing but the wires themselves decides what it can have."""
    return grid.swarm.outline.room == "ample" and found.desired.latency_us >= ROOMY_US


# What is still to come.


def unrest_of_promises(grid: TreeGrid, promised: dict[str, Qos]) -> str | None:
    """What could be led round a cut wire, or be had again as it was granted; or is healed."""
    broken: dict[str, int] = {}
    for found in contracts_between(grid):
        cut = [is_cut(grid, path) for path in found.granted.paths]
        owner = found.granted.owner
        broken[owner] = broken.get(owner, 0) + any(cut)
        wanted = _wanted(found, cut, promised.get(found.contract, found.qos))
        if wanted and _is_free(grid, found) and _ways(grid, found) >= wanted:
            return f"{found.contract} has {found.qos}, {cut} are cut, and could have {wanted} paths"
    for name, broker in grid.qos_brokers().items():
        told = broker.survey()["broken"]
        if told != broken.get(name, 0):
            return f"{name} takes {told} contracts for broken, not {broken.get(name, 0)}"
    return None


def _wanted(found: Between, cut: list[bool], before: Qos) -> int:
    """With how many ways it is not to stay as it is; 0 if it may.

    What was granted before may be more than is desired since a change.
    """
    qos, desired = found.qos, found.desired
    redundancy = min(before.redundancy, desired.redundancy)
    if redundancy > qos.redundancy or max(before.every, desired.every) < qos.every:
        return redundancy
    if all(cut):
        return found.worst.redundancy
    return found.qos.redundancy if any(cut) else 0


def _ways(grid: TreeGrid, found: Between) -> int:
    return ways_between(grid, found.granted.owner, found.name, found.subscriber)
