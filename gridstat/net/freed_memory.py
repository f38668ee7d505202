"""Freed memory goes back to the system, where the C library keeps it otherwise.

Connections of an attack leave free pieces all over the heap. glibc returns only the top of the heap
by itself, so the process would keep for good what the attack took at its worst.
"""

from __future__ import annotations

import ctypes
import logging

log = logging.getLogger(__name__)


def return_freed_memory() -> bool:
    """Return free pages to the system; False if the C library has no such call."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        return False
    trim(0)
    log.info("freed_memory_returned")
    return True
