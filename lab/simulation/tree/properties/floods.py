"""Agreement on floods: each child has what its parent has, each router what its cloud has.

Nothing is reserved at rest, so the flooding load of every channel can be counted from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lab.simulation.world import PropertyBroken

if TYPE_CHECKING:
    from gridstat.broker.floods.flooding_operations import FloodingHeld
    from gridstat.broker.floods.leaf_flooding_operations import FloodingSet
    from gridstat.broker.leaf_broker import LeafBroker
    from lab.simulation.tree.grid import TreeGrid

AGREE: Final = "all of a scope floods alike, or nobody"

Terms = dict[int, tuple[int, int]]
"""Flood of a variable in each mode: its top level, and its divisor."""
Flood = tuple[int, int, int]
"""Flood in a router's table: level, modes, divisor."""


def unrest_of_floods(grid: TreeGrid) -> str | None:
    """Return an open reservation or a difference between parent and child, or None."""
    for name, broker in grid.qos_brokers().items():
        for held in broker.parts.flooding.floods.values():
            if held.reserved_generation:
                return f"{name}: room for {held.variable.name} to flood is reserved"
    for cloud, leaf in grid.leaves().items():
        for found in leaf.floods.variables.values():
            if found.reserved_generation:
                return f"{cloud}: room for {found.variable.name} to flood is reserved"
    return _unlike(grid)


def check_floods(grid: TreeGrid) -> None:
    unlike = _unlike(grid)
    if unlike is not None:
        raise PropertyBroken(AGREE, unlike)
    for leaf in grid.leaves().values():
        _check_routers(grid, leaf)


def check_nothing_floods(grid: TreeGrid) -> None:
    """Check that neither brokers nor routers have any flood left."""
    left = {
        name: sorted(broker.parts.flooding.floods) for name, broker in grid.qos_brokers().items()
    }
    left |= {cloud: sorted(leaf.floods.variables) for cloud, leaf in grid.leaves().items()}
    left |= {
        name: sorted(str(one.variable_id) for one in node.table.variables.values() if one.floods)
        for name, node in grid.routers.items()
    }
    if any(left.values()):
        found = {name: some for name, some in left.items() if some}
        raise PropertyBroken("nothing is left behind", f"floods at {found}")


def _unlike(grid: TreeGrid) -> str | None:
    """Return a difference between a child's floods and those that its parent wants, or None."""
    brokers, leaves = grid.qos_brokers(), grid.leaves()
    for name, broker in brokers.items():
        state = broker.state
        wanted = {
            (known, held.variable.variable_id): terms
            for known, held in broker.parts.flooding.floods.items()
            if (terms := _in_force(held, state.depth))
        }
        for child in state.families.children:
            below = brokers[child].parts.flooding.floods if child in brokers else {}
            some = below or (leaves[child].floods.variables if child in leaves else {})
            found = {
                (known, one.variable.variable_id): terms
                for known, one in some.items()
                if (terms := _above(one))
            }
            if found != wanted:
                return f"{child} has {found} of {name}, not {wanted}"
    return None


def _above(held: FloodingHeld | FloodingSet) -> Terms:
    return {mode: (term.level, term.every) for mode, term in held.above.items()}


def _in_force(held: FloodingHeld | FloodingSet, level: int) -> Terms:
    """Return the terms in force: the parent's in their modes, or alone if they include mode 0."""
    terms = _above(held)
    if 0 not in terms:
        for mode, term in held.own.items():
            terms.setdefault(mode, (level, term.every))
    return terms


def flooded(leaf: LeafBroker, found: FloodingSet) -> list[Flood]:
    """Return the floods of a variable in the routers of a cloud, by whatever channel."""
    terms = _in_force(found, leaf.registry.tree.depth or 0)
    return sorted(
        (level, sum(1 << mode for mode, term in terms.items() if term == (level, every)), every)
        for level, every in set(terms.values())
    )


def _check_routers(grid: TreeGrid, leaf: LeafBroker) -> None:
    floods = leaf.floods.variables.values()
    wanted = {int(found.variable.variable_id): flooded(leaf, found) for found in floods}
    for name in leaf.registry.routers:
        found = {
            number: sorted((one.level, one.modes, one.every) for one in order.floods)
            for number, order in grid.routers[name].table.variables.items()
            if order.floods
        }
        if found != wanted:
            raise PropertyBroken(AGREE, f"router {name} floods {found}, not {wanted}")
