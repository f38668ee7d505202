"""Immediate end of a process that must not go on, even if its log cannot be written."""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

SAID_WITHIN_S: Final = 0.5


def end_at_once(code: int, log_reason: Callable[[], None]) -> None:
    """Log the reason and exit without cleanup; a blocked log delays the exit for a moment only."""
    try:
        watch = threading.Timer(SAID_WITHIN_S, os._exit, (code,))
        watch.daemon = True
        watch.start()
        log_reason()
        logging.shutdown()
    finally:  # Also where the system has no thread left.
        os._exit(code)
