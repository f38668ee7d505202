"""Starts, asks, watches and ends the processes of a grid, as `supervision.py` decides."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from gridstat.console.grid import router_key
from gridstat.console.processes.child import Child
from gridstat.console.processes.lines import Line, addresses_of
from gridstat.console.processes.supervision import (
    Connected,
    Ended,
    Event,
    Failed,
    GiveUp,
    Instruction,
    Phase,
    Ready,
    Say,
    Start,
    Supervision,
    Tell,
)
from gridstat.model.errors import ConfigurationError, GridStatError, LinkDown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gridstat.console.grid import Grid

PMUS = "PMUs"
SUBSCRIBERS = "subscribers"
ANSWER_S_MAX = 5.0


@dataclass(frozen=True, slots=True)
class Observation:
    """What all processes said when they were asked once; one that did not answer is missing."""

    time_s: float
    reports: Mapping[str, Line]


class Supervisor:
    """Owns the child processes; after `end` there is none, however the grid ended."""

    def __init__(self, grid: Grid, text: str, *, tell: Callable[[str], None]) -> None:
        self._text = text
        self._file = grid.source
        self._tell = tell
        self._roles = _roles_of(grid)
        publishers = frozenset({PMUS} & self._roles.keys())
        self._supervision = Supervision(tuple(self._roles), publishers=publishers)
        self._children: dict[str, Child] = {}
        self._watchers: set[asyncio.Task[None]] = set()
        self._answers: dict[tuple[str, str], asyncio.Future[Line]] = {}
        self._failure: asyncio.Future[GridStatError] = asyncio.get_running_loop().create_future()
        self._moved = asyncio.Event()

    @property
    def restarted(self) -> frozenset[str]:
        return self._supervision.restarted

    def missing(self) -> tuple[str, ...]:
        return self._supervision.missing()

    @property
    def process_ids(self) -> dict[str, int]:
        return {name: child.process_id for name, child in self._children.items()}

    async def start(self, on_progress: Callable[[Phase, tuple[str, ...]], None]) -> None:
        """Bring everything up; raises what is in the way."""
        await self._do(self._supervision.start())
        while self._supervision.phase is not Phase.RUNNING:
            on_progress(self._supervision.phase, self.missing())
            self._moved.clear()
            await self._moved.wait()
            self.raise_failure()
        on_progress(self._supervision.phase, ())

    def raise_failure(self) -> None:
        if self._failure.done():
            raise self._failure.result()

    async def failed(self) -> None:
        """Returns when the grid cannot go on; `raise_failure` then says why."""
        await asyncio.wait({self._failure})

    async def observe(self) -> Observation:
        """Ask every process for its report."""
        names = tuple(self._children)
        answers = await asyncio.gather(*(self._ask(name, "report") for name in names))
        reports = {
            name: answer for name, answer in zip(names, answers, strict=True) if answer is not None
        }
        return Observation(time.monotonic(), reports)

    async def pause(self) -> Line | None:
        """Let the PMUs fall silent; their last report is the answer."""
        return await self._ask(PMUS, "pause") if PMUS in self._children else None

    async def end(self) -> None:
        """End every process by its own id, draining; afterwards none is left."""
        self._supervision.end()
        try:
            await asyncio.gather(*(child.end() for child in self._children.values()))
            await asyncio.gather(*self._watchers)
        finally:
            self.kill()

    def kill(self) -> None:
        """For a person who will not wait for draining."""
        for child in self._children.values():
            child.kill()

    async def _ask(self, name: str, what: str) -> Line | None:
        expected = {"report": "report", "pause": "paused"}[what]
        answer: asyncio.Future[Line] = asyncio.get_running_loop().create_future()
        self._answers[name, expected] = answer
        self._children[name].say({"do": what})
        done, _ = await asyncio.wait({answer}, timeout=ANSWER_S_MAX)
        return answer.result() if done and not answer.cancelled() else None

    async def _do(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Start(process, addresses):
                    await self._start(process, {"addresses": dict(addresses)})
                case Say(process, line):
                    self._children[process].say(line)
                case Tell(text):
                    self._tell(text)
                case GiveUp():
                    self._give_up(instruction)
                case _:
                    assert_never(instruction)
        self._moved.set()

    async def _start(self, process: str, addresses: Line) -> None:
        child = await Child.started(process)
        self._children[process] = child
        if self._supervision.phase is Phase.ENDING:
            await child.end()  # The end was asked for while this one was being born.
        role, name = self._roles[process]
        begin = {"do": "begin", "role": role, "name": name, "file": self._file, "text": self._text}
        child.say({**begin, **addresses})
        watcher = asyncio.ensure_future(self._watch(child))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)

    async def _watch(self, child: Child) -> None:
        events: asyncio.Queue[Event] = asyncio.Queue()

        def on_line(line: Line) -> None:
            event = self._event_of(child.name, line)
            if event is not None:
                events.put_nowait(event)

        gone = asyncio.ensure_future(child.gone(on_line))
        while not gone.done() or not events.empty():
            upcoming = asyncio.ensure_future(events.get())
            await asyncio.wait({gone, upcoming}, return_when=asyncio.FIRST_COMPLETED)
            if upcoming.done():
                await self._do(self._supervision.handle(upcoming.result()))
            upcoming.cancel()
        self._forget_answers(child.name)
        if self._supervision.phase is not Phase.ENDING:
            for words in child.last_words:
                self._tell(f"{child.name}: {words}")
        await self._do(self._supervision.handle(Ended(child.name, gone.result())))

    def _event_of(self, name: str, line: Line) -> Event | None:
        match line["is"]:
            case "ready":
                return Ready(name, addresses_of(line))
            case "connected":
                return Connected(name)
            case "failed":
                return Failed(name, line["message"], hint=line["hint"], code=line["code"])
            case kind:
                answer = self._answers.pop((name, kind), None)
                if answer is not None and not answer.done():
                    answer.set_result(line)
                return None

    def _forget_answers(self, name: str) -> None:
        for key in [key for key in self._answers if key[0] == name]:
            self._answers.pop(key).cancel()

    def _give_up(self, reason: GiveUp) -> None:
        if not self._failure.done():
            kind = ConfigurationError if reason.code == ConfigurationError.code else LinkDown
            self._failure.set_result(kind(reason.message, hint=reason.hint))


def _roles_of(grid: Grid) -> dict[str, tuple[str, str]]:
    roles = {router_key(router.name): ("router", router.name) for router in grid.routers}
    if grid.subscribers:
        roles[SUBSCRIBERS] = ("subscribers", "")
    if grid.pmus:
        roles[PMUS] = ("pmus", "")
    return roles
