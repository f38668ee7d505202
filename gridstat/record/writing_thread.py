"""The thread of a recorder that waits for the disk, so that nobody else has to."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.record.recorder import Recorder

TEND_EVERY_S: Final = 1.0

log = logging.getLogger(__name__)


class WritingThread:
    """Syncs every `sync_s`; `on_tended` is called about once a second, after the logs were."""

    def __init__(
        self, recorder: Recorder, sync_s: float, on_tended: Callable[[], object] = lambda: None
    ) -> None:
        self._recorder = recorder
        self._sync_s = sync_s
        self._on_tended = on_tended
        self._is_over = threading.Event()
        self._wants_rotation = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gs-recorder")

    def start(self) -> None:
        self._thread.start()

    def rotate(self) -> None:
        """Close all open segments, soon."""
        self._wants_rotation.set()
        self._recorder.woken.set()

    def close(self) -> None:
        """Write down what has come, and end."""
        self._is_over.set()
        self._recorder.woken.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        sync_s = tend_s = time.monotonic()
        while not self._is_over.is_set():
            self._recorder.woken.wait(max(0.0, sync_s - time.monotonic()))
            try:
                self._recorder.write()
                if self._wants_rotation.is_set():
                    self._wants_rotation.clear()
                    self._recorder.rotate()
                if time.monotonic() >= sync_s:
                    self._recorder.sync()
                    sync_s = time.monotonic() + self._sync_s
                if time.monotonic() >= tend_s:
                    self._recorder.tend()
                    self._on_tended()
                    tend_s = time.monotonic() + TEND_EVERY_S
            except Exception:
                # Our bug, or a disk that fails in a new way: events go on into the ring, and what
                # finds no room there is a gap.
                log.exception("writing_failed")
                time.sleep(self._sync_s)
