"""Whether and how far an event floods, in plain Python; `forwarder.c` is the fast copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.core.reference_window import ArrivalRing
from gridstat.model.flooding import is_ahead, is_fresh

if TYPE_CHECKING:
    from gridstat.core.reference_window import SlotWindow
    from gridstat.core.rows import ChannelSpec, Row


def flooding_scope(row: Row, active: int, slot: int | None) -> int | None:
    """The widest scope that an active mode asks for, of those that flood this slot."""
    levels = (
        flood.level
        for flood in row.floods
        if flood.modes & active and (slot is None or slot % flood.every == 0)
    )
    return min(levels, default=None)


def is_in_scope(spec: ChannelSpec, scope: int) -> bool:
    return spec.floods and spec.level >= scope


def may_flood(
    row: Row, seen: SlotWindow | ArrivalRing, age_ns: int, now_ns: int, stamp_bound_ns: int
) -> bool:
    """Not what may be a copy of something forgotten: in a cycle it would go round for ever."""
    if isinstance(seen, ArrivalRing) and seen.is_crowded(now_ns):
        return False
    return row.is_stamp_exempt or is_fresh(age_ns, stamp_bound_ns)


def is_forged(row: Row, ahead_ns: int, stamp_bound_ns: int) -> bool:
    """Behind the first hop, of what floods: one such stamp would silence a sparse flood."""
    return bool(row.floods) and not row.is_stamp_exempt and is_ahead(ahead_ns, stamp_bound_ns)
