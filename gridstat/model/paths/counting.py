"""Numbers of disjoint paths from one router to another, by augmenting paths (Ford, Fulkerson).

Brokers report these numbers of the ways between their borders. A search for the paths themselves is
in `search.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence  # Read at run time, by the aliases below.
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

Steps: TypeAlias = Mapping[str, Sequence[tuple[str, object]]]
"""Neighbours of each router, each with the channel that leads there."""
_Taken: TypeAlias = dict[object, tuple[str, str]]
"""Channels of the paths that are counted already, with their two ends."""


def count_link_disjoint(steps: Steps, starts: AbstractSet[str], end: str, count_max: int) -> int:
    """Return how many paths without a common channel lead from any start to the end."""
    taken: _Taken = {}
    for count in range(count_max):
        found = _augmenting_channels(steps, taken, starts, end)
        if found is None:
            return count
        for channel, ends in found.items():
            if taken.pop(channel, None) is None:
                taken[channel] = ends
    return count_max


def count_node_disjoint(steps: Steps, starts: AbstractSet[str], end: str, count_max: int) -> int:
    """Return how many paths share no router but the starts and the end."""
    ends = starts | {end}
    split: dict[str, Sequence[tuple[str, object]]] = {}
    for router, onward in steps.items():
        if router in ends:
            split[router] = onward
        else:
            leaving = f"{router}>"
            split[router], split[leaving] = [(leaving, leaving)], onward
    return count_link_disjoint(split, starts, end, count_max)


def _augmenting_channels(
    steps: Steps, taken: _Taken, starts: AbstractSet[str], end: str
) -> _Taken | None:
    """Return the channels to take, and the taken ones to give up, for one path more."""
    back: dict[str, list[tuple[str, object]]] = {}
    for channel, (here, there) in taken.items():
        back.setdefault(there, []).append((here, channel))
    before: dict[str, tuple[str, object]] = {}
    reached = set(starts)
    open_ = deque(sorted(starts))
    while open_ and end not in reached:
        here = open_.popleft()
        onward = [step for step in steps.get(here, ()) if step[1] not in taken]
        for other, channel in (*onward, *back.get(here, ())):
            if other not in reached:
                reached.add(other)
                before[other] = (here, channel)
                open_.append(other)
    if end not in before:
        return None
    found: _Taken = {}
    there = end
    while there in before:
        here, channel = before[there]
        found[channel] = taken.get(channel, (here, there))
        there = here
    return found
