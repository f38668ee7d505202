"""One session with one peer: TLS, Hello, messages, pings, Bye; an asyncio protocol on plain TCP.

The client says Hello first, together with the end of its handshake; the server answers with its own
or with a Bye that says why not. So a client whose session is up has been accepted.

    connecting → greeting → open → closing → closed
"""

from __future__ import annotations

import asyncio
import ssl
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol, cast

from gridstat.model.error_index import error_from
from gridstat.model.errors import (
    DeadlinePassed,
    GridStatError,
    LinkDown,
    Malformed,
    MalformedFrame,
    NoCommonSchema,
    NotAuthorised,
)
from gridstat.net.command.address import address_text
from gridstat.net.command.frames import FrameReader, decode_message, frame
from gridstat.net.command.messages import Bye, Hello, Ping, Pong
from gridstat.net.command.tls import TlsEngine, explain_failure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.net.command.identity import Identity
    from gridstat.net.command.messages import Message
    from gridstat.net.command.session_settings import SessionCounters
    from gridstat.net.command.session_terms import SessionTerms


HELLO_BYTES_MAX: Final = 16_384
"""Until a peer is accepted, it is not given room for more than an introduction."""
FRAMES_A_TURN: Final = 32
"""Whoever sends hundreds at once keeps nobody else waiting, and the journal begins earlier."""


class SessionState(Enum):
    """How far a session has come; it never goes back."""

    CONNECTING = auto()
    GREETING = auto()
    OPEN = auto()
    CLOSING = auto()
    CLOSED = auto()


class SessionOwner(Protocol):
    """Whoever keeps the sessions of a process."""

    def opening(self, session: Session) -> None:
        """The peer has introduced itself; raises to refuse it after all."""
        ...

    def opened(self, session: Session) -> None: ...

    def received(self, session: Session, message: Message) -> None: ...

    def closed(self, session: Session) -> None:
        """Exactly once for each session that was made; `session.error` says why."""
        ...


