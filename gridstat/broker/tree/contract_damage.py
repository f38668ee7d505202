"""Damage of a contract: the paths that do not work, and the qualities it may be moved to.

A contract of which a path still works is moved only to the same or a better quality, because the
broken paths resume by themselves. A contract without any working path may be moved to any quality
of its band; the promised quality is recorded, and restored as soon as possible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gridstat.broker.tree.tree_operations import body_of

if TYPE_CHECKING:
    from gridstat.broker.capacity.negotiation import Quality
    from gridstat.broker.tree.path_planner import Use
    from gridstat.broker.tree.transaction import Transaction
    from gridstat.broker.tree.tree_operations import Holding
    from gridstat.broker.tree.tree_state import TreeState

Trouble = int | str
"""Number of a channel that is down, or name of a child whose segment is broken."""
Troubles = dict[Trouble, tuple[int, ...]]
"""Border channels of the broken paths through a child; empty if the child did not report any."""

Impaired = tuple[tuple[str, ...], tuple[int, ...]]
"""Texts about what is wrong with a contract, and the indices of the paths that do not work."""


class Damage(NamedTuple):
    """Links that must not be used, and whether all of a contract works, or nothing."""

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
    """Return whether at least one present path works."""
    return len(broken_paths(state, held, troubles)) < len(state.holdings.body(held).paths)


def broken_paths(state: TreeState, held: Holding, troubles: Troubles) -> tuple[int, ...]:
    """Return the indices of the present paths that do not work."""
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


def _with_present(qualities: list[Quality], granted: Quality) -> list[Quality]:
    """Return the qualities of a band, best first, with one to which a split has lowered it."""
    better = [one for one in qualities if not _is_worse(one, granted)]
    return [*better, granted, *(one for one in qualities if _is_worse(one, granted))]


def _is_worse(one: Quality, granted: Quality) -> bool:
    """Return whether a quality is worse than the granted one in any mode and respect."""
    return any(
        qos.every > granted[mode].every
        or qos.redundancy < granted[mode].redundancy
        or qos.latency_us > granted[mode].latency_us
        for mode, qos in one.items()
    )


def restrict(transaction: Transaction, held: Holding, damage: Damage) -> bool:
    """Restrict a transaction to the permitted qualities; return whether there are any."""
    body = body_of(held)
    transaction.unusable = damage.unusable
    transaction.promised = body.promised or body.granted
    found = transaction.qualities
    if body.lowered_for and body.granted not in found:
        found = _with_present(found, body.granted)
    is_to_rise = held.is_lowered and damage.is_whole
    if body.granted not in found:  # The variable has been published again with another period.
        found = [] if is_to_rise else found
    elif not damage.is_dead:
        found = found[: found.index(body.granted) + (not is_to_rise)]
    transaction.qualities = found
    return bool(found)
