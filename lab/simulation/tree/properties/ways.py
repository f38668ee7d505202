"""Number of ways without a common channel from a publisher to a subscriber, by the wires alone.

The count adds one way after another and reroutes those in its place (Ford, Fulkerson).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from lab.tree_plan import cloud_of

if TYPE_CHECKING:
    from lab.simulation.tree.grid import TreeGrid

Channel = tuple[str, int]
"""Owner of a channel, and its number there."""
Leaving = dict[str, list[tuple[Channel, str]]]
"""The channels that leave each router, with their receivers."""
Taken = dict[Channel, tuple[str, str]]
"""Channels of the ways found so far, with their two ends."""


def ways_between(
    grid: TreeGrid,
    owner: str,
    name: str,
    subscriber: str,
    without: frozenset[Channel] = frozenset(),
) -> int:
    """Count ways in the scope of an owner, over wires that are neither cut nor in `without`.

    Of the links that run one named risk only the first counts. No way leads back into the
    publisher's cloud, or out of the subscriber's: no broker plans so.
    """
    leaving, taken = _leaving(grid, owner, without), Taken()
    first, last = cloud_of(name), cloud_of(subscriber)
    for sender, hops in leaving.items():
        leaving[sender] = [
            (channel, receiver)
            for channel, receiver in hops
            if cloud_of(sender) == cloud_of(receiver)
            or (cloud_of(receiver) != first and cloud_of(sender) != last)
        ]
    leaf = grid.leaf(cloud_of(name))
    publication = None if leaf is None else leaf.registry.publications.get(name)
    sources = set() if publication is None else _edges(grid, publication.publisher)
    targets = _edges(grid, subscriber)
    assert not sources & targets, "a contract between clouds has no edge at both ends"
    count = 0
    while (steps := _search(leaving, taken, sources, targets)) is not None:
        count += 1
        for channel, ends in steps.items():
            if taken.pop(channel, None) is None:
                taken[channel] = ends
    return count


def _leaving(grid: TreeGrid, owner: str, without: frozenset[Channel]) -> Leaving:
    leaving: Leaving = {}
    for name, broker in grid.swarm.plan.brokers.items():
        if owner in (name, *broker.above):
            channels = grid.wires.owned[name]
            there = grid.wiring.numbers_of(name) - channels.cut - _doubly_run(grid, name)
            for number, (sender, receiver) in channels.ends.items():
                if number in there and (name, number) not in without:
                    leaving.setdefault(sender, []).append(((name, number), receiver))
    return leaving


def _doubly_run(grid: TreeGrid, name: str) -> set[int]:
    """Return the channels of all links but one of each named risk.

    Without them no two ways have a risk in common; there may be more ways with them.
    """
    first: dict[str, object] = {}
    found: set[int] = set()
    for channel in grid.wiring.channels_of(name):
        link = frozenset((channel.from_router, channel.to_router)), channel.name
        if any(first.setdefault(risk, link) != link for risk in channel.risks):
            found.add(int(channel.channel_id))
    return found


def _edges(grid: TreeGrid, endpoint: str) -> set[str]:
    leaf = grid.leaf(cloud_of(endpoint))
    found = None if leaf is None else leaf.registry.endpoints.get(endpoint)
    return set() if found is None else set(found.attachments)


def _search(leaving: Leaving, taken: Taken, sources: set[str], targets: set[str]) -> Taken | None:
    """Return the channels to take, and the taken ones to give up, for one more way."""
    steps_to: dict[str, Taken] = {name: {} for name in sorted(sources)}
    open_ = deque(steps_to)
    while open_:
        here = open_.popleft()
        if here in targets:
            return steps_to[here]
        onward = [
            (other, channel, (here, other))
            for channel, other in leaving.get(here, ())
            if channel not in taken
        ]
        onward += [(ends[0], channel, ends) for channel, ends in taken.items() if ends[1] == here]
        for other, channel, ends in onward:
            if other not in steps_to:
                steps_to[other] = {**steps_to[here], channel: ends}
                open_.append(other)
    return None
