"""Trees for tests: two clouds under a root, and an unbalanced one of four levels."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from gridstat.broker.tree.tree_operations import Stage
from tests.unit.broker.tree.cloud_stand_in import CloudStandIn
from tests.unit.broker.tree.tree_world import TreeWorld, both_ways, variable

if TYPE_CHECKING:
    from gridstat.broker.capacity.accounts import HopAccount
    from gridstat.broker.tree.tree_settings import TreeSettings

VOLTAGE = "c1/pmu/v"


def two_clouds(settings: TreeSettings | None = None, **facts: int) -> TreeWorld:
    """Two clouds, and two disjoint pairs of channels between them."""
    channels = [
        *both_ways("c1/b0", "c2/b0", **facts),
        *both_ways("c1/b1", "c2/b1", **facts),
    ]
    clouds = [CloudStandIn("c1", "root"), CloudStandIn("c2", "root")]
    return published(TreeWorld({"root": ("", ("c1", "c2"), channels)}, clouds, settings)).start()


def row_of_clouds(count: int, **facts: int) -> TreeWorld:
    """Clouds in a row under one root, with two disjoint channels from each to the next."""
    names = [f"c{at}" for at in range(1, count + 1)]
    channels = [
        found
        for one, other in itertools.pairwise(names)
        for at in (0, 1)
        for found in both_ways(f"{one}/out{at}", f"{other}/in{at}", **facts)
    ]
    clouds = [CloudStandIn(name, "root") for name in names]
    return published(TreeWorld({"root": ("", names, channels)}, clouds)).start()


def deep_tree(settings: TreeSettings | None = None, **facts: int) -> TreeWorld:
    """root over west (c1, c2) and east (c5, and mid over c3 and c4); two ways from west to east.

    c4 stands at depth 3 and c1 at depth 2.
    """
    root = [
        *both_ways("c2/r0", "c5/r0", **facts),
        *both_ways("c1/r1", "c3/r1", **facts),
    ]
    west = [*both_ways("c1/w0", "c2/w0", **facts), *both_ways("c1/w1", "c2/w1", **facts)]
    east = [*both_ways("c5/e0", "c3/e0", **facts), *both_ways("c5/e1", "c4/e1", **facts)]
    mid = [*both_ways("c3/m0", "c4/m0", **facts), *both_ways("c3/m1", "c4/m1", **facts)]
    clouds = [
        CloudStandIn("c1", "west"),
        CloudStandIn("c2", "west"),
        CloudStandIn("c3", "mid"),
        CloudStandIn("c4", "mid"),
        CloudStandIn("c5", "east"),
    ]
    brokers = {
        "root": ("", ("west", "east"), root),
        "west": ("root", ("c1", "c2"), west),
        "east": ("root", ("c5", "mid"), east),
        "mid": ("east", ("c3", "c4"), mid),
    }
    world = published(TreeWorld(brokers, clouds, settings)).start()
    world.rest()
    return world


def caterpillar(levels: int, **facts: int) -> TreeWorld:
    """Below every broker a cloud and the next broker; two channels from each cloud to the next."""
    brokers = {}
    for at in range(1, levels):
        name, parent = ("root", "") if at == 1 else (f"b{at}", f"b{at - 1}" if at > 2 else "root")
        below = f"b{at + 1}" if at + 1 < levels else f"c{levels}"
        channels = [
            found
            for side in (0, 1)
            for found in both_ways(f"c{at}/out{side}", f"c{at + 1}/in{side}", **facts)
        ]
        brokers[name] = (parent, (f"c{at}", below), channels)
    owners = {child: name for name, (_, below, _) in brokers.items() for child in below}
    clouds = [CloudStandIn(f"c{at}", owners[f"c{at}"]) for at in range(1, levels + 1)]
    world = published(TreeWorld(brokers, clouds)).start()
    world.rest()
    return world


def published(world: TreeWorld) -> TreeWorld:
    """Add a variable to every cloud."""
    for number, (name, cloud) in enumerate(sorted(world.clouds.items()), start=1):
        cloud.variables[f"{name}/pmu/v"] = variable(f"{name}/pmu/v", number)
    return world


def is_charged(carriage: HopAccount) -> bool:
    """Return whether any charge is left: a stream, or an amount without one."""
    return bool(carriage.streams or carriage.bytes or carriage.burst.events or carriage.burst.bytes)


def residue(world: TreeWorld) -> list[str]:
    """Return everything that a broker still holds, charges, or waits for."""
    found = [
        f"{cloud.name} holds {key}" for cloud in world.clouds.values() for key in cloud.segments
    ]
    for name, process in world.brokers.items():
        state, survey = process.machine.state, process.machine.survey()
        found += [f"{name} holds {holding.key}" for holding, _ in state.holdings.all()]
        found += [
            f"{name} charges {account.channel.label}"
            for account in state.channels.accounts.values()
            if account.relied_us or is_charged(account.carriage)
        ]
        found += [
            f"{name} has {survey[what]} {what}"
            for what in ("transactions", "releases", "broken")
            if survey[what]
        ]
    return found


def _is_committed(world: TreeWorld, name: str, key: tuple[str, int]) -> bool:
    if name in world.clouds:
        return world.clouds[name].segments[key].is_committed
    holdings = world.brokers[name].machine.state.holdings
    holding = holdings.find(*key)
    return holding is not None and holdings.stage(holding) is Stage.COMMITTED


def inconsistencies(world: TreeWorld) -> list[str]:
    """Return differences between parent and child, and between a state and its restart."""
    found = []
    for name, process in world.brokers.items():
        state = process.machine.state
        wanted = {
            (child, holding.key)
            for holding, _ in state.holdings.all()
            for child in holding.children
        }
        for child in process.children:
            if child in world.clouds:
                held = set(world.clouds[child].segments)
            else:
                below = world.brokers[child].machine.state.holdings
                held = {holding.key for holding, _ in below.all() if not holding.is_owned}
            expected = {key for owner, key in wanted if owner == child}
            found += [
                f"{child} has not committed {key}"
                for key in expected & held
                if _is_committed(world, name, key) and not _is_committed(world, child, key)
            ]
            if held != expected:
                found.append(f"{name}/{child}: {sorted(held)} held, {sorted(expected)} expected")
        restored = type(process)(process.settings, process.children, process.channels)
        restored.written = process.written
        restored.restart()
        if restored.machine.snapshot()[1:] != process.machine.snapshot()[1:]:
            found.append(f"{name} would be restored to another state")
        found += [
            f"{name} has promised too much of {account.channel.label}"
            for account in state.channels.accounts.values()
            if account.carriage.is_overloaded
        ]
    return found
