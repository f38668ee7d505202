"""Starts, asks, watches and ends the processes of a grid; one that dies is started again.

Groups start one after the other, each when all of the one before are ready: the broker, the
routers, the PMUs, the subscribers. They end in the opposite order. What the grid can do without
(the pipeline, the recorder) is not waited for, and its death ends nothing else. A router is waited
for; once the grid runs, one that dies again and again is given up, and the grid runs on.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gridstat.console.processes.child import DRAIN_S, Child
from gridstat.console.processes.lines import Line, decoded, encoded
from gridstat.console.shown_text import error_line
from gridstat.model.errors import ConfigurationError, GridStatError, LinkDown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

ANSWER_S_MAX: Final = 5.0
RESTART_AFTER_S: Final = 0.5
RESTART_AFTER_S_MAX: Final = 4.0
RESTARTS_MAX: Final = 5
RESTARTS_WITHIN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Job:
    """A process to be kept running: `python -m module arguments`.

    The grid is not started without one that is needed, and does not go on without a vital one.
    """

    name: str
    module: str
    arguments: tuple[str, ...]
    is_needed: bool = True
    is_vital: bool = True
    drain_s: float = DRAIN_S

    @property
    def command(self) -> str:
        """Command by which a person can start the process to see its messages."""
        words = [word for word in self.arguments if word != "--json"]
        program = ["gridstat"] if self.module == "gridstat" else ["python", "-m", self.module]
        return shlex.join([*program, *words])


@dataclass(frozen=True, slots=True)
class Observation:
    """Reports of the processes; a process that did not reply in time is missing."""

    time_s: float
    reports: Mapping[str, Line]


class Supervisor:
    """Owns the child processes; after `end` there is none, however the grid ended."""

    def __init__(
        self, groups: Sequence[Sequence[Job]], *, on_message: Callable[[str], None]
    ) -> None:
        self._groups = groups
        self._on_message = on_message
        self._children: dict[str, Child] = {}
        self._watchers: set[asyncio.Task[None]] = set()
        self._missing: set[str] = set()
        self._answers: dict[tuple[str, str], asyncio.Future[Line]] = {}
        self._deaths: dict[str, deque[float]] = {}
        self._failure: asyncio.Future[GridStatError] = asyncio.get_running_loop().create_future()
        self._moved = asyncio.Event()
        self._is_ending = False
        self.restarted: set[str] = set()
        self.given_up: set[str] = set()
        """Processes that are not started again; the grid runs on without them."""

    @property
    def process_ids(self) -> dict[str, int]:
        return {name: child.process_id for name, child in self._children.items()}

    async def start(self, on_progress: Callable[[tuple[str, ...]], None]) -> None:
        """Start everything, group by group; raise the first failure."""
        for group in self._groups:
            self._missing.update(job.name for job in group if job.is_needed)
            await asyncio.gather(*(self._start(job) for job in group))
            while self._missing:
                on_progress(tuple(sorted(self._missing)))
                self._moved.clear()
                await self._moved.wait()
                self.raise_failure()

    def raise_failure(self) -> None:
        if self._failure.done():
            raise self._failure.result()

    async def failed(self) -> None:
        """Return when the grid cannot continue; `raise_failure` then raises the reason."""
        await asyncio.wait({self._failure})

    async def ask(self, names: Iterable[str], *, do: str, expected: str) -> Observation:
        """Ask some processes one thing; those that answer in time are in the observation."""
        asked = [name for name in names if name in self._children and not self._is_ending]
        answers = await asyncio.gather(*(self._ask(name, do, expected) for name in asked))
        reports = {
            name: answer for name, answer in zip(asked, answers, strict=True) if answer is not None
        }
        return Observation(time.monotonic(), reports)

    @property
    def is_ending(self) -> bool:
        return self._is_ending

    async def end(self) -> None:
        """End every process by its own id, draining, the last group first; then none is left."""
        self._is_ending = True
        try:
            for group in reversed(self._groups):
                started = [job for job in group if job.name in self._children]
                await asyncio.gather(
                    *(self._children[job.name].end(job.drain_s) for job in started)
                )
            await asyncio.gather(*self._watchers)
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill all processes without draining; none is started again."""
        self._is_ending = True
        for child in self._children.values():
            child.kill()

    async def _ask(self, name: str, do: str, expected: str) -> Line | None:
        answer: asyncio.Future[Line] = asyncio.get_running_loop().create_future()
        self._answers[name, expected] = answer
        self._children[name].say(encoded({"do": do}))
        done, _ = await asyncio.wait({answer}, timeout=ANSWER_S_MAX)
        return answer.result() if done and not answer.cancelled() else None

    async def _start(self, job: Job) -> None:
        child = await Child.started(job.name, job.module, job.arguments)
        self._children[job.name] = child
        if self._is_ending:
            await child.end()  # The end was asked for while this one was being born.
        watcher = asyncio.ensure_future(self._watch(job, child))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)

    async def _watch(self, job: Job, child: Child) -> None:
        how = await child.gone(lambda text: self._receive(job, decoded(text)))
        for key in [key for key in self._answers if key[0] == job.name]:
            self._answers.pop(key).cancel()
        if self._is_ending:
            return
        for line in child.last_lines:
            self._on_message(f"{job.name}: {line}")
        if job.name in self._missing:
            lines = "; ".join(child.last_lines) or how
            self._give_up(LinkDown(f"{job.name} ended before it was ready: {lines}"))
        elif self._dies_too_often(job.name):
            hint = (
                f"its last lines are above; to see more start it by hand: `{job.command}`; "
                "`gridstat host` shows what the machine lacks"
            )
            self._give_up_on(
                job, LinkDown(f"{job.name} ended again and again, last by {how}", hint=hint)
            )
        elif job.name not in self.given_up:
            self._on_message(f"{job.name} ended by {how}; starting it again")
            self.restarted.add(job.name)
            await asyncio.sleep(restart_after_s(self._recent_deaths(job.name)))
            if not self._is_ending:
                await self._start(job)

    def _dies_too_often(self, name: str) -> bool:
        deaths = self._deaths.setdefault(name, deque(maxlen=RESTARTS_MAX))
        is_too_often = len(deaths) == RESTARTS_MAX and (
            time.monotonic() - deaths[0] < RESTARTS_WITHIN_S
        )
        deaths.append(time.monotonic())
        return is_too_often

    def _recent_deaths(self, name: str) -> int:
        since_s = time.monotonic() - RESTARTS_WITHIN_S
        return sum(death_s >= since_s for death_s in self._deaths[name])

    def _receive(self, job: Job, line: Line) -> None:
        match line["is"]:
            case "ready":
                self._missing.discard(job.name)
                self._moved.set()
            case "failed":
                kind = ConfigurationError if line["code"] == ConfigurationError.code else LinkDown
                self._give_up_on(job, kind(f"{job.name}: {line['message']}", hint=line["hint"]))
            case kind:
                answer = self._answers.pop((job.name, kind), None)
                if answer is not None and not answer.done():
                    answer.set_result(line)

    def _give_up_on(self, job: Job, reason: GridStatError) -> None:
        """Give up the whole grid, or a single process without which the grid can run."""
        if job.is_needed and (job.is_vital or job.name in self._missing):
            self._give_up(reason)
            return
        self.given_up.add(job.name)
        if job.is_needed:
            self._on_message(
                f"{job.name} is given up, the rest of the grid runs on: {error_line(reason)}"
            )
        else:
            self._on_message(f"going on without it: {error_line(reason)}")

    def _give_up(self, reason: GridStatError) -> None:
        if not self._failure.done():
            self._failure.set_result(reason)
        self._moved.set()


def restart_after_s(deaths: int) -> float:
    """Return the wait before a process is started again after so many deaths, at least one."""
    return min(RESTART_AFTER_S * 2.0 ** (deaths - 1), RESTART_AFTER_S_MAX)
