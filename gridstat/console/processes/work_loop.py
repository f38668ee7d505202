"""The loop of every process of a grid: wait for a line, a wake-up or a due time, then work.

One `select` and no thread: it wakes within microseconds of a due time (polls count in
milliseconds), which a PMU at 60 frames a second needs.
"""

from __future__ import annotations

import os
import select
import signal
import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

from gridstat.console.processes.lines import Line, LineBuffer, encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

READ_BYTES = 65_536


class Part(Protocol):
    """One role in a grid; it is driven, and never waits by itself."""

    def handle(self, line: Line) -> Line | None:
        """Obey a command; what is returned is said back."""

    def wait_s(self) -> float | None:
        """How long there is nothing to do by the clock; None means until something happens."""

    def filenos(self) -> Sequence[int]:
        """What else to wake up for."""

    def work(self) -> None:
        """Do what is due."""

    def close(self) -> None:
        """Drain, and give everything back."""


def serve(part: Part, *, commands: int, answers: int) -> None:
    """Drive a part by lines until they end or a signal asks to stop; the part is then closed."""
    lines = LineBuffer()
    try:
        with stop_signals() as stopped:
            while not stopped.asked:
                readable = wait_for([commands, stopped.fileno, *part.filenos()], part.wait_s())
                stopped.take_reload()  # There is nothing to reload here; a file is not ours.
                part.work()
                if commands in readable:
                    received = os.read(commands, READ_BYTES)
                    if not received:
                        return
                    for line in lines.feed(received):
                        answer = part.handle(line)
                        if answer is not None:
                            write_all(answers, encoded(answer))
    finally:
        part.close()


def wait_for(filenos: Sequence[int], wait_s: float | None) -> list[int]:
    readable, _, _ = select.select(filenos, [], [], wait_s)
    return readable


def write_all(fileno: int, content: bytes) -> None:
    while content:
        content = content[os.write(fileno, content) :]


class StopSignals:
    """Whether SIGTERM or SIGINT came, and a descriptor that wakes a `select` when one does."""

    def __init__(self, woken: socket.socket) -> None:
        self._woken = woken
        self.fileno = woken.fileno()
        self.asked = False
        self._is_reload_asked = False

    def take_reload(self) -> bool:
        """Whether SIGHUP came since the last time; also makes the descriptor quiet again."""
        with suppress(BlockingIOError):
            self._woken.recv(READ_BYTES)
        asked, self._is_reload_asked = self._is_reload_asked, False
        return asked

    def stop(self, *_: object) -> None:
        self.asked = True

    def reload(self, *_: object) -> None:
        self._is_reload_asked = True


@contextmanager
def stop_signals() -> Iterator[StopSignals]:
    """Turn signals into something a loop can wait for, and put all back afterwards."""
    inside, outside = socket.socketpair()
    with inside, outside:
        inside.settimeout(0)
        outside.settimeout(0)
        stopped = StopSignals(outside)
        wanted: dict[signal.Signals, Callable[..., None]] = {
            signal.SIGTERM: stopped.stop,
            signal.SIGINT: stopped.stop,
            signal.SIGHUP: stopped.reload,
        }
        before = {number: signal.signal(number, action) for number, action in wanted.items()}
        wakeup_before = signal.set_wakeup_fd(inside.fileno(), warn_on_full_buffer=False)
        try:
            yield stopped
        finally:
            signal.set_wakeup_fd(wakeup_before)
            for number, action in before.items():
                signal.signal(number, action)
