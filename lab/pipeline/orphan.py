"""A process that is made to be killed does not outlive the one that would kill it."""

from __future__ import annotations

import os
import signal
import threading
from typing import Final

LOOK_S: Final = 0.5


def end_with_parent() -> None:
    """From now on: when the parent is gone, so is this process, and its group if it leads one."""
    threading.Thread(target=_watch, args=(os.getppid(),), name="parent", daemon=True).start()


def _watch(parent: int) -> None:
    wait = threading.Event()
    while os.getppid() == parent:
        wait.wait(LOOK_S)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
