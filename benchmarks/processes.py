"""Processes of a run: started, asked and ended by id, with JSON lines on stdin and stdout.

A process prints `{"ready": …}` or its ports first, answers each line with one line, and ends when
its stdin closes, so nothing outlives a killed experiment. A daemon is asked nothing, and ended by a
signal. Children have their own process groups: only the parent receives Ctrl-C, leaves its `with`
block, and ends them in order.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from benchmarks.errors import BenchmarkError
from benchmarks.plan import Plan, to_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

REPOSITORY = Path(__file__).resolve().parents[1]
ANSWER_S_MAX = 30.0
END_S_MAX = 3.0
LINE_BYTES_MAX = 16 * 1024 * 1024
CPU_CLOCK_SCHED = 2
PR_SET_PDEATHSIG = 1

Answer = dict[str, Any]


class RoleProcess:
    """One child process; between `begin` and `finish` exactly one answer is owed."""

    def __init__(self, name: str, argv: Sequence[str], *, is_daemon: bool = False) -> None:
        self.name = name
        self.is_daemon = is_daemon
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed in `end`)
        self._process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": _python_path(), "OPENBLAS_NUM_THREADS": "1"},
            process_group=0,
            # A daemon does not read its stdin, so the kernel has to signal the end of its parent.
            preexec_fn=_die_with_parent if is_daemon else None,  # noqa: PLW1509
        )
        self._pending = b""
        self.ready: Answer = {}
        """First answer of a daemon, when it began to serve."""

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(
        self, question: Mapping[str, Any] | None = None, *, within_s: float = ANSWER_S_MAX
    ) -> Answer:
        """Send one line and wait for its answer."""
        self.begin(question if question is not None else {})
        return self.finish(within_s=within_s)

    def begin(self, question: Mapping[str, Any]) -> None:
        """Send one line; `finish` collects the answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._broken("ended early") from error

    def finish(self, *, within_s: float = ANSWER_S_MAX) -> Answer:
        """Return the next line of this process, as JSON."""
        deadline = time.monotonic() + within_s
        while b"\n" not in self._pending:
            self._read_some(deadline)
        line, _, self._pending = self._pending.partition(b"\n")
        answer: Answer = json.loads(line)
        if "error" in answer:
            raise self._broken(str(answer["error"]))
        return answer

    def cpu_ns(self) -> int:
        """Return user and system time of the process so far, from its own CPU clock."""
        return time.clock_gettime_ns((~self.pid << 3) | CPU_CLOCK_SCHED)

    def rss_kib(self) -> int:
        """Return the resident memory of the process now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") // 1024

    def dismiss(self) -> None:
        """Signal a daemon to end, without waiting for it, so that many end at the same time."""
        if self.is_daemon:
            self._process.terminate()

    def end(self) -> None:
        """Close the process's stdin and wait; then terminate, then kill it by its pid."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self.dismiss()
        for nudge in (self._process.terminate, self._process.kill):
            try:
                self._process.wait(END_S_MAX)
                break
            except subprocess.TimeoutExpired:
                nudge()
        self._process.wait(END_S_MAX)
        self._process.stdout.close()
        self._errors.close()

    def _read_some(self, deadline: float) -> None:
        assert self._process.stdout is not None
        left_s = deadline - time.monotonic()
        descriptor = self._process.stdout.fileno()
        if left_s <= 0 or not select.select([descriptor], [], [], left_s)[0]:
            raise self._broken("did not answer in time")
        some = os.read(descriptor, 65_536)
        if not some:
            raise self._broken("ended early")
        self._pending += some
        if len(self._pending) > LINE_BYTES_MAX:
            raise self._broken("printed too much")

    def _broken(self, what: str) -> BenchmarkError:
        self._errors.seek(0)
        errors = self._errors.read().decode(errors="replace").strip()[-1_500:]
        return BenchmarkError(f"{self.name} (process {self.pid}) {what}", hint=errors)


class Processes:
    """All processes of one run; leaving the block ends clients, then daemons, the last first."""

    def __init__(self) -> None:
        self._running: list[RoleProcess] = []
        self._prepared: list[RoleProcess] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Clients first: they detach at once while the daemons still answer.
        try:
            for process in [one for one in reversed(self._running) if not one.is_daemon]:
                self.end(process)
        finally:
            for process in self._running:
                process.dismiss()
            while self._running:
                self._running.pop().end()

    def start_daemons(
        self, programs: Mapping[str, Sequence[str]], *, within_s: float
    ) -> dict[str, RoleProcess]:
        """Start programs that serve until a signal; return when each is ready."""
        started = {name: RoleProcess(name, argv, is_daemon=True) for name, argv in programs.items()}
        self._running += started.values()
        for process in started.values():
            process.ready = process.finish(within_s=within_s)
        return started

    def start(self, name: str, argv: Sequence[str]) -> tuple[RoleProcess, Answer]:
        """Start a program and return it with its first line."""
        process = RoleProcess(name, argv)
        self._running.append(process)
        return process, process.finish()

    def prepare_roles(self, role: str, count: int, *, prefix: Sequence[str] = ()) -> None:
        """Start interpreters that `start_role` will use, so that they load at the same time."""
        for _ in range(count):
            argv = [*prefix, sys.executable, "-m", "benchmarks.roles", role]
            process = RoleProcess(role, argv)
            self._running.append(process)
            self._prepared.append(process)

    def start_role(
        self, role: str, plan: Plan, *, prefix: Sequence[str] = ()
    ) -> tuple[RoleProcess, Answer]:
        """Give one of `benchmarks.roles` its plan; `prefix` may enter a namespace."""
        if not any(process.name == role for process in self._prepared):
            self.prepare_roles(role, 1, prefix=prefix)
        return self.start_prepared(role, to_json(plan))

    def start_prepared(
        self, role: str, plan: Mapping[str, Any], *, within_s: float = ANSWER_S_MAX
    ) -> tuple[RoleProcess, Answer]:
        """Give a prepared interpreter of this role its plan."""
        process = next(process for process in self._prepared if process.name == role)
        self._prepared.remove(process)
        return process, process.ask(plan, within_s=within_s)

    def end(self, process: RoleProcess) -> None:
        """End one process before the others."""
        self._running.remove(process)
        process.end()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _python_path() -> str:
    inherited = os.environ.get("PYTHONPATH")
    return f"{inherited}{os.pathsep}{REPOSITORY}" if inherited else str(REPOSITORY)
