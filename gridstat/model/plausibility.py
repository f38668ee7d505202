"""Plausibility of events: their time is near their arrival, and their value is finite.

Law: the time of an event is plausible if it was created at most `ahead` after and `behind` before
its arrival; a replayed event may be of any age. A clock that has jumped ahead would otherwise close
windows that all other variables still use.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Final

NS_PER_S: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class TimeBounds:
    """Allowed distance between creation and arrival of an event."""

    ahead_ns_max: int = NS_PER_S
    behind_ns_max: int = 86_400 * NS_PER_S


def is_plausible_time(
    created_ns: int, received_ns: int, bounds: TimeBounds, *, is_replayed: bool = False
) -> bool:
    """Return whether an event received at `received_ns` may have been created at `created_ns`."""
    if created_ns > received_ns + bounds.ahead_ns_max:
        return False
    return is_replayed or created_ns >= received_ns - bounds.behind_ns_max


def is_plausible_value(value: float) -> bool:
    """Return whether a value is finite."""
    return isfinite(value)
