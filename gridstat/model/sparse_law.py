"""Streams so sparse that a core cannot tell the next event from a forged stamp.

A core remembers the last 256 slots of a variable, and takes what is further ahead only as far as
the time since its last event has brought the stream there: early by less than the window. Events
may then come with delays that differ by as much, whatever divisors meet in a core and whichever of
them leave it. Where 256 slots are too short for that, a divisor beyond the window is carried as one
of its own divisors below it. So whatever is below a divisor that is carried is carried too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.model.errors import IntervalNotSatisfiable

if TYPE_CHECKING:
    from gridstat.model.rate_law import Period

WINDOW_SLOTS: Final = 256
WINDOW_MS_MIN: Final = 200
"""Delays of one path, or of several, differ by less."""
LOWERED_MIN: Final = 32
"""The least divisor that is carried in the place of another; beyond that it is refused."""
MS_PER_S: Final = 1_000


def is_carried(every: int, period: Period | None) -> bool:
    """Whether the events of every n-th slot are taken by every core on their way."""
    if every < WINDOW_SLOTS or period is None:
        return True
    return WINDOW_SLOTS * period.seconds * MS_PER_S >= WINDOW_MS_MIN * period.per_seconds


def carried_every(every: int, period: Period | None) -> int:
    """The divisor itself, or its largest divisor that is carried; refused if that is tiny."""
    if is_carried(every, period):
        return every
    found = next(each for each in range(WINDOW_SLOTS - 1, 0, -1) if every % each == 0)
    if found >= LOWERED_MIN:
        return found
    raise IntervalNotSatisfiable(
        f"every {every:,}th slot of a variable that is published every {period} is too sparse to "
        f"be told from forged stamps, and the next divisor of it that is not is {found}",
        hint=f"take every {WINDOW_SLOTS - 1}th slot or more of them, or a multiple of a number "
        f"between {LOWERED_MIN} and {WINDOW_SLOTS - 1}",
    )
