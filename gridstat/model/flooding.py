"""Limited flooding: scope, mode and divisor of flooded variables (S0 A12).

A scope is a level: the depth of a broker, counted from the root. A flooded event takes every
channel of that level or a deeper one once, and never returns to its sender; outside the scope it is
routed as usual. With a divisor only every n-th slot is flooded (S0-139).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct

from gridstat.model.errors import LayoutError
from gridstat.model.qos import BASELINE_MODE, MODES_MAX
from gridstat.model.rate_law import EVERY_MAX

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

ALL_MODES: Final = (int(BASELINE_MODE),)
"""A variable that floods in the baseline floods in every mode."""
LEVEL_MAX: Final = 255
"""Highest level that a row of the core can hold."""
NO_GENERATION: Final = 0
"""Generation before a parent's first message about a variable; those are numbered from 1."""

NS_PER_MS: Final = 1_000_000
FLOOD_EVENTS_MAX: Final = 128
"""Events of an aperiodic variable that a router remembers."""
FLOOD_HOLD_NS: Final = 1_000_000_000
"""Time for which a router must remember an event in order to flood it."""
FLOOD_CHANNEL_US_MAX: Final = FLOOD_HOLD_NS // 2_000
"""Maximum declared latency of a channel with flooding.

A copy reaches a router after the first one by at most the latency of its channel and of the channel
back. With channels in both directions, each at most half the hold, that is within the hold.
"""
BURST_NS: Final = 1_000_000_000
"""Time by which belated alerts may run ahead of their minimum interval."""
MARGIN: Final = 2
"""Factor for events that gather in queues on the path."""


class FloodTerm(Struct, frozen=True):
    """Flooding of a variable in one mode: down from this depth, every n-th slot."""

    level: Annotated[int, Meta(ge=0, le=LEVEL_MAX)]
    every: Annotated[int, Meta(ge=1, le=EVERY_MAX)] = 1


def checked_modes(modes: Iterable[int]) -> tuple[int, ...]:
    """Return the modes in order, each once; no modes stand for all of them."""
    return _bounded_modes(modes, BASELINE_MODE) or ALL_MODES


def requested_modes(modes: Iterable[int]) -> tuple[int, ...]:
    """Return an operator's modes in order; no modes stand for all, and 0 is not allowed."""
    return _bounded_modes(modes, BASELINE_MODE + 1)


def _bounded_modes(modes: Iterable[int], least: int) -> tuple[int, ...]:
    found = tuple(sorted(set(modes)))
    if any(not least <= mode < MODES_MAX for mode in found):
        raise LayoutError(
            f"modes {', '.join(map(str, found))}: there are modes 1 to {MODES_MAX - 1}",
            hint="name modes by their numbers, or none for all of them",
        )
    return found


def checked_every(every: int) -> int:
    if not 1 <= every <= EVERY_MAX:
        raise LayoutError(f"every {every} is not 1 to {EVERY_MAX}", hint="1 floods every event")
    return every


def flood_interval_ms_min(*, is_belated: bool) -> int:
    """Return the shortest interval of an aperiodic variable that may flood.

    Copies travel round cycles of routers, and are dropped where their event is remembered. Events
    that come faster than they can be remembered for the hold are routed instead.
    """
    held_ns = FLOOD_HOLD_NS + (BURST_NS if is_belated else 0)
    return -(-MARGIN * held_ns // (FLOOD_EVENTS_MAX * NS_PER_MS))


def is_fresh(age_ns: int, stamp_bound_ns: int) -> bool:
    """Return whether an event may still flood; older ones have travelled round a cycle.

    The stamp may be as old as the first hop allows, and the path may take a hold. A bound of 0
    means no limit.
    """
    return stamp_bound_ns == 0 or age_ns <= FLOOD_HOLD_NS + stamp_bound_ns


def is_ahead(ahead_ns: int, stamp_bound_ns: int) -> bool:
    """Return whether a stamp lies so far ahead that the first hop would have dropped it.

    Clocks of routers may differ by a hold.
    """
    return 0 < stamp_bound_ns < ahead_ns - FLOOD_HOLD_NS


def in_force(own: Mapping[int, FloodTerm], above: Mapping[int, FloodTerm]) -> dict[int, FloodTerm]:
    """Return the terms in force in each mode: a parent's request wins (S0-82)."""
    return dict(sorted({**beside(own, above), **above}.items()))


def beside(own: Mapping[int, FloodTerm], above: Mapping[int, FloodTerm]) -> dict[int, FloodTerm]:
    """Return the own terms that stay in force beside a parent's request.

    A parent's baseline term covers all modes. An own baseline term stays in force also in modes
    that the parent names: the baseline is always active (ADR-0005), and no row excludes one mode.
    """
    if BASELINE_MODE in above:
        return {}
    return {mode: term for mode, term in own.items() if mode not in above}


def overrides(mode: int, own: Mapping[int, FloodTerm], above: Mapping[int, FloodTerm]) -> bool:
    """Return whether a parent's term in this mode overrides an own term."""
    return mode in above and (mode in own or (mode == BASELINE_MODE and bool(own)))


def in_scope(terms: Mapping[int, FloodTerm], level: int) -> dict[int, FloodTerm]:
    """Return the terms that flood a channel of this level."""
    return {mode: term for mode, term in terms.items() if term.level <= level}


def without(terms: Mapping[int, FloodTerm], modes: Collection[int]) -> dict[int, FloodTerm]:
    """Return the terms of all other modes; none if `modes` is empty."""
    return {mode: term for mode, term in terms.items() if modes and mode not in modes}


def everys_of(terms: Mapping[int, FloodTerm]) -> dict[int, int]:
    """Return the divisor of each mode, as admission charges it."""
    return {mode: terms[mode].every for mode in sorted(terms)}


def by_scope(terms: Mapping[int, FloodTerm]) -> list[tuple[FloodTerm, int]]:
    """Return each distinct term with the mask of its modes, as routers receive it."""
    masks: dict[tuple[int, int], int] = {}
    for mode, term in terms.items():
        key = term.level, term.every
        masks[key] = masks.get(key, 0) | 1 << mode
    return [(FloodTerm(level, every), mask) for (level, every), mask in sorted(masks.items())]


def dropped_copies(channels_in_scope: int, routers_reached: int) -> int:
    """Return the number of copies of one event dropped as duplicates (S0 Function 5.1).

    Each channel from a reached router carries one copy, and each reached router except the
    publisher's, which is not counted, keeps one. Channels back to the sender of a first copy carry
    none and are not counted.
    """
    return channels_in_scope - routers_reached
