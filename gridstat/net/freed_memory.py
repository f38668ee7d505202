"""Freed memory goes back to the system, where the C library keeps it otherwise.

Connections of an attack leave free pieces all over the heap. glibc returns only the top of the heap
by itself, so the process would keep for good what the attack took at its worst. What a connection
leaves behind refers to itself in places, and daemons collect such garbage rarely: the young part is
collected first. The old part is not, since that would take long in a broker of many contracts.
"""

from __future__ import annotations

import ctypes
import gc
import logging
from typing import Final

log = logging.getLogger(__name__)
YOUNG: Final = 1
"""Generation up to which garbage is collected."""


def return_freed_memory() -> bool:
    """Return free pages to the system; False if the C library has no such call."""
    gc.collect(YOUNG)
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        return False
    trim(0)
    log.info("freed_memory_returned")
    return True
