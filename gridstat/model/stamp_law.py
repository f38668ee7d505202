"""Bounds of an event's time stamp at the first router: how far ahead, and how old.

Law. The first router compares the stamp with its own clock. An event may be ahead by the larger of
two periods and 100 ms: further ahead it would move the window of slots, and honest events would
count as old. It may be behind by the delay that its publication declares: 100 ms unless declared,
and at most 10 s, for a concentrator whose data are seconds old. A declared delay above the default
is part of the predicted latency. Replayed variables and belated alerts have no such bound; they
keep a pace by arrival instead. `core/policing.h` has the same law in C.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gridstat.model.rate_law import Period

NS_PER_MS: Final = 1_000_000
US_PER_MS: Final = 1_000
DELAY_MS_DEFAULT: Final = 100
DELAY_MS_MAX: Final = 10_000
AHEAD_PERIODS: Final = 2
AHEAD_NS_MIN: Final = 100 * NS_PER_MS


def ahead_ns_max(period: Period | None) -> int:
    """Return how far ahead of the first router's clock an event may be stamped."""
    if period is None:
        return AHEAD_NS_MIN
    return max(AHEAD_NS_MIN, ceil(AHEAD_PERIODS * period.period_ns))


def charged_delay_us(delay_ms: int) -> int:
    """Return the part of a declared delay that counts as latency: none at the default."""
    return delay_ms * US_PER_MS if delay_ms > DELAY_MS_DEFAULT else 0
