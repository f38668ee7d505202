"""Decides what is started, told and ended when; `supervisor.py` does it.

All processes are started at once and say where they listen; then all learn each other's
addresses; PMUs publish when everybody is connected, so nothing of the first second is lost. A
process that dies while the grid runs is started again once, with its table and its old ports; one
that dies twice, or before the grid runs, ends everything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, assert_never

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gridstat.console.processes.lines import Address


@dataclass(frozen=True, slots=True)
class Ready:
    """A process listens."""

    process: str
    addresses: Mapping[str, Address]


@dataclass(frozen=True, slots=True)
class Connected:
    """A process knows all addresses and has its table."""

    process: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A process says why it cannot go on; its end follows."""

    process: str
    message: str
    hint: str = ""
    code: int = 0


@dataclass(frozen=True, slots=True)
class Ended:
    """A process is gone; `how` says by what code or signal."""

    process: str
    how: str


Event = Ready | Connected | Failed | Ended


@dataclass(frozen=True, slots=True)
class Start:
    """Start a process; the addresses are those that it had before."""

    process: str
    addresses: Mapping[str, Address] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Say:
    """Send a line to a process."""

    process: str
    line: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tell:
    """Let the person know."""

    text: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """End everything: the grid cannot run."""

    message: str
    hint: str
    code: int


Instruction = Start | Say | Tell | GiveUp


class Phase(Enum):
    """Where the start of a grid has got to."""

    STARTING = "starting"
    CONNECTING = "connecting"
    RUNNING = "running"
    ENDING = "ending"


class Supervision:
    """No process is told to publish before all are connected, and none is started thrice."""

    def __init__(self, processes: tuple[str, ...], *, publishers: frozenset[str]) -> None:
        self._processes = processes
        self._publishers = publishers
        self._addresses: dict[str, Address] = {}
        self._missing: set[str] = set()
        self._restarted: set[str] = set()
        self._reasons: dict[str, Failed] = {}
        self.phase = Phase.STARTING

    def start(self) -> list[Instruction]:
        self._missing = set(self._processes)
        return [Start(process) for process in self._processes]

    def missing(self) -> tuple[str, ...]:
        """Who is waited for before the next phase."""
        return tuple(process for process in self._processes if process in self._missing)

    @property
    def restarted(self) -> frozenset[str]:
        return frozenset(self._restarted)

    def end(self) -> None:
        """From now on processes end because they were told to."""
        self.phase = Phase.ENDING

    def handle(self, event: Event) -> list[Instruction]:
        if self.phase is Phase.ENDING:
            return []
        match event:
            case Ready(process, addresses):
                self._addresses.update(addresses)
                return list(self._ready(process))
            case Connected(process):
                return list(self._connected(process))
            case Failed(process):
                self._reasons[process] = event
                return []
            case Ended(process, how):
                return list(self._ended(process, how=how))
            case _:
                assert_never(event)

    def _ready(self, process: str) -> Iterator[Instruction]:
        if self.phase is Phase.RUNNING:
            yield self._connect(process)
            return
        self._missing.discard(process)
        if not self._missing:
            self.phase = Phase.CONNECTING
            self._missing = set(self._processes)
            yield from (self._connect(each) for each in self._processes)

    def _connected(self, process: str) -> Iterator[Instruction]:
        if self.phase is Phase.RUNNING:
            yield Tell(f"{process} runs again, with its table")
            yield from self._publish(process)
            return
        self._missing.discard(process)
        if not self._missing:
            self.phase = Phase.RUNNING
            for each in self._processes:
                yield from self._publish(each)

    def _ended(self, process: str, *, how: str) -> Iterator[Instruction]:
        reason = self._reasons.pop(process, None)
        if reason is not None:
            yield GiveUp(f"{process}: {reason.message}", hint=reason.hint, code=reason.code)
        elif self.phase is not Phase.RUNNING:
            yield GiveUp(
                f"{process} ended while the grid was starting ({how})",
                hint="its last words stand above; `gridstat host` shows what the machine lacks",
                code=0,
            )
        elif process in self._restarted:
            yield GiveUp(
                f"{process} ended a second time ({how})",
                hint="once may be an accident, twice is a fault: its last words stand above",
                code=0,
            )
        else:
            self._restarted.add(process)
            yield Tell(f"{process} ended ({how}); it is started again once")
            yield Start(process, dict(self._addresses))

    def _connect(self, process: str) -> Say:
        return Say(process, {"do": "connect", "addresses": dict(self._addresses)})

    def _publish(self, process: str) -> Iterator[Instruction]:
        if process in self._publishers:
            yield Say(process, {"do": "publish"})
