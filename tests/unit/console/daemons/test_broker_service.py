"""Messages of a broker's process to people and the service manager while it waits."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, NoReturn

from gridstat.console.daemons.broker_service import (
    NOT_IN_CHARGE,
    WAITING,
    Line,
    ServiceCallbacks,
    serve_until_stopped,
)
from gridstat.model.errors import LinkDown

if TYPE_CHECKING:
    from collections.abc import Callable


def away() -> NoReturn:
    raise LinkDown("the database is away")


def served(*, when_told: Callable[[Line], None], when_heard: Callable[[str], None]) -> None:
    callbacks = ServiceCallbacks("c1", "managing cloud c1", when_told, when_heard)
    asyncio.run(serve_until_stopped(away, callbacks))


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def test_who_waits_for_its_database_says_so_and_ends_when_asked() -> None:
    lines: list[Line] = []

    def told(line: Line) -> None:
        lines.append(line)
        send(signal.SIGTERM)

    served(when_told=told, when_heard=lambda _: None)
    assert lines == [{"state": WAITING, "broker": "c1", "reason": "the database is away"}]


def test_who_is_not_in_charge_does_not_claim_to_have_read_its_file_again() -> None:
    heard: list[str] = []

    def hear(text: str) -> None:
        heard.append(text)
        send(signal.SIGTERM)

    served(when_told=lambda _: send(signal.SIGHUP), when_heard=hear)
    assert heard == [NOT_IN_CHARGE]
    assert heard[0].startswith("not reloaded")
