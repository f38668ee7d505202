"""Programs of the lab that publish and subscribe: how a signal ends them."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from lab.load_programs import Ending

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def ending() -> Iterator[Ending]:
    before = signal.getsignal(signal.SIGTERM)
    yield Ending()
    signal.signal(signal.SIGTERM, before)


def test_an_event_that_was_sent_is_logged_before_the_program_ends(ending: Ending) -> None:
    steps = []

    def send() -> None:
        with ending.unbroken():
            steps.append("sent")
            signal.raise_signal(signal.SIGTERM)
            steps.append("logged")

    with pytest.raises(SystemExit):
        send()
    assert steps == ["sent", "logged"]


def test_a_program_that_waits_ends_at_once(ending: Ending) -> None:
    with ending.unbroken():
        pass
    with pytest.raises(SystemExit):
        signal.raise_signal(signal.SIGTERM)
