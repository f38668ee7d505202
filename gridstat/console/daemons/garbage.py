"""Rare garbage collection in daemons, which leaves out all objects that exist since the start.

Contracts and tables live for days and refer to each other, so the collector's usual eagerness goes
through all of them again and again: a fifth of a broker's time, in pauses that grow with the cloud.
"""

from __future__ import annotations

import gc
from typing import Final

THRESHOLDS: Final = (50_000, 20, 100)
"""Objects made since the last collection of the youngest, and collections of one age for one of the
next."""


def collect_rarely() -> None:
    """Collect rarely from now on; called once the daemon is ready, so that present objects are left
    out."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
