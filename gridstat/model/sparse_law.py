"""Sparse streams: divisors so large that a core cannot tell the next event from a forged stamp.

A core remembers at least the last 256 slots of a variable. It accepts a slot further ahead only if
the time since the last event explains it, within less than the window. Delays of events may
therefore differ by as much as the window, with any mix of divisors in a core. Where 256 slots are
too short a time for that, a divisor above the window is replaced by one of its own divisors below
the window. Every divisor below a carried one is carried too. Faster variables have longer windows
(`window_law.py`), on which this law does not rely.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.model.errors import IntervalNotSatisfiable

if TYPE_CHECKING:
    from gridstat.model.rate_law import Period

WINDOW_SLOTS: Final = 256
WINDOW_MS_MIN: Final = 200
"""Shortest sufficient window: delays on one or several paths differ by less."""
LOWERED_MIN: Final = 32
"""Smallest divisor that may replace another; below it the request is refused."""
MS_PER_S: Final = 1_000


def is_carried(every: int, period: Period | None) -> bool:
    """Return whether every core on the path accepts the events of every n-th slot."""
    if every < WINDOW_SLOTS or period is None:
        return True
    return WINDOW_SLOTS * period.seconds * MS_PER_S >= WINDOW_MS_MIN * period.per_seconds


def carried_every(every: int, period: Period | None) -> int:
    """Return the divisor, or its largest carried divisor; raise if that is too small."""
    if is_carried(every, period):
        return every
    found = next(each for each in range(WINDOW_SLOTS - 1, 0, -1) if every % each == 0)
    if found >= LOWERED_MIN:
        return found
    raise IntervalNotSatisfiable(
        f"every {every:,}th slot of a variable that is published every {period} is too sparse to "
        f"be distinguished from forged stamps, and its largest divisor that is not is {found}",
        hint=f"take every {WINDOW_SLOTS - 1}th slot or more of them, or a multiple of a number "
        f"between {LOWERED_MIN} and {WINDOW_SLOTS - 1}",
    )
