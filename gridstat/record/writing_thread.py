"""Writing thread of a recorder, the only one that waits for the disk."""

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
    """Syncs every `sync_s`; calls `on_tended` about once a second, after `Recorder.tend`."""

    def __init__(
        self, recorder: Recorder, sync_s: float, on_tended: Callable[[], object] = lambda: None
    ) -> None:
        self._recorder = recorder
        self._sync_s = sync_s
        self._on_tended = on_tended
        self._is_closing = threading.Event()
        self._wants_rotation = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gs-recorder")

    def start(self) -> None:
        self._thread.start()

    def rotate(self) -> None:
        """Request that all open segments are closed soon."""
        self._wants_rotation.set()
        self._recorder.woken.set()

    def close(self) -> None:
        """Write everything that has come, and end the thread."""
        self._is_closing.set()
        self._recorder.woken.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        sync_s = tend_s = time.monotonic()
        while not self._is_closing.is_set():
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
                # A bug, or an unexpected disk failure: events still enter the ring, and those
                # that do not fit become a gap.
                log.exception("writing_failed")
                time.sleep(self._sync_s)
