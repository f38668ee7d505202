"""A `gridstat` command as a person would run it: a real process, its output in files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping

GRIDSTAT = Path(sys.executable).with_name("gridstat")
ENDING_S_MAX = 60.0


class Command:
    """Runs from the start of the `with` block; at its end it is killed if it has not ended."""

    def __init__(self, folder: Path, *arguments: str | Path) -> None:
        self._output = folder / "stdout"
        self._errors = folder / "stderr"
        with self._output.open("w") as output, self._errors.open("w") as errors:
            self.process = subprocess.Popen(
                [str(argument) for argument in arguments], stdout=output, stderr=errors
            )

    @classmethod
    def gridstat(cls, folder: Path, *arguments: str | Path) -> Self:
        return cls(folder, GRIDSTAT, *arguments)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def output(self) -> str:
        return self._output.read_text(encoding="utf-8")

    @property
    def errors(self) -> str:
        return self._errors.read_text(encoding="utf-8")

    def lines(self) -> list[dict[str, Any]]:
        """The whole JSON lines so far."""
        whole, _, _ = self.output.rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def lines_in(self, state: str) -> list[dict[str, Any]]:
        return [line for line in self.lines() if line["state"] == state]

    def complaint_without(self, state: str, *, count: int = 1) -> str | None:
        """Return a complaint for `eventually` while there are fewer lines of a state."""
        if self.process.poll() not in {None, 0}:
            raise AssertionError(f"ended with {self.process.returncode}: {self.errors}")
        found = len(self.lines_in(state))
        return None if found >= count else f"{found} of {count} lines say {state}: {self.errors}"

    def end(self, number: signal.Signals) -> int:
        """Ask it to end, and wait for that."""
        self.signal(number)
        return self.exit_code()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def exit_code(self) -> int:
        """Wait for its end."""
        return self.process.wait(ENDING_S_MAX)


def survivors(processes: Mapping[str, int]) -> str | None:
    """Return a complaint for `eventually` while some of these processes run."""
    alive = [name for name, process_id in processes.items() if is_alive(process_id)]
    return f"still there: {', '.join(alive)}" if alive else None


def is_alive(process_id: int) -> bool:
    try:
        state = Path(f"/proc/{process_id}/stat").read_text(encoding="ascii").rpartition(")")[2]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state.split()[0] != "Z"


def kill(process_id: int) -> None:
    """End one process, by its own id, without a chance to clean up."""
    os.kill(process_id, signal.SIGKILL)


__all__ = ["Command", "eventually", "is_alive", "kill", "survivors"]
