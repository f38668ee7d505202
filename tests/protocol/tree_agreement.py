"""Agreement of all brokers of a tree and their routers on every contract, and nothing more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.tree.tree_operations import Stage, body_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.broker.records.parent_state import AskedContract
    from tests.unit.broker.tree.family import Family

Contracts = dict[tuple[str, str], int]
"""Number of disjoint ways by cloud and variable."""


def contracts_of(family: Family) -> Contracts:
    """Return the contracts with other clouds; check that there is one by cloud and variable."""
    found: Contracts = {}
    for cloud, _, asked in _asked(family):
        one = cloud, asked.record.name
        assert one not in found, f"{one} is there twice"
        assert asked.granted is not None, f"{one} is not granted"
        found[one] = len(asked.granted.paths)
    return found


def disagreements(family: Family) -> list[str]:
    return [
        *_under_way(family),
        *_between_brokers(family),
        *_at_routers(family),
        *_after_a_restart(family),
    ]


def _asked(family: Family) -> Iterator[tuple[str, str, AskedContract]]:
    """Cloud, contract, and what the cloud knows of it."""
    for cloud, leaf in family.leaves.items():
        for number, asked in leaf.broker.registry.tree.asked.items():
            yield cloud, f"{cloud}#{number}", asked


def _under_way(family: Family) -> Iterator[str]:
    for _, contract, asked in _asked(family):
        if asked.granted is None or asked.waiting is not None or asked.is_ending:
            yield f"{contract} is under way"
    for name, node in family.brokers.items():
        for holding, stage in node.broker.state.holdings.all():
            if stage is not Stage.COMMITTED:
                yield f"{name} has {holding.key} {stage.name}"
        survey = node.broker.survey()
        for what in ("transactions", "releases", "broken"):
            if survey[what]:
                yield f"{name} has {survey[what]} {what}"


def _between_brokers(family: Family) -> Iterator[str]:
    """Owners have what subscribers have, and children just what their parents want of them."""
    granted = {
        (contract, asked.granted.generation): len(asked.granted.paths)
        for _, contract, asked in _asked(family)
        if asked.granted is not None
    }
    owned = {
        holding.key: len(body_of(holding).scope_paths)
        for node in family.brokers.values()
        for holding, _ in node.broker.state.holdings.all()
        if holding.is_owned
    }
    if owned != granted:
        yield f"{owned} are owned, {granted} were granted"
    for child, parent in family.parents.items():
        wanted = {
            holding.key
            for holding, _ in family.brokers[parent].broker.state.holdings.all()
            if child in holding.children
        }
        if child in family.brokers:
            below = family.brokers[child].broker.state.holdings.all()
            held = {holding.key for holding, _ in below if not holding.is_owned}
        else:
            segments = family.leaves[child].broker.registry.tree.segments
            held = {(one, generation) for one, some in segments.items() for generation in some}
        if held != wanted:
            yield f"{child} holds {sorted(held)}, {parent} wants {sorted(wanted)}"


def _at_routers(family: Family) -> Iterator[str]:
    """Routers forward what is on a path of a contract, and nothing else."""
    wanted = {
        (router, int(asked.granted.variable.variable_id))
        for _, _, asked in _asked(family)
        if asked.granted is not None
        for path in asked.granted.paths
        for piece in path.pieces
        for router in piece.routers
    }
    found = {
        (router, int(order.variable_id))
        for leaf in family.leaves.values()
        for router, stand_in in leaf.routers.items()
        for order in stand_in.table.paths.values()
    }
    if found != wanted:
        yield f"forwarded {sorted(found - wanted)} in vain, and not {sorted(wanted - found)}"
    for leaf in family.leaves.values():
        yield from (f"{router} is not in step" for router in leaf.differing())


def _after_a_restart(family: Family) -> Iterator[str]:
    """Yield differences between the brokers and their restarts from the journals."""
    for name, node in family.brokers.items():
        if node.restored().snapshot()[1:] != node.broker.snapshot()[1:]:
            yield f"{name} would be restored to another state"
    for name, leaf in family.leaves.items():
        restored = leaf.new_broker()
        restored.restore(leaf.journal)
        if restored.snapshot() != leaf.broker.snapshot():
            yield f"{name} would be restored to another state"
