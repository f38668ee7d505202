"""Duties of a daemon toward its service manager: signals, readiness, and a message when it stops.

SIGTERM and SIGINT ask to drain and end, SIGHUP to read the settings again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
READ_AGAIN: Final = "renewed certificates and authorities are read for the next session"
"""Answer to SIGHUP of a daemon that has end-points only: each new session reads the files."""


@contextmanager
def daemon_signals(*, on_reload: Callable[[], None]) -> Iterator[asyncio.Event]:
    """An event that is set when the daemon is asked to end; a second signal changes nothing."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in STOPPING:
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGHUP, on_reload)
    try:
        yield stopping
    finally:
        for number in (*STOPPING, signal.SIGHUP):
            loop.remove_signal_handler(number)


def notify(*states: str) -> None:
    """Notify the service manager, if there is one; see sd_notify(3)."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if path:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            address = f"\0{path[1:]}" if path.startswith("@") else path
            manager.sendto("\n".join(states).encode(), address)
