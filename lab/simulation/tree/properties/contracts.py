"""Agreement at rest of every broker with its parent, and of owners with the parts of contracts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.broker.tree.tree_operations import Stage
from lab.simulation.properties.delivery import risks_of
from lab.simulation.world import PropertyBroken
from lab.tree_plan import cloud_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.leaf_broker import LeafBroker
    from gridstat.broker.records.operations import Subscribed
    from gridstat.broker.tree.tree_operations import Holding
    from gridstat.net.command.segment_messages import SegmentedPath
    from lab.simulation.tree.grid import TreeGrid

AGREE: Final = "brokers agree with their parents"
OWNED: Final = "the lowest common broker owns a contract"
DISJOINT: Final = "paths are disjoint"

Held = dict[str, dict[str, int]]
"""The one generation of each contract that each broker holds, committed."""


def check_contracts(grid: TreeGrid) -> None:
    """Check every contract across clouds: requested, owned, and held part by part."""
    held = _held(grid)
    owners = _owners(grid)
    asked = _asked(grid)
    if owners.keys() != asked.keys():
        extra, missing = owners.keys() - asked.keys(), asked.keys() - owners.keys()
        raise PropertyBroken(AGREE, f"owned and not asked {extra}, asked and not owned {missing}")
    for contract, (owner, holding) in owners.items():
        name, generation = asked[contract]
        wanted = grid.swarm.plan.common(cloud_of(name), contract.rpartition("#")[0])
        if owner != wanted:
            raise PropertyBroken(OWNED, f"{contract} to {name} is {owner}'s, not {wanted}'s")
        if holding.generation != generation:
            raise PropertyBroken(
                AGREE, f"{contract}: {owner} has {holding.generation}, its cloud {generation}"
            )
        _check_parts(grid, owner, holding, held)
        _check_paths(grid, owner, holding)
    left = {(who, contract) for who, some in held.items() for contract in some}
    left -= {(owner, contract) for contract, (owner, _) in owners.items()}
    for contract, (owner, holding) in owners.items():
        left -= {(who, contract) for who in _holders(grid, owner, holding)}
    if left:
        raise PropertyBroken(AGREE, f"held, and not the owner's: {sorted(left)}")


def _asked(grid: TreeGrid) -> dict[str, tuple[str, int]]:
    """Return the variable's name and the granted generation of each contract across clouds."""
    found = {}
    for cloud, leaf in grid.leaves().items():
        for number, asked in leaf.registry.tree.asked.items():
            if asked.granted is None or asked.is_ending:
                raise PropertyBroken(AGREE, f"{cloud}#{number} is still under way")
            found[f"{cloud}#{number}"] = asked.record.name, asked.granted.generation
    return found


def _owners(grid: TreeGrid) -> dict[str, tuple[str, Holding]]:
    found: dict[str, tuple[str, Holding]] = {}
    for name, broker in grid.qos_brokers().items():
        for holding, _ in broker.state.holdings.all():
            if holding.is_owned:
                if holding.contract in found:
                    raise PropertyBroken(OWNED, f"{holding.contract} has two owners")
                found[holding.contract] = name, holding
    return found


def _held(grid: TreeGrid) -> Held:
    found: Held = {name: {} for name in grid.brokers}
    for name, broker in grid.qos_brokers().items():
        for holding, stage in broker.state.holdings.all():
            if stage is not Stage.COMMITTED or holding.contract in found[name]:
                raise PropertyBroken(AGREE, f"{name} has {holding.key} {stage.name}")
            found[name][holding.contract] = holding.generation
    for name, leaf in grid.leaves().items():
        for subscription in leaf.registry.subscriptions.values():
            record = subscription.record
            if not record.contract:
                continue
            if record.is_reserved or record.contract in found[name]:
                raise PropertyBroken(AGREE, f"{name} has a spare segment of {record.contract}")
            found[name][record.contract] = record.segment_generation
    return found


def _holders(grid: TreeGrid, owner: str, holding: Holding) -> set[str]:
    """Return all brokers below an owner that hold a part of a contract, as parents record it."""
    brokers = grid.qos_brokers()
    found: set[str] = set()
    open_ = [(owner, holding)]
    while open_:
        name, here = open_.pop()
        for child in here.children:
            found.add(child)
            if child in brokers:
                below = brokers[child].state.holdings.find(*holding.key)
                if below is None:
                    raise PropertyBroken(AGREE, f"{child} holds no {holding.key} of {name}'s")
                open_.append((child, below))
    return found


def _check_parts(grid: TreeGrid, owner: str, holding: Holding, held: Held) -> None:
    for child in _holders(grid, owner, holding):
        generation = held[child].get(holding.contract)
        if generation != holding.generation:
            raise PropertyBroken(
                AGREE,
                f"{child} holds generation {generation} of {holding.contract}, "
                f"not {holding.generation} as {owner}",
            )


def _segment(leaf: LeafBroker, holding: Holding) -> Subscribed:
    number = leaf.registry.tree.segment(*holding.key)
    return leaf.registry.subscriptions[number].record


def _check_paths(grid: TreeGrid, owner: str, holding: Holding) -> None:
    """Check that the parts of all clouds form as many paths as granted, as disjoint as recorded.

    The record is the current one: a cloud may have moved its part and reported shared routers.
    """
    body = grid.qos_brokers()[owner].state.holdings.body(holding)
    count = max(qos.redundancy for qos in body.granted.values())
    if len(body.paths) != count:
        raise PropertyBroken("paths are as many as granted", f"{holding.contract}: {body.paths}")
    used: list[tuple[str, int]] = []
    inner: list[str] = []
    clouds = [name for name in _holders(grid, owner, holding) if name in grid.clouds]
    for cloud in clouds:
        leaf = grid.leaf(cloud)
        assert leaf is not None
        record = _segment(leaf, holding)
        gates = [number for _, number in record.exits]
        used += [(grid.swarm.plan.owner_of(cloud, number), number) for number in gates]
        for path in record.paths:
            used += [(cloud, number) for number in path.channel_ids]
            first = 1 if not record.entries else 0
            last = len(path.routers) - (0 if record.exits else 1)
            inner += path.routers[first:last]
    if len(set(used)) != len(used):
        raise PropertyBroken(DISJOINT, f"{holding.contract}: {sorted(used)} share a channel")
    _check_risks(grid, holding, body.paths)
    if body.is_node_disjoint and len(set(inner)) != len(inner):
        raise PropertyBroken(DISJOINT, f"{holding.contract}: {sorted(inner)} share a router")


def _check_risks(grid: TreeGrid, holding: Holding, paths: Iterable[SegmentedPath]) -> None:
    """Check that no two paths have a link or a named risk of one broker in common."""
    plan, used = grid.swarm.plan, set[object]()
    for path in paths:
        risks: set[object] = set()
        for piece in path.pieces:
            channels = [*plan.brokers[piece.owner].channels]
            channels += plan.clouds[piece.owner].channels if piece.owner in plan.clouds else ()
            of_piece = [one for one in channels if int(one.channel_id) in piece.channel_ids]
            risks |= {(piece.owner, risk) for risk in risks_of(of_piece)}
        if not used.isdisjoint(risks):
            raise PropertyBroken(DISJOINT, f"{holding.contract}: {used & risks} is shared")
        used |= risks
