"""One started process, seen from `gridstat up`: lines to it, lines from it, and its end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import gridstat
from gridstat.console.processes.lines import LINE_BYTES_MAX

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable, Sequence

LAST_LINES_MAX: Final = 20
DRAIN_S: Final = 6.0
KILL_S: Final = 2.0
ENDS_WITH_US: Final = ("setpriv", "--pdeathsig", "TERM", "--")


class Child:
    """Child process from `started` until `gone`; each line that it prints goes to `on_line`."""

    def __init__(self, name: str, process: Process) -> None:
        self.name = name
        self._process = process
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES_MAX)

    @classmethod
    async def started(cls, name: str, module: str, arguments: Sequence[str]) -> Child:
        """`python -m module arguments`, by the interpreter and the gridstat that run here."""
        # Apart from our terminal, so that Ctrl-C reaches only the one that ends all in order; but
        # a child whose parent was killed gets a signal to end.
        process = await asyncio.create_subprocess_exec(
            *(*ENDS_WITH_US, sys.executable, "-P", "-m", module, *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
            env=_environment(),
            start_new_session=True,
        )
        return cls(name, process)

    @property
    def process_id(self) -> int:
        return self._process.pid

    def say(self, line: bytes) -> None:
        assert self._process.stdin is not None
        if not self._process.stdin.is_closing():
            self._process.stdin.write(line)

    async def gone(self, on_line: Callable[[bytes], None]) -> str:
        """Pass its lines on until it has ended; return how it ended."""
        await asyncio.gather(self._read_lines(on_line), self._read_last_lines())
        return _how(await self._process.wait())

    async def _read_lines(self, on_line: Callable[[bytes], None]) -> None:
        assert self._process.stdout is not None
        while text := await self._process.stdout.readline():
            on_line(text)

    async def _read_last_lines(self) -> None:
        assert self._process.stderr is not None
        while text := await self._process.stderr.readline():
            self.last_lines.append(text.decode(errors="replace").rstrip())

    async def end(self, drain_s: float = DRAIN_S) -> None:
        """Request it to drain and end, and kill it after a time limit; it has ended when this
        returns."""
        for insist, patience_s in ((self._process.terminate, drain_s), (self.kill, KILL_S)):
            with suppress(ProcessLookupError):
                insist()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), patience_s)
                break
        await self._process.wait()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()


def _environment() -> dict[str, str]:
    """Ours, and a path by which the child finds this very gridstat."""
    root = str(Path(gridstat.__file__).resolve().parent.parent)
    inherited = os.environ.get("PYTHONPATH")
    path = f"{root}{os.pathsep}{inherited}" if inherited else root
    return {**os.environ, "PYTHONPATH": path}


def _how(returncode: int) -> str:
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return f"signal {signal.Signals(-returncode).name}"
    except ValueError:
        return f"signal {-returncode}"
