"""Watch of the parent process: a process made to be killed does not outlive its killer."""

from __future__ import annotations

import os
import signal
import threading
from typing import Final

LOOK_S: Final = 0.5


def end_with_parent() -> None:
    """Start a thread that ends this process, or the group it leads, once the parent is gone."""
    threading.Thread(target=_watch, args=(os.getppid(),), name="parent", daemon=True).start()


def _watch(parent: int) -> None:
    wait = threading.Event()
    while os.getppid() == parent:
        wait.wait(LOOK_S)
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
