"""Events and instructions of every protocol machine.

A machine is pure: `handle(event, now_ns) -> list[Instruction]`. It reads no clock, opens no socket
and draws no random number. The driver (`driver.py` in production, `lab/simulation` in virtual time)
carries out the instructions and reports what happened. `now_ns` is a steady clock.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from msgspec import Struct

from gridstat.net.command.messages import Hello, Message


class Connected(Struct, frozen=True):
    """A session with an authenticated peer is open; `peer` is its identity, `role/name`.

    A new session of a peer replaces the old one; the driver reports `Disconnected` for the old
    first.
    """

    peer: str
    hello: Hello


class Disconnected(Struct, frozen=True):
    """The session has ended, and messages under way are lost."""

    peer: str


class Received(Struct, frozen=True):
    """A message arrived, in the order in which the peer sent it within this session."""

    peer: str
    message: Message


class TimerFired(Struct, frozen=True):
    """A timer of the machine has expired."""

    name: str


class Persisted(Struct, frozen=True):
    """All of a `Persist` instruction is durable; the driver has run its `then` just before."""

    token: int


class PersistFailed(Struct, frozen=True):
    """The journal refused a `Persist` (disk full); nothing is durable, `then` was not run."""

    token: int
    reason: str


class Send(Struct, frozen=True):
    """Send on the peer's session; without a session the message is lost and nothing is reported."""

    peer: str
    message: Message


class Close(Struct, frozen=True):
    """End the peer's session after all earlier messages; the peer receives the reason in Bye."""

    peer: str
    code: int
    reason: str


class SetTimer(Struct, frozen=True):
    """Start a timer that fires once; a timer of the same name is replaced."""

    name: str
    after_ns: int


class CancelTimer(Struct, frozen=True):
    """Stop a timer, if it is running."""

    name: str


class Persist(Struct, frozen=True):
    """Make the operations durable, all or none, in order; only then run `then`.

    The journal treats an operation as opaque bytes; `restore` of the machine reads them again.
    """

    token: int
    operations: tuple[bytes, ...]
    then: tuple[Instruction, ...] = ()


class Note(Struct, frozen=True):
    """Log entry: an event name and its facts."""

    word: str
    facts: tuple[tuple[str, str | int | float], ...] = ()
    is_warning: bool = False


Event: TypeAlias = Connected | Disconnected | Received | TimerFired | Persisted | PersistFailed
Instruction: TypeAlias = Send | Close | SetTimer | CancelTimer | Persist | Note


class Machine(Protocol):
    """A machine with exactly these events and instructions."""

    def handle(self, event: Event, now_ns: int) -> list[Instruction]: ...
