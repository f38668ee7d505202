"""One daemon of a grid: a process in its namespace with its own folder, which tests can harm."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

from lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lab.netns import Namespace

READY = "ready"
ENDING_S_MAX = 20.0
POLL_S = 0.02
OUTPUT_CHARS = 1_000


class Here:
    """The namespace of this process, for daemons that need no namespace of their own."""

    def start(
        self,
        command: Sequence[str | Path],
        **options: Any,  # noqa: ANN401
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, **options)


class Daemon:
    """A daemon with at most one process at a time; its folder holds the output of the last.

    A killed one can be started again. Nothing restarts by itself.
    """

    def __init__(
        self, name: str, namespace: Namespace | Here, command: Sequence[str | Path], folder: Path
    ) -> None:
        self.name = name
        self.folder = folder
        self._namespace = namespace
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def output(self) -> str:
        return _text(self.folder / "stdout")

    @property
    def errors(self) -> str:
        return _text(self.folder / "stderr")

    def start(self) -> None:
        assert not self.is_running, f"{self.name} runs already"
        self.folder.mkdir(parents=True, exist_ok=True)
        environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        with (self.folder / "stdout").open("wb") as out, (self.folder / "stderr").open("wb") as err:
            self._process = self._namespace.start(
                self._command, stdout=out, stderr=err, env=environment
            )

    def complaint_until_ready(self) -> str | None:
        """Return None once the daemon has printed that it is ready; raise if it has ended."""
        if not self.is_running:
            raise LabError(f"{self.name} has ended: {(self.errors or self.output)[-OUTPUT_CHARS:]}")
        if any(READY in line.split() for line in self.output.splitlines()):
            return None
        return f"{self.name} is not ready: {self.errors[-OUTPUT_CHARS:]}"

    def wait_ready(self, *, within_s: float = 40.0) -> None:
        deadline = time.monotonic() + within_s
        while (complaint := self.complaint_until_ready()) is not None:
            if time.monotonic() > deadline:
                raise LabError(complaint)
            time.sleep(POLL_S)

    def kill(self) -> None:
        """Send SIGKILL, so that the process cannot clean up, and wait for its end."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """Send SIGTERM and wait; kill the process if it does not end. Return its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            return self._process.wait(ENDING_S_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.returncode

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def close(self) -> None:
        """Kill the process if there is one, whatever its state."""
        if self._process is not None:
            self.kill()
            self._process = None


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