class Session(asyncio.Protocol):
    """Messages go to the owner only while the session is open, in the order they were sent.

    What is sent within one turn of the event loop leaves in one write.
    """

    def __init__(self, owner: SessionOwner, terms: SessionTerms, counters: SessionCounters) -> None:
        self.state = SessionState.CONNECTING
        self.identity: Identity | None = None
        self.hello: Hello | None = None
        self.error: GridStatError | None = None
        self.peer = ""
        """The owner's name for it, given in `opening`."""
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when nothing of the session is left."""
        self._owner = owner
        self._terms = terms
        self._settings = terms.settings
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        self._tls = TlsEngine(terms.context, is_server=terms.is_server)
        self._reader = FrameReader(HELLO_BYTES_MAX)
        self._bodies: Iterator[bytes] | None = None
        """Of what was received, the messages that have not had their turn."""
        self._is_paused = False
        self._schema_version = terms.hello.schema_version
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0
        self._is_flush_due = False
        self._has_heard = True
        self._silent_intervals = 0
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    @property
    def is_server(self) -> bool:
        return self._terms.is_server

    @property
    def was_open(self) -> bool:
        return bool(self.peer)

    @property
    def is_open(self) -> bool:
        return self.state is SessionState.OPEN

    @property
    def is_silent(self) -> bool:
        """Whether a ping has gone unanswered for a whole interval."""
        return self._silent_intervals > 1 and not self._has_heard

    @property
    def address(self) -> str:
        found = self._transport.get_extra_info("peername") if self._transport else None
        return address_text(found[:2]) if found else "an unknown address"

    def send(self, message: Message) -> None:
        """Send, if the session is open and the peer's schema knows the message."""
        if self.state is not SessionState.OPEN:
            self._counters.unsent_messages += 1
        elif message.since > self._schema_version:
            self._counters.too_new_messages += 1
        else:
            self._put(message)

    def close(self, error: GridStatError | None = None) -> None:
        """Say Bye, and why, after all that was sent before."""
        self._end(error, word="closed", is_told=True)

    def abort(self, error: GridStatError | None = None) -> None:
        """End at once, without a word."""
        self._end(error, word="aborted", is_told=False)
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._timer = self._loop.call_later(self._settings.hello_within_s, self._too_late)
        self._tls.begin()
        self._write_through()

    def data_received(self, data: bytes) -> None:
        if self.state is SessionState.CLOSING or self.state is SessionState.CLOSED:
            return
        self._has_heard = True
        self._counters.bytes_in += len(data)
        try:
            plain = self._tls.receive(data)
        except ssl.SSLError as error:
            word, told = explain_failure(error, peer=self._peer_words())
            self._end(told, word=word, is_told=False)
            return
        self._write_through()
        self._bodies = self._reader.feed(plain)
        self._take_turn()

    def eof_received(self) -> bool:
        self._end(LinkDown(f"{self._peer_words()} has gone"), word="gone", is_told=False)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        told = f"the connection with {self._peer_words()} is lost"
        self._end(LinkDown(f"{told}: {exc}" if exc else told), word="lost", is_told=False)
        self.state = SessionState.CLOSED
        self._stop_timer()
        if not self.finished.done():
            self.finished.set_result(None)

    # How it begins.

    def _identify(self) -> None:
        """The handshake is done: check who it is; a client then introduces itself."""
        identity = self._tls.peer_identity()
        self._terms.gate.check(identity)
        self.identity = identity
        self.state = SessionState.GREETING
        if not self.is_server:
            self._put(self._terms.hello)

    def _greet(self, message: Message | None) -> None:
        match message:
            case Bye(code=code, reason=reason, hint=hint):
                told = reason or f"{self._peer_words()} said Bye instead of Hello"
                self._end(error_from(code, told, hint=hint), word="told_bye", is_told=False)
                return
            case Hello():
                self._check_hello(message)
            case _:
                raise MalformedFrame("the first message must be Hello")
        self.hello = message
        self._owner.opening(self)
        if self.is_server:
            self._put(self._terms.hello)
        self.state = SessionState.OPEN
        self._reader.frame_bytes_max = self._settings.frame_bytes_max
        self._counters.sessions += 1
        self._counters.sessions_opened += 1
        self._stop_timer()
        self._timer = self._loop.call_later(self._settings.ping_interval_s, self._tick)
        self._owner.opened(self)

    def _check_hello(self, hello: Hello) -> None:
        assert self.identity is not None
        if f"{hello.role}/{hello.name}" != self.identity.peer:
            raise NotAuthorised(
                f"Hello of {hello.role[:20]}/{hello.name[:80]} with the certificate of "
                f"{self.identity}: both must name the same party"
            )
        ours = self._terms.hello
        agreed = min(ours.schema_version, hello.schema_version)
        if agreed < max(ours.schema_version_min, hello.schema_version_min):
            raise NoCommonSchema(
                f"{self.identity} speaks schema {hello.schema_version_min} to "
                f"{hello.schema_version}, we {ours.schema_version_min} to {ours.schema_version}"
            )
        self._schema_version = agreed

    # How it lives.

    def _take_turn(self) -> None:
        """Hear a few messages, then let others have their turn; read on when all are heard."""
        if self.state is SessionState.CLOSING or self.state is SessionState.CLOSED:
            self._pause(is_paused=False)
            return
        self._has_heard = True
        try:
            if self.state is SessionState.CONNECTING and self._tls.is_established:
                self._identify()
            self._read()
        except Malformed as error:
            self._end(error, word=f"malformed_{error.reason}", is_told=True)
        except GridStatError as error:
            self._end(error, word=type(error).__name__, is_told=True)
        has_more = self._bodies is not None and self.state is SessionState.OPEN
        self._pause(is_paused=has_more)
        if has_more:
            self._loop.call_soon(self._take_turn)
        elif self._tls.is_finished:
            self._end(LinkDown(f"{self._peer_words()} has gone"), word="gone", is_told=False)

    def _pause(self, *, is_paused: bool) -> None:
        if is_paused is self._is_paused or self._transport is None or self._transport.is_closing():
            return
        self._is_paused = is_paused
        if is_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _read(self) -> None:
        """As many messages as one turn has; `_bodies` is None when there are no more."""
        assert self._bodies is not None
        for heard, body in enumerate(self._bodies, 1):
            self._counters.frames_in += 1
            message = decode_message(body)
            if self.state is SessionState.OPEN:
                self._take(message)
            elif self.state is SessionState.GREETING:
                self._greet(message)
            else:
                break
            if heard == FRAMES_A_TURN:
                return
        self._bodies = None

    def _take(self, message: Message | None) -> None:
        match message:
            case None:
                self._counters.unknown_messages += 1
            case Ping(number=number):
                self._put(Pong(number=number))
            case Pong():
                pass
            case Bye(code=code, reason=reason, hint=hint):
                told = error_from(code, reason or "the peer said Bye", hint=hint) if code else None
                self._end(told, word="told_bye", is_told=False)
            case Hello():
                raise MalformedFrame("a second Hello")
            case _:
                self._owner.received(self, message)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(self._settings.ping_interval_s, self._tick)
        if self._has_heard:
            self._has_heard = False
            self._silent_intervals = 0
            return
        self._silent_intervals += 1
        if self._silent_intervals >= self._settings.silent_intervals_max:
            self._end(DeadlinePassed(f"{self.identity} is silent"), word="silent", is_told=True)
        else:
            self._counters.pings += 1
            self._put(Ping(number=self._counters.pings))

    def _put(self, message: Message) -> None:
        written = frame(message)
        self._outgoing.append(written)
        self._outgoing_bytes += len(written)
        self._counters.frames_out += 1
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)
        if self._outgoing_bytes > self._settings.write_bytes_max:
            self._flush()

    def _flush(self) -> None:
        self._is_flush_due = False
        if not self._outgoing or self._transport is None or self._transport.is_closing():
            return
        joined = b"".join(self._outgoing)
        self._outgoing.clear()
        self._outgoing_bytes = 0
        try:
            self._tls.send(joined)
        except ssl.SSLError as error:
            word, reason = explain_failure(error, peer=self._peer_words())
            self._end(reason, word=word, is_told=False)
            return
        self._write_through()
        held_bytes = self._transport.get_write_buffer_size()
        if held_bytes > self._settings.write_bytes_max:
            told = f"{self.identity} reads too slowly: {held_bytes:,} bytes wait"
            self._end(LinkDown(told), word="slow", is_told=False)
            self._transport.abort()

    def _write_through(self) -> None:
        assert self._transport is not None
        if written := self._tls.take():
            self._counters.bytes_out += len(written)
            self._transport.write(written)

    # How it ends.

    def _too_late(self) -> None:
        told = f"{self._peer_words()} did not introduce itself in time"
        self._end(DeadlinePassed(told), word="hello_deadline", is_told=True)

    def _end(self, error: GridStatError | None, *, word: str, is_told: bool) -> None:
        """Once: count, tell the peer if it can be told, tell the owner, wait a little for both."""
        if self.state in {SessionState.CLOSING, SessionState.CLOSED}:
            return
        was_open = self.state is SessionState.OPEN
        (self._counters.ended if was_open else self._counters.refused)[word] += 1
        self._counters.sessions -= was_open
        self.error = error
        self.state = SessionState.CLOSING
        self._stop_timer()
        try:
            if is_told and self._tls.is_established:
                self._put(_bye(error))
            self._flush()
            self._shut()
        finally:
            self._owner.closed(self)

    def _shut(self) -> None:
        """Close our direction, and go on reading until the peer closes its own: a socket closed
        with unread bytes would reset the connection, and our last words with it."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._tls.is_established:
            self._tls.finish()
        self._write_through()
        try:
            transport.write_eof()
        except OSError:  # The peer has reset the connection: there is nobody to wait for.
            transport.abort()
        else:
            self._timer = self._loop.call_later(self._settings.linger_s, transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _peer_words(self) -> str:
        return str(self.identity) if self.identity else self.address


def _bye(error: GridStatError | None) -> Bye:
    if error is None:
        return Bye()
    return Bye(code=error.code, reason=str(error.args[0]), hint=error.hint)
