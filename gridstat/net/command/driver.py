"""Runs one pure machine under asyncio: sessions, timers and the journal around it.

The driver turns what happens into events, gives them to the machine one at a time, and carries out
the instructions in order. An exception in a machine is a bug: the driver logs it and ends the
process, since peers recover from a process that died but not from one with a broken state.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar

from msgspec import structs

from gridstat.model.error_index import error_from
from gridstat.model.errors import FrameTooLarge, StorageFailed
from gridstat.net.clock import SystemClock
from gridstat.net.command.dialer import Target
from gridstat.net.command.endpoint_messages import RefusedOutcome
from gridstat.net.command.machine import (
    CancelTimer,
    Close,
    Connected,
    Disconnected,
    Note,
    Persist,
    Persisted,
    PersistFailed,
    Received,
    Send,
    SetTimer,
    TimerFired,
)
from gridstat.net.command.operator_messages import OperatorAnswer
from gridstat.net.command.session_table import SessionTable, TableSettings
from gridstat.net.process_end import end_at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from gridstat.model.errors import GridStatError
    from gridstat.net.clock import Clock
    from gridstat.net.command.address import Address
    from gridstat.net.command.identity import Identity, Role
    from gridstat.net.command.messages import Hello, Message
    from gridstat.net.command.session_settings import SessionCounters
    from gridstat.net.command.tls import Credentials

NS_PER_S: Final = 1_000_000_000
EXIT_BUG: Final = 70

DriverEvent: TypeAlias = Connected | Disconnected | Received | TimerFired
"""Events of every machine; a machine that emits `Persist` also receives `Persisted`."""

AnyEvent_contra = TypeVar("AnyEvent_contra", contravariant=True)
ExtraEvent = TypeVar("ExtraEvent")

log = logging.getLogger(__name__)


class Drivable(Protocol[AnyEvent_contra]):
    """A machine that handles at least `DriverEvent`; its extra instructions go to `perform`."""

    def handle(self, event: AnyEvent_contra, now_ns: int, /) -> Sequence[object]: ...


class Journal(Protocol):
    """Store that makes a machine's operations durable in the order of the calls."""

    def persist(self, token: int, operations: tuple[bytes, ...]) -> asyncio.Future[None]:
        """Return a future that is done when all operations are durable.

        The future fails with `StorageFailed` if none of them is.
        """
        ...


def no_extra_instructions(instruction: object) -> bool:
    """Default `perform` of a machine without instructions of its own."""
    return False


def end_process(error: BaseException) -> None:
    """End the process after a bug: none of its state can be trusted any more."""
    end_at_once(EXIT_BUG, lambda: log.critical("machine_failed", exc_info=error))


@dataclass(frozen=True, slots=True)
class DriverEnvironment:
    """Clock, settings and bug handler of a driver; tests pass their own."""

    table: TableSettings = field(default_factory=TableSettings)
    clock: Clock = field(default_factory=SystemClock)
    on_bug: Callable[[BaseException], None] = end_process


