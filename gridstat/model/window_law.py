"""How many of its last slots each core remembers of a variable, and what latency that allows.

Law: the window is the shortest of three lengths that lasts `WINDOW_MS`, else the longest. A copy is
the first of its slot or a duplicate only while its slot is in the window. No window is ahead of the
present, so a copy that has been under way for less than the window lasts is always recognised, by
whatever paths the others came. The paths of a contract are therefore bounded to that latency; how
far they differ, and which of them is the slow one, then does not matter. `core/duplicates.c` and
`core/reference_window.py` choose the length by this law.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fractions import Fraction

    from gridstat.model.rate_law import Period

WINDOW_LENGTHS: Final = (256, 960, 4_032)
"""Slots of the windows. The first takes no memory of its own; a longer one is a ring of 64-bit
words, one word of which may be in part ahead of the newest slot."""
WINDOW_MS: Final = 800
"""Time that a window lasts if its variable has at most 5,040 slots a second."""
JITTER_MS: Final = 50
"""Time by which a copy may be later than predicted, and still be recognised."""
EARLY_SLOTS: Final = 3
"""Slots by which stamps may be ahead: two periods at the publisher, and one by rounding."""
MS_PER_S: Final = 1_000
US_PER_S: Final = 1_000_000


def window_slots(period: Period) -> int:
    """Return the number of a variable's last slots that each core remembers."""
    for slots in WINDOW_LENGTHS:
        if slots * period.seconds * MS_PER_S >= WINDOW_MS * period.per_seconds:
            return slots
    return WINDOW_LENGTHS[-1]


def latency_us_recognised(slots: int, events_per_s: Fraction) -> int:
    """Return the longest predicted latency of a copy that a window of so many slots recognises.

    A tenth of a short window, else `JITTER_MS`, is left for what no prediction covers.
    """
    lasts_us = int((slots - EARLY_SLOTS) * US_PER_S / events_per_s)
    return lasts_us - min(JITTER_MS * MS_PER_S, lasts_us // 10)
