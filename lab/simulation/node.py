"""One simulated process around a pure machine: its timers, its sessions, its crashes and pauses.

It does what the driver does in production (`net/command/driver.py`): events one at a time,
instructions in order, a timer of the same name replaces the one before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from gridstat.net.command.machine import CancelTimer, Close, Note, Send, SetTimer, TimerFired
from gridstat.net.command.session_messages import Hello

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.simulation.network import Link, Network, Session


class AnyMachine(Protocol):
    """A machine whose events and instructions may extend the shared ones."""

    def handle(self, event: Any, now_ns: int, /) -> Sequence[object]: ...  # noqa: ANN401


class Node(ABC):
    """A process; `process` counts restarts, and no event reaches a later process."""

    role = ""
    doing: ClassVar[dict[type, str]] = {
        Send: "_send",
        SetTimer: "_set_timer",
        CancelTimer: "_cancel_timer",
        Close: "_close",
        Note: "note",
    }
    """Method that carries out each kind of instruction."""

    def __init__(self, network: Network, name: str, number: int) -> None:
        self.network = network
        self.world = network.world
        self.name = name
        self.number = number
        self.peer = f"{self.role}/{name}"
        self.machine: AnyMachine | None = None
        self.is_up = False
        self.is_paused = False
        self.process = 0
        self.instance = ""
        self.hello = Hello(role=self.role, name=name, instance="")
        self.sessions: dict[str, Session] = {}
        self.links: dict[str, Link] = {}
        self._timers: dict[str, int] = {}
        self._timer_number = 0
        self._inbox: list[object] = []
        self._work: deque[object] = deque()
        self._is_working = False

    @abstractmethod
    def start(self) -> None:
        """Begin a process; each role implements its own way."""

    def begin(self, machine: AnyMachine) -> None:
        """Begin a new process with this machine."""
        self.process += 1
        self.instance = f"{self.name}#{self.process}"
        self.hello = Hello(role=self.role, name=self.name, instance=self.instance)
        self.machine = machine
        self.is_up = True
        self.is_paused = False

    def crash(self, *, is_sudden: bool) -> None:
        """Crash as by kill -9; if sudden, with the whole host."""
        if self.world.is_traced:
            self.world.tell(self.peer, "CRASHES" + (" with its host" if is_sudden else ""))
        self.is_up = False
        self.is_paused = False
        self.machine = None
        self.process += 1
        self._timers.clear()
        self._inbox.clear()
        self._work.clear()
        self.network.kill(self, is_sudden=is_sudden)

    def refuses(self, peer: str) -> bool:
        """Return whether the process rejects a caller before any message."""
        del peer
        return False

    # Events in, instructions out.

    def tell(self, event: object) -> None:
        """Pass an event to the machine, now or when the process resumes."""
        if self.is_paused:
            self._inbox.append(event)
            return
        if not self.is_up:
            return
        work = self._work
        work.append(event)
        if self._is_working:
            return
        self._is_working = True
        doing = self.doing
        world = self.world
        world.mark(self.number)
        try:
            while work:
                current = work.popleft()
                if world.is_traced:
                    world.tell(self.peer, f"receives {current}")
                machine = self.machine
                assert machine is not None
                for instruction in machine.handle(current, world.now_ns):
                    getattr(self, doing[type(instruction)])(instruction)
        finally:
            self._is_working = False

    def do_all(self, instructions: Sequence[object]) -> None:
        for instruction in instructions:
            getattr(self, self.doing[type(instruction)])(instruction)

    def _send(self, instruction: Send) -> None:
        if self.world.is_traced:
            self.world.tell(self.peer, f"sends to {instruction.peer}: {instruction.message}")
        session = self.sessions.get(instruction.peer)
        if session is not None:
            session.send(self, instruction.message)

    def _close(self, instruction: Close) -> None:
        session = self.sessions.get(instruction.peer)
        if session is not None:
            if self.world.is_traced:
                self.world.tell(self.peer, f"closes {instruction.peer}: {instruction.reason}")
            session.close(self)

    def _set_timer(self, instruction: SetTimer) -> None:
        self._timer_number += 1
        self._timers[instruction.name] = self._timer_number
        self.world.after(
            instruction.after_ns, self._fire, instruction.name, self._timer_number, self.process
        )

    def has_timer(self, name: str) -> bool:
        return name in self._timers

    def _cancel_timer(self, instruction: CancelTimer) -> None:
        self._timers.pop(instruction.name, None)

    def _fire(self, name: str, number: int, process: int) -> None:
        if process == self.process and self._timers.get(name) == number:
            del self._timers[name]
            self.tell(TimerFired(name))

    def note(self, instruction: Note) -> None:
        if self.world.is_traced:
            self.world.tell(self.peer, f"notes {instruction.word} {dict(instruction.facts)}")

    # Pauses.

    def pause(self) -> None:
        """Pause as by SIGSTOP: events wait until `resume`, and none is lost."""
        if self.world.is_traced:
            self.world.tell(self.peer, "PAUSES")
        self.is_paused = True

    def resume(self) -> None:
        if not self.is_paused:
            return
        if self.world.is_traced:
            self.world.tell(self.peer, "RESUMES")
        self.is_paused = False
        waiting, self._inbox = self._inbox, []
        for event in waiting:
            self.tell(event)
