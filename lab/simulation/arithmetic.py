"""Arithmetic of the checks: union rates, loads and latencies, computed without the product.

Nothing here is imported from `gridstat`: a mistake in its laws must not be repeated in what checks
them. Rates are found by looking at every slot, and amounts are whole multiples of 1/SCALE of
their unit, so that sums are exact and cheap. `tests/simulation/test_arithmetic.py` compares both.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import lcm
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.model.status import StatusVariable

SCALE: Final = lcm(*range(1, 25))
"""Parts of a unit: every share of at most a twenty-fourth is a whole number of them."""
SLOTS_MAX: Final = 10_000_000
"""Longest hyperperiod that is looked at slot by slot."""
NS_PER_S: Final = 1_000_000_000

EVENT_BYTES: Final = 28 + 16 + 24 + 16
"""Size of the headers of IP, UDP and the datagram, of a plain event, and of the seal."""
SEAL_BYTES: Final = 16
PROBE_BYTES: Final = 20 + 8 + 16 + 16
"""Size of the headers of IP, UDP and the datagram, and of the seal, in a probe."""
PROBES_PER_S_MAX: Final = 40
"""Probes a second of a channel that has room for them; the others take a hundredth of theirs."""

# The latency law: `benchmarks/results/latency-law.json`, ADR-0015.
ENDS_US: Final = Fraction(216)
HOP_US: Final = Fraction(107)
EVENT_US: Final = Fraction(107, 100_000)
"""Microseconds for each event a second through a router."""
BURST_EVENT_US: Final = Fraction(136, 100)
EIGHTH: Final = Fraction(9, 8)
STEP_US_MIN: Final = 10
"""A prediction is rounded up by an eighth at most, or to the next ten microseconds."""

Amount = int | Fraction
"""So many parts of a unit; a whole number wherever divisors are small."""


def scaled(value: Fraction | int) -> Amount:
    """Return an amount in parts of its unit."""
    found = value * SCALE
    return found.numerator if found.denominator == 1 else found


@lru_cache(maxsize=4_096)
def share_of(everys: frozenset[int]) -> Fraction:
    """Return the share of slots that are a multiple of one of these divisors, slot by slot."""
    fewest = [one for one in everys if not any(one % other == 0 for other in everys - {one})]
    if not fewest:
        return Fraction(0)
    slots = lcm(*fewest)
    assert slots <= SLOTS_MAX, f"nobody asks for such divisors together: {sorted(everys)}"
    due = bytearray(slots)
    for every in fewest:
        due[::every] = b"\x01" * (slots // every)
    return Fraction(sum(due), slots)


def rate_of(variable: StatusVariable) -> Fraction:
    """Return the events a second that a publisher may send."""
    if variable.period is None:
        return Fraction(NS_PER_S, variable.interval_ns_min)
    return Fraction(variable.period.per_seconds, variable.period.seconds)


@lru_cache(maxsize=8_192)
def events_of(variable: StatusVariable, everys: frozenset[int]) -> Amount:
    """Return the events a second of a variable that these divisors need, in parts."""
    return scaled(rate_of(variable) * share_of(everys))


@lru_cache(maxsize=1_024)
def probe_bytes_per_s(bandwidth_bytes_per_s: int) -> Fraction:
    """Return what probes take of a channel: one each 25 ms, or whole milliseconds for its 1 %."""
    if not bandwidth_bytes_per_s:
        return Fraction(0)
    interval_ms = 1_000 // PROBES_PER_S_MAX
    while bandwidth_bytes_per_s * interval_ms < PROBE_BYTES * 1_000 * 100:
        interval_ms += 1
    return Fraction(PROBE_BYTES * 1_000, interval_ms)


def fits(carried: Amount, bandwidth_bytes_per_s: int) -> bool:
    """Return whether so many bytes a second, in parts, fit beside the probes."""
    return not bandwidth_bytes_per_s or carried <= _room(bandwidth_bytes_per_s)


@lru_cache(maxsize=1_024)
def _room(bandwidth_bytes_per_s: int) -> Amount:
    """Return what a channel has for events beside its probes, in parts."""
    return scaled(bandwidth_bytes_per_s - probe_bytes_per_s(bandwidth_bytes_per_s))


@lru_cache(maxsize=8_192)
def router_us(events_per_s: Amount) -> Fraction:
    """Return the latency of a router with this load, in parts, before any rounding."""
    return HOP_US + EVENT_US * Fraction(events_per_s) / SCALE


@lru_cache(maxsize=8_192)
def burst_us(events: int, bandwidth_bytes_per_s: int) -> Fraction:
    """Return the delay of the last of so many events that arrive at one instant."""
    sent_us = (
        Fraction(events * EVENT_BYTES * 1_000_000, bandwidth_bytes_per_s)
        if bandwidth_bytes_per_s
        else Fraction(0)
    )
    return BURST_EVENT_US * events + sent_us


def rounded_us_max(us: Fraction) -> Fraction:
    """Return the most that a prediction of this latency may be, however it is rounded up."""
    return (us + 1) * EIGHTH + STEP_US_MIN


def is_sum(found: Fraction | int, parts: Amount) -> bool:
    """Return whether an amount of the product equals so many parts."""
    return found * SCALE == parts


def unscaled(parts: Amount) -> Fraction:
    """Return an amount in its unit, to be read."""
    return Fraction(parts) / SCALE


def most(amounts: Iterable[Amount]) -> Amount:
    return max(amounts, default=0)
