"""Limited flooding: which variable floods how far, in which mode, and how often (S0 A12).

A scope is a level: the depth of a broker, counted from the root. A flooded event takes every
channel of that level or a deeper one, once, and never goes back where it came from; beyond the
scope it is routed as ever. With a divisor only every n-th slot is flooded (S0-139).
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
"""Flooded in the baseline is flooded in every mode."""
LEVEL_MAX: Final = 255
"""What a row of the core holds."""
NO_GENERATION: Final = 0
"""A parent counts what it says of a variable from 1 on; this is before it has said anything."""

NS_PER_MS: Final = 1_000_000
FLOOD_EVENTS_MAX: Final = 128
"""Events of an aperiodic variable that a router remembers."""
FLOOD_HOLD_NS: Final = 1_000_000_000
"""What a router cannot remember for so long it does not flood."""
FLOOD_CHANNEL_US_MAX: Final = FLOOD_HOLD_NS // 2_000
"""The latency that a channel may declare over which anything floods.

A copy comes to a router later than the first one by what its channel takes and the way back at
most. Where channels lead both ways, and none takes more than half the hold, that is within it.
"""
BURST_NS: Final = 1_000_000_000
"""Belated alerts may come so much ahead of their pace."""
MARGIN: Final = 2
"""As many again may gather in queues on the way."""


class FloodTerm(Struct, frozen=True):
    """How a variable floods in one mode: down from this depth, every n-th slot."""

    level: Annotated[int, Meta(ge=0, le=LEVEL_MAX)]
    every: Annotated[int, Meta(ge=1, le=EVERY_MAX)] = 1


def checked_modes(modes: Iterable[int]) -> tuple[int, ...]:
    """The modes in order, each once; none stands for all of them."""
    return _bounded_modes(modes, BASELINE_MODE) or ALL_MODES


def asked_modes(modes: Iterable[int]) -> tuple[int, ...]:
    """The same of modes that a person names, who says all of them by naming none, not by 0."""
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
    """The shortest interval of an aperiodic variable that may flood.

    Copies come round in a cycle of routers, and die where their event is remembered. What comes
    faster than can be remembered within the hold is routed, and floods no more.
    """
    held_ns = FLOOD_HOLD_NS + (BURST_NS if is_belated else 0)
    return -(-MARGIN * held_ns // (FLOOD_EVENTS_MAX * NS_PER_MS))


def is_fresh(age_ns: int, stamp_bound_ns: int) -> bool:
    """Whether an event may still flood: what is older has come round, or will.

    Its stamp may be as old as the first hop allows, and the way may take a hold; 0 bounds nothing.
    """
    return stamp_bound_ns == 0 or age_ns <= FLOOD_HOLD_NS + stamp_bound_ns


def is_ahead(ahead_ns: int, stamp_bound_ns: int) -> bool:
    """Whether a stamp is of a future that the first hop would not have let pass.

    Clocks of routers may differ by a hold.
    """
    return 0 < stamp_bound_ns < ahead_ns - FLOOD_HOLD_NS


def in_force(own: Mapping[int, FloodTerm], above: Mapping[int, FloodTerm]) -> dict[int, FloodTerm]:
    """What holds in each mode: where a parent has spoken, its request wins (S0-82)."""
    return dict(sorted({**beside(own, above), **above}.items()))


def beside(own: Mapping[int, FloodTerm], above: Mapping[int, FloodTerm]) -> dict[int, FloodTerm]:
    """What of a request holds beside that of a parent: nothing where the parent has spoken.

    Of all modes it speaks with the baseline. An own request for all modes holds in a mode of the
    parent's as well: the baseline is always active (ADR-0005), and no row says all modes but one.
    """
    if BASELINE_MODE in above:
        return {}
    return {mode: term for mode, term in own.items() if mode not in above}


def overrides(mode: int, own: Mapping[int, FloodTerm], above: Mapping[int, FloodTerm]) -> bool:
    """Whether a parent's word in this mode keeps something of our own from holding."""
    return mode in above and (mode in own or (mode == BASELINE_MODE and bool(own)))


def in_scope(terms: Mapping[int, FloodTerm], level: int) -> dict[int, FloodTerm]:
    """The terms that flood a channel of this level."""
    return {mode: term for mode, term in terms.items() if term.level <= level}


def without(terms: Mapping[int, FloodTerm], modes: Collection[int]) -> dict[int, FloodTerm]:
    """The terms of the other modes; of no modes named, none."""
    return {mode: term for mode, term in terms.items() if modes and mode not in modes}


def everys_of(terms: Mapping[int, FloodTerm]) -> dict[int, int]:
    """The divisor of each mode, as admission charges it."""
    return {mode: terms[mode].every for mode in sorted(terms)}


def by_scope(terms: Mapping[int, FloodTerm]) -> list[tuple[FloodTerm, int]]:
    """Each distinct term with the mask of its modes, as routers are told."""
    masks: dict[tuple[int, int], int] = {}
    for mode, term in terms.items():
        key = term.level, term.every
        masks[key] = masks.get(key, 0) | 1 << mode
    return [(FloodTerm(level, every), mask) for (level, every), mask in sorted(masks.items())]


def dropped_copies(channels_in_scope: int, routers_reached: int) -> int:
    """Copies of one event that die as duplicates (S0 Function 5.1).

    Each channel that leaves a reached router carries one copy, and each reached router but the
    publisher's, which is not counted, takes one. Two-way links have channels that lead back where
    a first copy came from: those carry none and are not to be counted.
    """
    return channels_in_scope - routers_reached
