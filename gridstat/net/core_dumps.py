"""No core dumps: the memory of a process with keys would be written to a disk."""

from __future__ import annotations

import ctypes
import logging
import os
from typing import Final

PR_SET_DUMPABLE: Final = 4
PR_GET_DUMPABLE: Final = 3
log = logging.getLogger(__name__)


def forbid_core_dumps() -> None:
    """Keep this process from being dumped, and its memory from being read by others of its user."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        log.warning("core_dumps_possible reason=%r", os.strerror(ctypes.get_errno()))
