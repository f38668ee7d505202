"""Signals of the pipeline's process."""

from __future__ import annotations

import signal
import threading

from gridstat.console.daemons.pipeline_daemon import stop_on_signals
from gridstat.console.daemons.service import READ_AGAIN


def test_sighup_does_not_end_the_pipeline_and_sigterm_does() -> None:
    stop, messages = threading.Event(), list[str]()
    before = signal.getsignal(signal.SIGHUP)  # Whoever runs the tests may ignore it.
    with stop_on_signals(stop, messages.append):
        signal.raise_signal(signal.SIGHUP)
        assert messages == [READ_AGAIN]
        assert not stop.is_set()
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()
    assert signal.getsignal(signal.SIGHUP) is before
