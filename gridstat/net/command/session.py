"""One session with one peer: an asyncio protocol of TLS, Hello, messages, pings and Bye over TCP.

  CONNECTING --TLS established, peer authorised--> GREETING --Hello received--> OPEN
  any of these --error, Bye, silence or close()--> CLOSING --connection lost--> CLOSED

CONNECTING: both sides do the TLS handshake and check the peer's certificate. GREETING: the client
sends Hello with the end of its handshake; the server answers with its own Hello, or with a Bye that
gives the reason of a refusal. A client whose session is open has therefore been accepted. OPEN:
messages go to the owner in order. CLOSING: a last Bye is written, and input is read and dropped
until the peer closes its side.

Timeouts. A peer that has not sent Hello within `hello_within_s` is refused, and so is one that
sends more than `UNAUTHENTICATED_BYTES_MAX` bytes before its certificate is checked. An open session
without input for `ping_interval_s` sends Ping; after `silent_intervals_max` silent intervals it
ends with `DeadlinePassed`. A closing session is aborted after `linger_s`. A peer that reads too
slowly, so that more than `write_bytes_max` bytes wait, is cut off.

Restart. A session keeps nothing: messages under way are lost with it, and no message is repeated
here. The dialer (`dialer.py`) opens a new session, in which both sides report their state again.
`Hello.instance` tells a restarted process from a reconnected one.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
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
from gridstat.net.command.session_settings import UNAUTHENTICATED_BYTES_MAX
from gridstat.net.command.tls import TlsEngine, explain_failure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.net.command.identity import Identity
    from gridstat.net.command.messages import Message
    from gridstat.net.command.peer_authorization import PeerAuthorization
    from gridstat.net.command.session_settings import SessionCounters, SessionSettings


HELLO_BYTES_MAX: Final = 16_384
"""Largest frame before the session is open: enough for a Hello, too small to exhaust memory."""
FRAMES_PER_CALL: Final = 32
"""Messages handled in one call of the event loop, so that other sessions are served in between."""


class SessionState(Enum):
    """States of a session in order; a session never returns to an earlier one."""

    CONNECTING = auto()
    GREETING = auto()
    OPEN = auto()
    CLOSING = auto()
    CLOSED = auto()


class SessionOwner(Protocol):
    """Owner of the sessions of a process; it receives the events of each session."""

    def opening(self, session: Session) -> None:
        """Name the session of a peer that sent a valid Hello, or raise to refuse the peer."""
        ...

    def opened(self, session: Session) -> None: ...

    def received(self, session: Session, message: Message) -> None: ...

    def closed(self, session: Session) -> None:
        """Handle the end of a session; called once for each session, with the cause in
        `session.error`."""
        ...


@dataclass(frozen=True, slots=True)
class SessionParameters:
    """All that is fixed before a connection is made: side, permitted peers, Hello and bounds."""

    is_server: bool
    authorization: PeerAuthorization
    context: ssl.SSLContext
    hello: Hello
    settings: SessionSettings


class Session(asyncio.Protocol):
    """Messages go to the owner only while the session is open, in the order they were sent.

    Messages sent within one iteration of the event loop leave in one write.
    """

    def __init__(
        self, owner: SessionOwner, parameters: SessionParameters, counters: SessionCounters
    ) -> None:
        self.state = SessionState.CONNECTING
        self.identity: Identity | None = None
        self.hello: Hello | None = None
        self.error: GridStatError | None = None
        self.peer = ""
        """Name of the peer, set by the owner in `opening`."""
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Future that is done when the connection is closed."""
        self._owner = owner
        self._parameters = parameters
        self._settings = parameters.settings
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        self._tls = TlsEngine(parameters.context, is_server=parameters.is_server)
        self._reader = FrameReader(HELLO_BYTES_MAX)
        self._unauthenticated_bytes = 0
        self._unread_bodies: Iterator[bytes] | None = None
        """Frame bodies that were received but not handled yet; None if there are none."""
        self._is_paused = False
        self._schema_version = parameters.hello.schema_version
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = 0
        self._is_flush_due = False
        self._has_received = True
        self._silent_intervals = 0
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    @property
    def is_server(self) -> bool:
        return self._parameters.is_server

    @property
    def was_open(self) -> bool:
        return bool(self.peer)

    @property
    def is_open(self) -> bool:
        return self.state is SessionState.OPEN

    @property
    def is_silent(self) -> bool:
        """True if a ping has been unanswered for a whole interval."""
        return self._silent_intervals > 1 and not self._has_received

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
        """Send Bye with the reason after all earlier messages, and end the session."""
        self._end(error, cause="closed", sends_bye=True)

    def abort(self, error: GridStatError | None = None) -> None:
        """End at once, without Bye."""
        self._end(error, cause="aborted", sends_bye=False)
        if self._transport is not None:
            self._transport.abort()

    def give_way(self) -> None:
        """End at once, since another connection takes the place of this unopened one."""
        error = LinkDown(f"{self._peer_text()} has given way to a newer connection")
        self._end(error, cause="gave_way", sends_bye=False)
        if self._transport is not None:
            self._transport.abort()

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self.state is not SessionState.CONNECTING:  # Ended before the connection was ready.
            self._transport.abort()
            return
        self._timer = self._loop.call_later(self._settings.hello_within_s, self._hello_timed_out)
        self._tls.begin()
        self._write_encrypted()

    def data_received(self, data: bytes) -> None:
        if self.state is SessionState.CLOSING or self.state is SessionState.CLOSED:
            return
        self._has_received = True
        self._counters.bytes_in += len(data)
        if self.state is SessionState.CONNECTING and self._is_talking_too_much(len(data)):
            return
        try:
            plain = self._tls.receive(data)
        except ssl.SSLError as error:
            cause, refusal = explain_failure(error, peer=self._peer_text())
            self._end(refusal, cause=cause, sends_bye=False)
            return
        self._write_encrypted()
        self._unread_bodies = self._reader.feed(plain)
        self._process_received()

    def eof_received(self) -> bool:
        self._end(
            LinkDown(f"{self._peer_text()} has closed the connection"),
            cause="gone",
            sends_bye=False,
        )
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        text = f"the connection with {self._peer_text()} is lost"
        self._end(LinkDown(f"{text}: {exc}" if exc else text), cause="lost", sends_bye=False)
        self.state = SessionState.CLOSED
        self._stop_timer()
        if not self.finished.done():
            self.finished.set_result(None)

    # Opening.

    def _is_talking_too_much(self, received_bytes: int) -> bool:
        """Count the bytes of a peer without a checked certificate; abort beyond the bound."""
        self._unauthenticated_bytes += received_bytes
        if not self.is_server or self._unauthenticated_bytes <= UNAUTHENTICATED_BYTES_MAX:
            return False
        text = (
            f"{self._peer_text()} sent more than {UNAUTHENTICATED_BYTES_MAX:,} bytes before its "
            "certificate"
        )
        self._end(LinkDown(text), cause="too_many_bytes", sends_bye=False)
        assert self._transport is not None
        self._transport.abort()
        return True

    def _identify(self) -> None:
        """Check the certificate of the peer after the handshake; a client then sends its Hello."""
        identity = self._tls.peer_identity()
        self._parameters.authorization.check(identity)
        self.identity = identity
        self.state = SessionState.GREETING
        if not self.is_server:
            self._put(self._parameters.hello)

    def _greet(self, message: Message | None) -> None:
        match message:
            case Bye(code=code, reason=reason, hint=hint):
                text = reason or f"{self._peer_text()} sent Bye instead of Hello"
                self._end(error_from(code, text, hint=hint), cause="told_bye", sends_bye=False)
                return
            case Hello():
                self._check_hello(message)
            case _:
                raise MalformedFrame("the first message must be Hello")
        self.hello = message
        self._owner.opening(self)  # May refuse: then the client receives Bye instead of Hello.
        if self.is_server:
            self._put(self._parameters.hello)
        self.state = SessionState.OPEN
        # From here on the peer is trusted with large frames.
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
        ours = self._parameters.hello
        agreed = min(ours.schema_version, hello.schema_version)
        if agreed < max(ours.schema_version_min, hello.schema_version_min):
            raise NoCommonSchema(
                f"{self.identity} speaks schema {hello.schema_version_min} to "
                f"{hello.schema_version}, we {ours.schema_version_min} to {ours.schema_version}"
            )
        self._schema_version = agreed

    # Receiving and sending.

    def _process_received(self) -> None:
        """Handle a few received messages; continue in the next iteration if there are more.

        Reading is paused meanwhile, so that the received bytes stay bounded.
        """
        if self.state is SessionState.CLOSING or self.state is SessionState.CLOSED:
            self._pause(is_paused=False)
            return
        self._has_received = True
        try:
            if self.state is SessionState.CONNECTING and self._tls.is_established:
                self._identify()
            self._read()
        except Malformed as error:
            self._end(error, cause=f"malformed_{error.reason}", sends_bye=True)
        except GridStatError as error:
            self._end(error, cause=type(error).__name__, sends_bye=True)
        has_more = self._unread_bodies is not None and self.state is SessionState.OPEN
        self._pause(is_paused=has_more)
        if has_more:
            self._loop.call_soon(self._process_received)
        elif self._tls.is_finished:
            self._end(
                LinkDown(f"{self._peer_text()} has closed the connection"),
                cause="gone",
                sends_bye=False,
            )

    def _pause(self, *, is_paused: bool) -> None:
        if is_paused is self._is_paused or self._transport is None or self._transport.is_closing():
            return
        self._is_paused = is_paused
        if is_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _read(self) -> None:
        """Handle up to `FRAMES_PER_CALL` bodies; `_unread_bodies` is None when none are left."""
        assert self._unread_bodies is not None
        for count, body in enumerate(self._unread_bodies, 1):
            self._counters.frames_in += 1
            message = decode_message(body)
            if self.state is SessionState.OPEN:
                self._take(message)
            elif self.state is SessionState.GREETING:
                self._greet(message)
            else:
                break
            if count == FRAMES_PER_CALL:
                return
        self._unread_bodies = None

    def _take(self, message: Message | None) -> None:
        match message:
            case None:
                self._counters.unknown_messages += 1
            case Ping(number=number):
                self._put(Pong(number=number))
            case Pong():
                pass
            case Bye(code=code, reason=reason, hint=hint):
                error = error_from(code, reason or "the peer sent Bye", hint=hint) if code else None
                self._end(error, cause="told_bye", sends_bye=False)
            case Hello():
                raise MalformedFrame("a second Hello")
            case _:
                self._owner.received(self, message)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(self._settings.ping_interval_s, self._tick)
        if self._has_received:  # Any input counts as a sign of life, not only Pong.
            self._has_received = False
            self._silent_intervals = 0
            return
        self._silent_intervals += 1
        if self._silent_intervals >= self._settings.silent_intervals_max:
            self._end(DeadlinePassed(f"{self.identity} is silent"), cause="silent", sends_bye=True)
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
        # A long answer is flushed early, so that a slow reader is noticed before memory fills up.
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
            cause, reason = explain_failure(error, peer=self._peer_text())
            self._end(reason, cause=cause, sends_bye=False)
            return
        self._write_encrypted()
        held_bytes = self._transport.get_write_buffer_size()
        if held_bytes > self._settings.write_bytes_max:
            text = f"{self.identity} reads too slowly: {held_bytes:,} bytes wait"
            self._end(LinkDown(text), cause="slow", sends_bye=False)
            self._transport.abort()

    def _write_encrypted(self) -> None:
        assert self._transport is not None
        if written := self._tls.take():
            self._counters.bytes_out += len(written)
            self._transport.write(written)

    # Ending.

    def _hello_timed_out(self) -> None:
        text = f"{self._peer_text()} sent no Hello in time"
        self._end(DeadlinePassed(text), cause="hello_deadline", sends_bye=True)

    def _end(self, error: GridStatError | None, *, cause: str, sends_bye: bool) -> None:
        """End the session once: count the cause, send Bye if possible, inform the owner, linger."""
        if self.state in {SessionState.CLOSING, SessionState.CLOSED}:
            return
        was_open = self.state is SessionState.OPEN
        (self._counters.ended if was_open else self._counters.refused)[cause] += 1
        self._counters.sessions -= was_open
        self.error = error
        self.state = SessionState.CLOSING
        self._stop_timer()
        try:
            if sends_bye and self._tls.is_established:
                self._put(_bye(error))
            self._flush()
            self._shut_down()
        finally:
            self._owner.closed(self)

    def _shut_down(self) -> None:
        """Close our direction and read on until the peer closes its own.

        A socket closed with unread bytes would reset the connection, and the peer would lose the
        Bye.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._tls.is_established:
            self._tls.finish()
        self._write_encrypted()
        try:
            transport.write_eof()
        except OSError:  # The peer has reset the connection: there is nothing to wait for.
            transport.abort()
        else:
            self._timer = self._loop.call_later(self._settings.linger_s, transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _peer_text(self) -> str:
        return str(self.identity) if self.identity else self.address


def _bye(error: GridStatError | None) -> Bye:
    if error is None:
        return Bye()
    return Bye(code=error.code, reason=str(error.args[0]), hint=error.hint)