class Driver(Generic[ExtraEvent]):
    """Gives events to the machine one at a time, never while it or its instructions are running.

    All calls belong on the event loop's thread.
    """

    def __init__(
        self,
        machine: Drivable[DriverEvent | ExtraEvent],
        credentials: Credentials,
        *,
        perform: Callable[[object], bool] = no_extra_instructions,
        journal: Journal | None = None,
        environment: DriverEnvironment | None = None,
    ) -> None:
        environment = environment or DriverEnvironment()
        self._machine: Drivable[Any] = machine
        self._perform = perform
        self._journal = journal
        self._clock = environment.clock
        self._on_bug = environment.on_bug
        self._sessions = SessionTable(self, credentials, environment.table)
        self._work: deque[tuple[Sequence[object], object]] = deque()
        self._is_working = False
        self._is_ending = False
        self._has_ended = False
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._persisting: set[asyncio.Future[None]] = set()

    @property
    def counters(self) -> SessionCounters:
        return self._sessions.counters

    @property
    def peers(self) -> list[str]:
        """Peers with an open session."""
        return self._sessions.peers

    async def serve(
        self, host: str, port: int, allowed_roles: Iterable[Role], *, children: Collection[str] = ()
    ) -> Address:
        """Accept parties of these roles from our own cloud, and brokers of these names.

        Returns the bound address; `children` is read again for each new peer.
        """
        return await self._sessions.serve(host, port, allowed_roles, children=children)

    def connect_to(
        self,
        identity: Identity,
        addresses: Sequence[Address],
        *,
        on_failure: Callable[[GridStatError], None] | None = None,
    ) -> None:
        """Keep a session with this peer, trying its addresses in turn, without end.

        `on_failure` receives the error of each failed attempt; another call replaces the addresses.
        """
        self._sessions.connect_to(Target(identity, tuple(addresses), on_failure))

    def forget(self, identity: Identity) -> None:
        """Stop connecting to this peer, and end its session with Bye."""
        self._sessions.forget(identity)

    def inject(self, event: ExtraEvent) -> None:
        """Give the machine an event from outside the command plane."""
        self._handle(event)

    async def close(self) -> None:
        """Wait for pending journal writes, send Bye to all peers, and stop all timers."""
        self._is_ending = True
        while self._persisting:
            await asyncio.wait(self._persisting)
        self._has_ended = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        await self._sessions.close()

    # Callbacks of the session table.

    def connected(self, peer: str, hello: Hello) -> None:
        self._handle(Connected(peer, hello))

    def received(self, peer: str, message: Message) -> None:
        # While the last writes finish, nothing new may begin.
        if not self._is_ending:
            self._handle(Received(peer, message))

    def disconnected(self, peer: str) -> None:
        self._handle(Disconnected(peer))

    # Events in, instructions out.

    def _handle(self, event: object, *, first: Sequence[object] = ()) -> None:
        """Queue an event: carry out the instructions `first`, then give the event to the
        machine."""
        if self._has_ended:
            return
        self._work.append((first, event))
        if self._is_working:  # The call came from an instruction; the loop below takes the event.
            return
        self._is_working = True
        try:
            while self._work and not self._has_ended:
                instructions, next_event = self._work.popleft()
                self._do_all(instructions)
                self._do_all(self._machine.handle(next_event, self._clock.steady_ns()))
        except Exception as error:
            self._has_ended = True
            self._on_bug(error)
        finally:
            self._is_working = False

    def _do_all(self, instructions: Sequence[object]) -> None:
        for instruction in instructions:
            self._do(instruction)

    def _do(self, instruction: object) -> None:
        match instruction:
            case Send(peer, message):
                self._send(peer, message)
            case SetTimer(name, after_ns):
                self._set_timer(name, after_ns)
            case CancelTimer(name):
                self._cancel_timer(name)
            case Persist():
                self._begin_persisting(instruction)
            case Note(word, facts, is_warning):
                level = logging.WARNING if is_warning else logging.INFO
                log.log(level, "%s %s", word, " ".join(_fact(*fact) for fact in facts))
            case Close(peer, code, reason):
                self._sessions.end(peer, error_from(code, reason) if code else None)
            case _:
                assert self._perform(instruction), f"nobody performs {instruction!r}"

    def _send(self, peer: str, message: Message) -> None:
        try:
            self._sessions.send(peer, message)
        except FrameTooLarge as error:
            # The receiver repeats its request or gives up; the process goes on.
            self.counters.too_large_messages += 1
            log.error("message_too_large peer=%s reason=%r", peer, error.args[0])
            if isinstance(message, OperatorAnswer):
                no = RefusedOutcome(code=error.code, reason=f"the answer: {error.args[0]}")
                self._sessions.send(peer, structs.replace(message, facts={}, refused=no))

    def _set_timer(self, name: str, after_ns: int) -> None:
        self._cancel_timer(name)
        loop = asyncio.get_running_loop()
        self._timers[name] = loop.call_later(after_ns / NS_PER_S, self._fire, name)

    def _cancel_timer(self, name: str) -> None:
        if timer := self._timers.pop(name, None):
            timer.cancel()

    def _fire(self, name: str) -> None:
        del self._timers[name]
        self._handle(TimerFired(name))

    def _begin_persisting(self, order: Persist) -> None:
        assert self._journal is not None, "a machine that persists needs a journal"
        saving = self._journal.persist(order.token, order.operations)
        self._persisting.add(saving)
        saving.add_done_callback(partial(self._saved, order))

    def _saved(self, order: Persist, saving: asyncio.Future[None]) -> None:
        self._persisting.discard(saving)
        if saving.cancelled():
            return  # The loop is closing.
        error = saving.exception()
        if error is None:
            self._handle(Persisted(order.token), first=order.then)
        elif isinstance(error, StorageFailed):
            self._handle(PersistFailed(order.token, str(error.args[0])))
        else:
            self._has_ended = True
            self._on_bug(error)


def _fact(key: str, value: str | float) -> str:
    """Return `key=value` for the log, quoted if a peer could have broken the line with it."""
    is_plain = not isinstance(value, str) or (value.isprintable() and " " not in value)
    return f"{key}={value}" if is_plain else f"{key}={value!r}"
