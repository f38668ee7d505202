"""Rows, channels and limits that the management plane passes to the core, as plain values.

A row holds all that the event path knows of one variable; the compiled core and the reference
both turn rows into their own tables, so these values are the contract between the two.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from gridstat.model.errors import LayoutError, LimitReached, UnknownName
from gridstat.model.rate_law import EVERY_MAX

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

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
ROUTE_TERMS_MAX = 64
"""Terms of one route: more than one a mode add nothing."""
ROW_FLOODS_MAX = 64
MTU_BYTES_MIN = 64
MTU_BYTES_MAX = 9_000
LEVEL_MAX = 255
DATAGRAM_VERSION_PLAIN = 2
"""Highest version that is not sealed: version 1 and probes, which are datagrams of a header
alone."""
DATAGRAM_VERSION_SEALED = 3
"""Version 2 with encrypted events and a tag of 16 bytes behind them."""
DATAGRAM_VERSION_MAX = DATAGRAM_VERSION_SEALED
COUNTER_START_MAX = 2**48
COUNTER_MAX = 2**63
PROBE_INTERVAL_NS_MIN = 1_000_000
PROBE_INTERVAL_NS_MAX = 60_000_000_000
OPTIONS_MAX = 255
STAMP_NEAR_NS = 100_000_000
"""Stamps this near to the clock are within every bound; the core looks up no bound for them."""
_U63 = 2**63
_U32 = 2**32
_U64 = 2**64


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
    """Flood to every channel whose level (depth from the root) is at least `level`.

    With a divisor only every n-th slot is flooded, and the others are routed like any event.
    """

    level: int
    modes: int = BASELINE
    every: int = 1


@dataclass(frozen=True, slots=True)
class Row:
    """Everything that the event path knows of one variable; `period` None means aperiodic."""

    variable_id: int
    period: Period | None
    phase_ns: int = 0
    source: int = 0
    is_urgent: bool = False
    interval_ns_min: int = 0
    is_stamp_exempt: bool = False
    routes: tuple[Route, ...] = ()
    floods: tuple[Flood, ...] = ()
    keeps_newest: bool = False
    """Keep the newest event at hand for `Core.newest`."""
    newest_options_max: int = 24
    """Capacity for its options: the default takes records of up to 584 bytes, and 255 takes any. A
    larger event is forwarded, but not kept (`newest_too_large`)."""
    counted_every: int = 0
    """Count the copies of every n-th slot by the channel they came on, for `Core.copies`; 0, or
    without slots: count none."""
    ahead_ns_max: int = 0
    """How far ahead of the clock a publisher's stamps may be, from `STAMP_NEAR_NS` on; with 0 in
    both fields the bound is that of the limits."""
    behind_ns_max: int = 0

    @property
    def has_stamp_bounds(self) -> bool:
        """Return whether the row has bounds of its own on stamps."""
        return self.behind_ns_max > 0 and not self.is_stamp_exempt

    @property
    def is_replayed(self) -> bool:
        """Stamped in the past: its rate is bounded by an interval instead, and it may jump."""
        return self.is_stamp_exempt and self.period is not None and self.interval_ns_min > 0


class CopyFacts(TypedDict):
    """Copies of a variable's due slots by incoming channel; see `model/copy_window.py`.

    The lists go by path; the first `path_count` entries belong to `channel_ids`, where 0 is the
    publisher's own channel.
    """

    every: int
    path_count: int
    channel_ids: list[int]
    passed: int
    came: list[int]
    first: list[int]


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
    datagram_version: int = 1
    probe_interval_ns: int = 0
    """Interval of probes, from version 2 on; 0: none."""
    probes_only_when_idle: bool = False
    """True if a probe is sent only when no event was sent for an interval."""
    is_sealed: bool = False
    """True if its datagrams are sealed, in version 3. Without a key it sends nothing (`no_key`)."""
    is_held: bool = False
    """True if only probes are sent until `Core.release_channel` (`unproven`)."""
    probes_only_when_held: bool = False
    """True if no probes are sent once the channel is released."""
    counter_start: int = 0
    """Added to the counter of the last datagram under this id. A random number makes the counters
    known only to who receives the datagrams, and so a proof of the receiver's address."""


