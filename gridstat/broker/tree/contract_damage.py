"""How much of a contract works, and what it may therefore be moved to.

What works is not given up for less, as inside a cloud: what is broken of it resumes by itself.
Where nothing works any quality of the band will do; what was promised stays so, and is had again
as soon as it can be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gridstat.broker.tree.tree_operations import body_of

if TYPE_CHECKING:
    from gridstat.broker.tree.path_planner import Use
    from gridstat.broker.tree.transaction import Transaction
    from gridstat.broker.tree.tree_operations import Holding
    from gridstat.broker.tree.tree_state import TreeState

Trouble = int | str
"""A channel that is down, or a child whose part is broken."""
Troubles = dict[Trouble, tuple[int, ...]]
"""With the channels by which the broken ways of a child come and go; none if it did not say."""

Impaired = tuple[tuple[str, ...], tuple[int, ...]]
"""What is wrong with a contract, in words, and the indices of the paths that do not work."""


class Damage(NamedTuple):
    """What is to be unusable, and whether all of a contract works, or nothing."""

    unusable: frozenset[Use]
    is_whole: bool
    is_dead: bool


def damage_of(state: TreeState, contract: str, troubles: Troubles) -> Damage:
    accounts, held = state.channels.accounts, state.holdings.current(contract)
    unusable = frozenset(
        (found.channel.from_router, found.channel.to_router, number)
        for number in {number for broken in troubles.values() for number in broken}
        if (found := accounts.get(number)) is not None
    )
    is_dead = bool(troubles) and held is not None and not _has_path(state, held, troubles)
    return Damage(unusable, not troubles, is_dead)


def _has_path(state: TreeState, held: Holding, troubles: Troubles) -> bool:
    """Whether one of its paths, as they are led now, has no trouble on it."""
    return len(broken_paths(state, held, troubles)) < len(state.holdings.body(held).paths)


def broken_paths(state: TreeState, held: Holding, troubles: Troubles) -> tuple[int, ...]:
    """The indices of its paths, as they are led now, that have a trouble on them."""
    gates = {number for broken in troubles.values() for number in broken}
    bad = {trouble for trouble, broken in troubles.items() if not broken} | gates
    found = []
    for index, path in enumerate(state.holdings.body(held).paths):
        numbers = {number for piece in path.pieces for number in piece.channel_ids}
        numbers &= set(held.channel_ids)
        channels = [state.channels.accounts[number].channel for number in numbers]
        routers = [name for one in channels for name in (one.from_router, one.to_router)]
        children = {state.families.child_at(name) for name in routers}
        if bad & (numbers | children):
            found.append(index)
    return tuple(found)


def narrow(transaction: Transaction, held: Holding, damage: Damage) -> bool:
    """Leave the qualities to which the contract may be moved; whether there are any."""
    body = body_of(held)
    transaction.unusable = damage.unusable
    transaction.promised = body.promised or body.granted
    found = transaction.qualities
    is_to_rise = held.is_lowered and damage.is_whole
    if body.granted not in found:  # The variable has another period now.
        found = [] if is_to_rise else found
    elif not damage.is_dead:
        found = found[: found.index(body.granted) + (not is_to_rise)]
    transaction.qualities = found
    return bool(found)
