"""A `gridstat` command on a terminal of its own: a real pty with a size, and keys."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import subprocess
import termios
import threading
from pathlib import Path
from typing import Self

from tests.cluster.command import ENDING_S_MAX, GRIDSTAT
from tests.cluster.eventually import eventually

HOME = "\x1b[H"
"""Control sequence with which a screen begins again."""
ALTERNATE, ORDINARY = "\x1b[?1049h", "\x1b[?1049l"
SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class PtyCommand:
    """Runs from the start of the `with` block; at its end it is killed if it has not ended."""

    def __init__(self, size: tuple[int, int], *arguments: str | Path) -> None:
        self._chunks: list[bytes] = []
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in {"COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"}
        }
        self._terminal, other_end = os.openpty()
        self.resize(*size)
        # The terminal that the leader of a new session opens first is its own: Ctrl-C reaches it.
        opening = 'exec "$@" <"$0" >"$0" 2>&1'
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", opening, os.ttyname(other_end), GRIDSTAT, *map(str, arguments)],
            env={**environment, "TERM": "xterm"},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        # Ours stays open, so that the state of the terminal can be asked for after the end.
        self._other_end = other_end
        self._is_over = threading.Event()
        self._reader = threading.Thread(target=self._read, name="pty-reader")
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._is_over.set()
        self._reader.join(ENDING_S_MAX)
        os.close(self._terminal)
        os.close(self._other_end)

    @property
    def output(self) -> str:
        return b"".join(self._chunks).decode(errors="replace")

    def is_full_screen(self) -> bool:
        return self.output.rfind(ALTERNATE) > self.output.rfind(ORDINARY)

    @property
    def lines(self) -> list[str]:
        """The newest screen that is drawn whole, as plain lines."""
        whole = self.output.split(HOME)[1:-1]
        return SEQUENCE.sub("", whole[-1]).split("\r\n") if whole else []

    def echoes(self) -> bool:
        """Return whether the terminal echoes, as a shell leaves it to commands."""
        return bool(termios.tcgetattr(self._terminal)[3] & termios.ECHO)

    def is_stopped(self) -> bool:
        """Return whether the process is suspended."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii")
        return stat.rpartition(")")[2].split()[0] == "T"

    def press(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def resize(self, width: int, height: int) -> None:
        """Resize the terminal as a window does; the kernel sends SIGWINCH to the process."""
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def await_line(self, pattern: str, at: int = -1) -> None:
        """Wait until a line of the screen, by default the last, begins with this pattern."""

        def complaint() -> str | None:
            lines = self.lines
            is_there = len(lines) > max(at, -at - 1) and re.match(pattern, lines[at])
            return None if is_there else f"no {pattern!r} in {lines or self.output!r}"

        eventually(complaint, within_s=ENDING_S_MAX)

    def exit_code(self) -> int:
        """Wait for its end, and for all that it has written."""
        code = self.process.wait(ENDING_S_MAX)
        self._is_over.set()
        self._reader.join(ENDING_S_MAX)
        return code

    def _read(self) -> None:
        """Read all output, until the command has ended and nothing is left."""
        while True:
            readable, _, _ = select.select([self._terminal], [], [], 0.05)
            if readable:
                self._chunks.append(os.read(self._terminal, 65_536))
            elif self._is_over.is_set():
                return
