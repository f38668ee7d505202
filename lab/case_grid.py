"""Layout of a national grid from a power case: a router at every bus, a link at every line.

Buses are cut into connected clouds, and clouds that lie side by side are put below one broker, and
so on up: the scope of every broker is connected where the case is, so it can grant what lies in it.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING

from lab.errors import LabError
from lab.national_grid import (
    BANDWIDTH_BYTES_PER_S,
    QUEUE_EVENTS_MAX,
    cloud_plan,
    latency_us_of,
    levels_of,
    with_pmus,
)
from lab.tree_plan import BorderLink, plan_tree

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence
    from typing import TypeVar

    from lab.national_grid import GridSize, Link, NationalGrid
    from lab.power_case import PowerCase

    Place = TypeVar("Place", bound=Hashable)
    Near = Mapping[Place, Sequence[Place]]


def grid_of_case(case: PowerCase, size: GridSize) -> NationalGrid:
    """Divide the largest connected piece of the case into as many clouds as `size` asks for.

    Buses outside that piece are left out.

    The number of routers of a cloud follows from the case.
    """
    near = _near(case.buses, [link[:2] for link in case.links])
    buses = max(_pieces(near), key=len)
    if size.clouds > len(buses):
        raise LabError(
            f"case {case.name} has {len(buses)} joined buses, too few for {size.clouds} clouds",
            hint="ask for fewer clouds, or take a larger case",
        )
    cloud_of = _regions(near, buses, size.clouds, Random(size.seed))
    inside: dict[int, list[Link]] = {number: [] for number in range(size.clouds)}
    across: list[Link] = []
    for link in case.links:
        one, other, _ = link
        if one in cloud_of:
            is_inside = cloud_of[one] == cloud_of[other]
            (inside[cloud_of[one]] if is_inside else across).append(link)
    borders = {bus for one, other, _ in across for bus in (one, other)}
    clouds = {}
    for number in range(size.clouds):
        own = [bus for bus, cloud in sorted(cloud_of.items()) if cloud == number]
        clouds[f"c{number}"] = cloud_plan(f"c{number}", own, inside[number], borders)
    links = [
        BorderLink(
            f"c{cloud_of[one]}/r{one}",
            f"c{cloud_of[other]}/r{other}",
            latency_us=latency_us_of(length_km),
            bandwidth_bytes_per_s=BANDWIDTH_BYTES_PER_S,
            queue_events_max=QUEUE_EVENTS_MAX,
        )
        for one, other, length_km in across
    ]
    joined = [(f"c{cloud_of[one]}", f"c{cloud_of[other]}") for one, other, _ in across]
    children = _adjacent_tree(list(clouds), joined, size)
    return with_pmus(plan_tree(children, clouds, links), size.pmus_per_cloud)


def _adjacent_tree(
    clouds: list[str], joined: Iterable[tuple[str, str]], size: GridSize
) -> dict[str, tuple[str, ...]]:
    """Return the children of each broker; at each level adjacent names have one parent."""
    found: dict[str, tuple[str, ...]] = {}
    below, pairs = clouds, list(joined)
    for names in levels_of(len(clouds), size.levels, size.branching):
        group_of = _regions(_near(below, pairs), below, len(names), Random(size.seed))
        for number, name in enumerate(names):
            found[name] = tuple(one for one in below if group_of[one] == number)
        pairs = [
            (names[group_of[one]], names[group_of[other]])
            for one, other in pairs
            if group_of[one] != group_of[other]
        ]
        below = names
    return dict(reversed(found.items()))


def _near(
    places: Iterable[Place], pairs: Iterable[tuple[Place, Place]]
) -> dict[Place, list[Place]]:
    near: dict[Place, list[Place]] = {place: [] for place in places}
    for one, other in pairs:
        near[one].append(other)
        near[other].append(one)
    return near


def _pieces(near: Near[Place]) -> list[list[Place]]:
    """Return the connected components of a graph, each as a list of its places."""
    found, seen = [], set()
    for start in near:
        if start not in seen:
            seen.add(start)
            piece = [start]
            for place in piece:
                new = [one for one in near[place] if one not in seen]
                seen.update(new)
                piece += dict.fromkeys(new)
            found.append(piece)
    return found


def _regions(
    near: Near[Place], places: Sequence[Place], count: int, random: Random
) -> dict[Place, int]:
    """Return connected regions of about equal size, grown from places drawn at random."""
    seeds = random.sample(list(places), count)
    region_of = {place: number for number, place in enumerate(seeds)}
    fronts = [deque([place]) for place in seeds]
    while any(fronts):
        for number, front in enumerate(fronts):
            _grow(number, front, near, region_of)
    return region_of


def _grow(number: int, front: deque[Place], near: Near[Place], region_of: dict[Place, int]) -> None:
    """Add one free place next to the region, if there is one."""
    while front:
        for place in near[front[0]]:
            if place not in region_of:
                region_of[place] = number
                front.append(place)
                return
        front.popleft()
