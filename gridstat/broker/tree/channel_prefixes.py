"""Prefixes of channel numbers: every broker has one that no broker above or below it has.

A cloud identifies channels of all brokers above it by number alone. A parent sends each child the
prefixes that are taken above; the child chooses another one, or does not join. A child reports the
prefixes in its scope upwards, so that a broker without holdings gives way to one that cannot change
its prefix any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.model.errors import LayoutError
from gridstat.net.command.tree_messages import PREFIX_MAX

if TYPE_CHECKING:
    from collections.abc import Collection

    from gridstat.broker.tree.tree_state import TreeState
    from gridstat.net.command.tree_messages import TreeJoined


def taken_above(message: TreeJoined) -> tuple[int, ...]:
    """Return the prefixes above; a parent of an earlier release sends none and uses depths."""
    return message.prefixes or tuple(range(message.depth))


def choose(state: TreeState, above: Collection[int], below: Collection[int], *, depth: int) -> int:
    """Return the prefix for a broker at this depth; raise if a broker above has the present one.

    A broker with holdings keeps its prefix. Others change it only if they must. Most brokers have
    their depth as prefix, so an unusual prefix is taken from the other end of the range.
    """
    present: int = state.channels.prefix
    if state.is_holding:
        if present in above:
            raise _taken(present)
        return present
    usual: list[int] = [present, depth, *range(PREFIX_MAX, -1, -1)]
    free = [prefix for prefix in usual if prefix not in above]
    if not free:
        raise _taken(present)
    unused = [prefix for prefix in free if prefix not in below]
    return (unused or free)[0]


def in_scope(state: TreeState) -> tuple[int, ...]:
    """Return the prefixes of brokers below, and the own one if other brokers may know it."""
    own = {state.channels.prefix} if state.placed is not None or state.is_holding else set()
    return tuple(sorted(own | state.families.prefixes()))


def taken_for_children(state: TreeState) -> tuple[int, ...]:
    """Return the prefixes that no broker below this one may have."""
    placed = state.placed
    above = () if placed is None else placed.prefixes or tuple(range(placed.depth))
    return tuple(sorted({*above, state.channels.prefix}))


def _taken(prefix: int) -> LayoutError:
    return LayoutError(
        f"a broker above uses channel prefix {prefix}, and so does this one, whose contracts and "
        "floods keep those numbers: end them, or let this broker join before the one above has any"
    )
