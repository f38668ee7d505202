"""Streams so sparse that a core cannot tell the next event from a forged stamp.

A core remembers the last 256 slots of a variable. What is further ahead than that is taken at once
only after a second without any event; before that it needs a second event near it, which a
subscription to every 256th slot or fewer never sends: it would lose all of them, or half of them
at intervals of about a second, as jitter will have it. So such a divisor is carried as one of its
own divisors, below the window, unless its events are two seconds apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.model.errors import IntervalNotSatisfiable

if TYPE_CHECKING:
    from gridstat.model.rate_law import Period

WINDOW_SLOTS: Final = 256
SPARSE_S_MIN: Final = 2
"""The core's second without any event, and another for the jitter of the path."""
FASTER_MAX: Final = 8
"""So many times more events than asked for are carried at most; beyond that it is refused."""


def is_carried(every: int, period: Period | None) -> bool:
    """Whether the events of every n-th slot are taken by every core on their way."""
    if every < WINDOW_SLOTS or period is None:
        return True
    return every * period.seconds >= SPARSE_S_MIN * period.per_seconds


def carried_every(every: int, period: Period | None) -> int:
    """The divisor itself, or its largest divisor that is carried; refused if that is far less."""
    if is_carried(every, period):
        return every
    found = next(each for each in range(WINDOW_SLOTS - 1, 0, -1) if every % each == 0)
    if every // found <= FASTER_MAX:
        return found
    raise IntervalNotSatisfiable(
        f"every {every:,}th slot of a variable that is published every {period} is too sparse to "
        f"be told from forged stamps, and the next divisor of it that is not is {found}",
        hint=f"take every {WINDOW_SLOTS - 1}th slot or more of them, or an interval of "
        f"{SPARSE_S_MIN} s at least",
    )
