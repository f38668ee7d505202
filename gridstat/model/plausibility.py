"""Which events may be believed: their time lies near their arrival, their value is a number.

Law: an event is of a plausible time if it was created at most `ahead` after and `behind` before it
was received; one that is flagged as replayed may be as old as it likes. A clock that has jumped
ahead would otherwise close windows in which everybody else still is.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Final

NS_PER_S: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class TimeBounds:
    """How far from its arrival an event may have been created."""

    ahead_ns_max: int = NS_PER_S
    behind_ns_max: int = 86_400 * NS_PER_S


def is_plausible_time(
    created_ns: int, received_ns: int, bounds: TimeBounds, *, is_replayed: bool = False
) -> bool:
    """Whether an event that came at `received_ns` can have been created at `created_ns`."""
    if created_ns > received_ns + bounds.ahead_ns_max:
        return False
    return is_replayed or created_ns >= received_ns - bounds.behind_ns_max


def is_plausible_value(value: float) -> bool:
    """Whether one can reckon with it."""
    return isfinite(value)
