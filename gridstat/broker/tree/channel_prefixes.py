"""What the numbers of a broker's channels begin with: unlike at any broker above or below it.

A cloud knows channels of all brokers above it by their numbers alone. Each broker is told which
prefixes are taken above it, and has another, or does not join. It tells those of its scope upwards,
so that a broker that holds nothing yet makes room for one that cannot change any more.
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
    """Earlier releases do not tell, and number their channels by their depth."""
    return message.prefixes or tuple(range(message.depth))


def choose(state: TreeState, above: Collection[int], below: Collection[int], *, depth: int) -> int:
    """The present one while anything is held; raises if a broker above has it.

    Else it changes only if it must. Of other brokers the depth is the usual one, so what has to be
    unusual is taken from the other end.
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
    """Those of brokers below, and the own one unless nobody has heard of it yet."""
    own = {state.channels.prefix} if state.placed is not None or state.is_holding else set()
    return tuple(sorted(own | state.families.prefixes()))


def taken_for_children(state: TreeState) -> tuple[int, ...]:
    """Those that no broker below this one may have."""
    placed = state.placed
    above = () if placed is None else placed.prefixes or tuple(range(placed.depth))
    return tuple(sorted({*above, state.channels.prefix}))


def _taken(prefix: int) -> LayoutError:
    return LayoutError(
        f"a broker above numbers its channels from prefix {prefix} on, and so does this one, whose "
        "contracts and floods keep those numbers: end them, or let this broker join the other "
        "before that one has any"
    )