def check_row(row: Row) -> None:
    """Raise `LayoutError` unless the core could hold the row as it stands."""
    if not 0 <= row.variable_id < _U32:
        raise LayoutError(f"variable_id {row.variable_id} is not a 32-bit number")
    if not 0 <= row.phase_ns < _U64 or not 0 <= row.interval_ns_min < _U64:
        raise LayoutError(f"variable {row.variable_id}: phase or interval is out of range")
    if not 0 <= row.source < _U32:
        raise LayoutError(f"variable {row.variable_id}: source {row.source} is no channel id")
    _check_stamp_bounds(row)
    channels = [route.channel_id for route in row.routes]
    if len(set(channels)) != len(channels):
        raise LayoutError(
            f"variable {row.variable_id}: a channel stands in two routes",
            hint="put all terms of a channel into one route",
        )
    if not 0 <= row.newest_options_max <= OPTIONS_MAX:
        raise LayoutError(
            f"variable {row.variable_id}: newest_options_max {row.newest_options_max} is not 0 to "
            f"{OPTIONS_MAX}"
        )
    if not 0 <= row.counted_every <= EVERY_MAX:
        raise LayoutError(f"variable {row.variable_id}: counted_every is out of range")
    for route in row.routes:
        _check_route(row.variable_id, route)
    if len(row.floods) > ROW_FLOODS_MAX:
        raise LayoutError(f"variable {row.variable_id} has more than {ROW_FLOODS_MAX} floods")
    for flood in row.floods:
        is_possible = 0 <= flood.level <= LEVEL_MAX and 0 < flood.modes < _U64
        if not (is_possible and 1 <= flood.every <= EVERY_MAX):
            raise LayoutError(f"variable {row.variable_id}: {flood} is out of range")
    if len({term.every for route in row.routes for term in route.terms}) > DIVISORS_MAX:
        raise LayoutError(
            f"variable {row.variable_id} has more than {DIVISORS_MAX} distinct divisors",
            hint="round some of the divisors down to common ones",
        )


def _check_stamp_bounds(row: Row) -> None:
    bounds = (row.ahead_ns_max, row.behind_ns_max)
    if bounds != (0, 0) and not all(STAMP_NEAR_NS <= bound < _U63 for bound in bounds):
        raise LayoutError(
            f"variable {row.variable_id}: bounds of stamps {bounds} are not both 0, or both from "
            f"{STAMP_NEAR_NS} ns on"
        )


def _check_route(variable_id: int, route: Route) -> None:
    if not 1 <= route.priority <= CLASS_REPLAY:
        raise LayoutError(f"variable {variable_id}: priority {route.priority} is not 1 to 8")
    if not 1 <= len(route.terms) <= ROUTE_TERMS_MAX:
        raise LayoutError(
            f"variable {variable_id}: a route has {len(route.terms)} terms, not 1 to "
            f"{ROUTE_TERMS_MAX}",
            hint="keep the divisors that are minimal under divisibility, once a mode",
        )
    for term in route.terms:
        if not 1 <= term.every <= EVERY_MAX or not 0 < term.modes < _U64:
            raise LayoutError(f"variable {variable_id}: {term} is out of range")


def check_channel(spec: ChannelSpec, versions_max: int = DATAGRAM_VERSION_MAX) -> None:
    """Raise `LayoutError` unless the core could open the channel."""
    if not 0 < spec.channel_id < _U32:
        raise LayoutError(f"channel_id {spec.channel_id} is not a number from 1 to {_U32 - 1}")
    if not MTU_BYTES_MIN <= spec.mtu_bytes <= MTU_BYTES_MAX:
        raise LayoutError(
            f"channel {spec.channel_id}: mtu_bytes {spec.mtu_bytes} is not "
            f"{MTU_BYTES_MIN} to {MTU_BYTES_MAX}"
        )
    if not 0 <= spec.level <= LEVEL_MAX:
        raise LayoutError(f"channel {spec.channel_id}: level {spec.level} is not 0 to {LEVEL_MAX}")
    if not 0 <= spec.bandwidth_bytes_per_s <= 2**40:
        raise LayoutError(f"channel {spec.channel_id}: bandwidth is out of range")
    if not 1 <= spec.queue_events_max <= 2**20:
        raise LayoutError(f"channel {spec.channel_id}: queue_events_max is not 1 to {2**20}")
    if not 0 <= spec.counter_start < COUNTER_START_MAX:
        raise LayoutError(f"channel {spec.channel_id}: counter_start does not fit into 48 bits")
    _check_version(spec, versions_max)
    _check_probing(spec)


