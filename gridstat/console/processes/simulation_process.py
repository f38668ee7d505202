"""The loop of a simulation process: wait for a line or a due time, then work; SIGTERM ends it.

One `select` and no timer: it wakes within microseconds of a due time, which a PMU at 60 frames a
second needs.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from gridstat.console.access import load_access
from gridstat.console.config.grid_file import HINT, grid_from_text
from gridstat.console.config.toml_file import read_text
from gridstat.console.grid_folder import GRID_FILE
from gridstat.console.processes.lines import Line, decoded, encoded
from gridstat.model.errors import GridStatError
from gridstat.net.command.address import address_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.console.access import Access
    from gridstat.console.grid import Grid

READ_BYTES: Final = 65_536


class SimulationProcess(Protocol):
    """One role in a grid; it is driven, and never waits by itself."""

    def handle(self, do: str) -> Line:
        """Obey a command; return the reply."""

    def wait_s(self) -> float | None:
        """Return the time until something is due by the clock; None: wait for a line."""

    def work(self) -> None:
        """Do what is due."""

    def close(self) -> None:
        """Leave the cloud."""


def play(make: Callable[[Grid, Access], SimulationProcess]) -> int:
    """Play a part in the grid whose folder is the first argument; the exit code."""
    try:
        folder = Path(sys.argv[1])
        file = folder / GRID_FILE
        part = make(grid_from_text(read_text(file, hint=HINT), file=str(file)), load_access(folder))
    except GridStatError as error:
        say({"is": "failed", "message": error.args[0], "hint": error.hint, "code": error.code})
        return 1
    try:
        say({"is": "ready"})
        _serve(part)
    except BrokenPipeError:
        return 1  # The one that started us is gone; its end of the pipe says so.
    finally:
        part.close()
    return 0


def edges_of(access: Access, names: tuple[str, ...]) -> list[str]:
    """Edges, written as for `gridstat.connect`."""
    return [f"{name}@{address_text(access.edges[name])}" for name in names]


def say(line: Line) -> None:
    content = encoded(line)
    while content:
        content = content[os.write(sys.stdout.fileno(), content) :]


def _serve(part: SimulationProcess) -> None:
    """Serve until standard input ends or a signal asks to stop."""
    stopped_reader, stopped_writer = os.pipe()
    os.set_blocking(stopped_writer, False)
    signal.set_wakeup_fd(stopped_writer)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    commands, held = sys.stdin.fileno(), b""
    while True:
        readable, _, _ = select.select([commands, stopped_reader], [], [], part.wait_s())
        part.work()
        if stopped_reader in readable:
            return
        if commands in readable:
            received = os.read(commands, READ_BYTES)
            if not received:
                return
            *lines, held = (held + received).split(b"\n")
            for text in lines:
                say(part.handle(decoded(text)["do"]))
