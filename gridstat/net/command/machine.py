"""What every protocol machine hears and says: the events and instructions of `handle`.

A machine is pure: `handle(event, now_ns) -> list[Instruction]`. It reads no clock, opens no socket
and draws no random number; the driver (`driver.py` in production, `lab/simulation` in virtual
time) does what the instructions say and brings back what happened. `now_ns` is a steady clock.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from msgspec import Struct

from gridstat.net.command.messages import Hello, Message


class Connected(Struct, frozen=True):
    """A session with an authenticated peer is up; `peer` is its identity, `role/name`.

    A new session of a peer replaces the old one; the driver says `Disconnected` of that first.
    """

    peer: str
    hello: Hello


class Disconnected(Struct, frozen=True):
    """The session is gone, and with it whatever was on its way."""

    peer: str


class Received(Struct, frozen=True):
    """A message came, in the order in which the peer sent it within this session."""

    peer: str
    message: Message


class TimerFired(Struct, frozen=True):
    """A timer that the machine set has run out."""

    name: str


class Persisted(Struct, frozen=True):
    """All of a `Persist` instruction is durable; the driver has run its `then` just before."""

    token: int


class PersistFailed(Struct, frozen=True):
    """The journal could not take it (disk full); none of it is durable, `then` was not run."""

    token: int
    reason: str


class Send(Struct, frozen=True):
    """Send on the peer's session; without one it is lost, and the machine hears nothing."""

    peer: str
    message: Message


class Close(Struct, frozen=True):
    """End the peer's session after what was sent before; the peer is told why."""

    peer: str
    code: int
    reason: str


class SetTimer(Struct, frozen=True):
    """Fire once after so long; setting a timer of the same name again replaces it."""

    name: str
    after_ns: int


class CancelTimer(Struct, frozen=True):
    """Forget the timer, if it still runs."""

    name: str


class Persist(Struct, frozen=True):
    """Make the operations durable, all or none, in order; only then run `then`.

    An operation is opaque bytes to the journal; the machine's `restore` reads it again.
    """

    token: int
    operations: tuple[bytes, ...]
    then: tuple[Instruction, ...] = ()


class Note(Struct, frozen=True):
    """Something for the log and for people: an event word and its facts."""

    word: str
    facts: tuple[tuple[str, str | int | float], ...] = ()
    is_warning: bool = False


Event: TypeAlias = Connected | Disconnected | Received | TimerFired | Persisted | PersistFailed
Instruction: TypeAlias = Send | Close | SetTimer | CancelTimer | Persist | Note


class Machine(Protocol):
    """What drivers need of a machine whose events and instructions are only these."""

    def handle(self, event: Event, now_ns: int) -> list[Instruction]: ...