def _check_version(spec: ChannelSpec, versions_max: int) -> None:
    if not 1 <= spec.datagram_version <= versions_max:
        raise LayoutError(
            f"channel {spec.channel_id}: datagram version {spec.datagram_version} is not 1 to "
            f"{versions_max}",
            hint="agree on a version that both ends know",
        )
    if spec.is_sealed != (spec.datagram_version == DATAGRAM_VERSION_SEALED):
        kind = "sealed" if spec.is_sealed else "not sealed"
        raise LayoutError(
            f"channel {spec.channel_id} is {kind}, and its datagram version is "
            f"{spec.datagram_version}",
            hint=f"version {DATAGRAM_VERSION_SEALED} is the sealed one, and no other is",
        )


def _check_probing(spec: ChannelSpec) -> None:
    if spec.probe_interval_ns == 0:
        return
    if spec.datagram_version == 1:
        raise LayoutError(
            f"channel {spec.channel_id}: datagrams of version 1 cannot be probes",
            hint="leave probe_interval_ns at 0, or use version 2",
        )
    if not PROBE_INTERVAL_NS_MIN <= spec.probe_interval_ns <= PROBE_INTERVAL_NS_MAX:
        raise LayoutError(
            f"channel {spec.channel_id}: probe_interval_ns {spec.probe_interval_ns} is not "
            f"{PROBE_INTERVAL_NS_MIN} to {PROBE_INTERVAL_NS_MAX}"
        )


def check_versions(versions_max: int) -> int:
    """Return the highest datagram version that a core accepts; raise `LayoutError` if there is no
    such version."""
    if not 1 <= versions_max <= DATAGRAM_VERSION_MAX:
        raise LayoutError(f"versions_max is {versions_max}, not 1 to {DATAGRAM_VERSION_MAX}")
    return versions_max


def counter_before(spec: ChannelSpec, last_counter: int) -> int:
    """Return the counter before the first datagram of a channel that opens: they only grow, so that
    no pair of key and counter comes twice. Raise `LimitReached` when they are used up."""
    counter = last_counter + spec.counter_start
    if counter >= COUNTER_MAX:
        raise LimitReached(
            f"the counters of channel {spec.channel_id} are used up", hint="use another channel id"
        )
    return counter


def system_hint(failure: int, otherwise: str) -> str:
    """Return what to do about a socket that the system refused with this error number."""
    if failure in (errno.ENOMEM, errno.ENOBUFS):
        return "free memory on this machine, or raise the memory limit of this process"
    if failure in (errno.EMFILE, errno.ENFILE):
        return "raise `ulimit -n`, or close what is not needed"
    return otherwise


def check_delta(upserts: tuple[Row, ...], removals: tuple[int, ...]) -> None:
    """Raise `LayoutError` unless every variable of a delta stands in it once, and each is sound."""
    named = [row.variable_id for row in upserts] + list(removals)
    if len(set(named)) != len(named):
        raise LayoutError("a variable stands twice in one delta", hint="say each change once")
    for row in upserts:
        check_row(row)
    for variable_id in removals:
        if not 0 <= variable_id < _U32:
            raise LayoutError(f"variable_id {variable_id} is not a 32-bit number")


def check_routed(upserts: Iterable[Row], channels: Container[int]) -> None:
    """Raise `UnknownName` unless every route leads to one of these channels."""
    for row in upserts:
        for route in row.routes:
            if route.channel_id not in channels:
                raise UnknownName(
                    f"variable {row.variable_id} is routed to channel {route.channel_id}, "
                    "which is not open"
                )


def check_limits(limits: Limits) -> int:
    """Raise `LayoutError` unless the bounds make sense; return about how many bytes they take."""
    bounds = {
        "variables_max": (1, 2**24),
        "rings_max": (1, 2**20),
        "channels_max": (1, 2**16),
        "pool_small": (0, 2**22),
        "pool_large": (0, 2**18),
        "stamp_bound_ns": (0, _U64 - 1),
        "ring_expiry_ns": (0, _U64 - 1),
    }
    for name, (least, most) in bounds.items():
        value = getattr(limits, name)
        if type(value) is not int or not least <= value <= most:
            raise LayoutError(f"limits.{name} is {value!r}, not a number from {least} to {most}")
    if 0 < limits.stamp_bound_ns < STAMP_NEAR_NS:
        raise LayoutError(
            f"limits.stamp_bound_ns is {limits.stamp_bound_ns}, less than {STAMP_NEAR_NS}",
            hint="0 sets no bound",
        )
    windows = 2 * limits.variables_max * 80
    rings = 2 * limits.rings_max * 2_400
    return windows + rings + limits.pool_small * 320 + limits.pool_large * 6_208
