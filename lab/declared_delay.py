"""The delay that rigs and tests declare for publications, unless they are about that very bound.

Their publishers stamp an event with its slot's time, and a busy machine may hold one up for longer
than the 100 ms that an event may be old at its first router (`gridstat/model/stamp_law.py`). What
is sent after that is policed, though nothing but the machine is to blame.
"""

from __future__ import annotations

import time
from typing import Final

from gridstat.model.stamp_law import NS_PER_MS

DELAY_MS: Final = 1_000
"""Half of the latency bound of subscriptions that name none: a declared delay is a part of it."""
WAY_MS: Final = 50
"""Part of the delay that is left for an event's way to its edge."""


def is_too_late(created_ns: int, delay_ms: int) -> bool:
    """Return whether an edge might take this event for too old; a publisher leaves it out."""
    return time.time_ns() - created_ns > (delay_ms - WAY_MS) * NS_PER_MS
