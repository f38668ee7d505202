"""Refusals between clouds: what the wires have room for is not refused for lack of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.model.errors import (
    BurstTooLarge,
    ChannelFull,
    LatencyNotSatisfiable,
    PathTooLong,
    RedundancyNotSatisfiable,
    RouterFull,
)
from lab.simulation.tree.properties.promises import free_ways, has_tight_latency, is_roomy
from lab.simulation.world import PropertyBroken
from lab.tree_plan import cloud_of

if TYPE_CHECKING:
    from gridstat.net.command.endpoint_messages import RefusedOutcome, SubscriptionRequest
    from lab.simulation.tree.grid import TreeGrid
    from lab.simulation.tree.properties.closed_channels import ClosedChannels

RULE: Final = "what there is room for is granted"
NO_ROOM: Final = frozenset(
    each.code
    for each in (
        BurstTooLarge,
        ChannelFull,
        LatencyNotSatisfiable,
        PathTooLong,
        RedundancyNotSatisfiable,
        RouterFull,
    )
)


def check_refused(
    grid: TreeGrid,
    subscriber: str,
    asked: SubscriptionRequest,
    refused: RefusedOutcome,
    closed: ClosedChannels,
) -> None:
    """Check a refusal where nothing was ever broken or tight: there must be too few ways.

    Contracts with a tight latency close the channels on their paths, since load might delay them:
    those of now, and those that were there or were tried while this request was decided.
    """
    if refused.code not in NO_ROOM or not grid.swarm.is_quiet or not is_roomy(grid):
        return
    if grid.swarm.quotas().capacity_share < 1 or cloud_of(asked.name) == cloud_of(subscriber):
        return
    leaf = grid.leaf(cloud_of(asked.name))
    publication = None if leaf is None else leaf.registry.publications.get(asked.name)
    if publication is None:
        return
    period = publication.variable.period
    worst = {mode: each.worst(period) for mode, each in asked.qos.modes.items()}
    if has_tight_latency(worst):
        return
    owner = grid.swarm.plan.common(cloud_of(asked.name), cloud_of(subscriber))
    wanted = max(qos.redundancy for qos in worst.values())
    without = closed.to_request(asked.name, subscriber)
    if free_ways(grid, owner, asked.name, subscriber, without) >= wanted:
        raise PropertyBroken(RULE, f"{asked.name} is refused to {subscriber}: {refused.reason}")
