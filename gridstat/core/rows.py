"""What the management plane hands to the core: rows, channels and limits, as plain values.

A row says everything the event path may know of one variable; the compiled core and the reference
both turn rows into their own tables, so these values are the contract between the two.
"""

from __future__ import annotations

from dataclasses import dataclass

from gridstat.model.rate_law import Period

BASELINE = 1
"""Mode bit 0: always active, never switched off."""

CLASS_ALERT = 0
CLASS_CONTENT = 7
CLASS_REPLAY = 8
PORT_DATA = 0
PORT_URGENT = 1
DIVISORS_MAX = 64
"""Distinct divisors of one variable over all its channels."""


@dataclass(frozen=True, slots=True)
class Term:
    """Every n-th slot, in any of these modes (a bit mask; bit 0 is the baseline)."""

    every: int
    modes: int = BASELINE


@dataclass(frozen=True, slots=True)
class Route:
    """One variable on one outgoing channel: due when any term is active and due."""

    channel_id: int
    terms: tuple[Term, ...]
    priority: int = 3


@dataclass(frozen=True, slots=True)
class Flood:
    """Flood to every channel whose level (depth from the root) is at least `level`."""

    level: int
    modes: int = BASELINE


@dataclass(frozen=True, slots=True)
class Row:
    """All that the event path knows of one variable; `period` None means aperiodic."""

    variable_id: int
    period: Period | None
    phase_ns: int = 0
    source: int = 0
    is_urgent: bool = False
    interval_ns_min: int = 0
    is_stamp_exempt: bool = False
    routes: tuple[Route, ...] = ()
    floods: tuple[Flood, ...] = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one core, fixed at its start; reaching one is counted or refused by name."""

    variables_max: int = 131_072
    rings_max: int = 1_024
    channels_max: int = 1_024
    pool_small: int = 8_192
    pool_large: int = 256
    stamp_bound_ns: int = 10_000_000_000
    ring_expiry_ns: int = 60_000_000_000


@dataclass(frozen=True, slots=True)
class ChannelSpec:
    """An outgoing event channel; without an address its datagrams stay in memory."""

    channel_id: int
    level: int = 1
    floods: bool = False
    mtu_bytes: int = 1_232
    bandwidth_bytes_per_s: int = 0
    queue_events_max: int = 1_024
    address: tuple[str, int, int] | None = None
