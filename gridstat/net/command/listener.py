"""Listening sockets of a daemon: connections are admitted, or closed before they cost anything.

`connection_admission.py` decides; here are the sockets. asyncio's own server accepts without a
bound, and at the limit of descriptors it fails again and again with a traceback each time. This one
stops accepting for `PAUSE_S` and counts the pause.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from gridstat.net.command.connection_admission import Refusal

if TYPE_CHECKING:
    import ssl

    from gridstat.net.command.address import Address
    from gridstat.net.command.connection_admission import ConnectionAdmission

BACKLOG: Final = 4_096
ACCEPTED_PER_CALL: Final = 16
"""Connections accepted in one call of the event loop, so that sessions are served in between."""
PAUSE_S: Final = 0.1
LOG_INTERVAL_S: Final = 1.0
"""Refusals and pauses are all counted, but logged at most once in this time."""
HANDSHAKE_WITHIN_S: Final = 5.0
EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors of accept() that return at once until something else is closed."""

log = logging.getLogger(__name__)


class ConnectionOwner(Protocol):
    """Owner of the accepted connections; it calls `ConnectionAdmission.leave` for each ticket."""

    def refusal(self) -> str:
        """Return the cause for which no connection at all is taken now, or an empty text."""
        ...

    def begin(self, ticket: int) -> asyncio.Protocol:
        """Return the protocol of an admitted connection."""
        ...

    def give_way(self, ticket: int) -> None:
        """Count and close a pending connection, which has left the admission already."""
        ...


@dataclass(slots=True)
class ConnectionCounters:
    """Counters of a listener whose connections are no sessions; all but `pending` only grow."""

    pending: int = 0
    accept_pauses: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    def as_facts(self) -> dict[str, int]:
        refused = {f"refused.{cause}": count for cause, count in sorted(self.refused.items())}
        return {"pending": self.pending, "accept_pauses": self.accept_pauses, **refused}


class ListenerCounters(Protocol):
    """Counters that a listener writes."""

    refused: Counter[str]
    accept_pauses: int


class Listener:
    """Accepts connections from `open` to `close`; the accepted ones belong to the owner."""

    def __init__(
        self,
        owner: ConnectionOwner,
        admission: ConnectionAdmission,
        counters: ListenerCounters,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._owner = owner
        self._admission = admission
        self._counters = counters
        self._tls = tls
        self._sockets: list[socket.socket] = []
        self._beginning: set[asyncio.Task[None]] = set()
        self._handshaking: dict[int, socket.socket] = {}
        """Connections that asyncio has not given to their protocols yet, by ticket."""
        self._pause: asyncio.TimerHandle | None = None
        self._next_log_s = 0.0
        self._unlogged = 0

    async def open(self, host: str, port: int) -> Address:
        """Listen, and return the bound address; raises `OSError`."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, kind, protocol, _, address in dict.fromkeys(found):
                self._sockets.append(_listening(family, kind, protocol, address))
        except OSError:
            self.close()
            raise
        self._resume()
        bound = self._sockets[0].getsockname()
        return bound[0], bound[1]

    def use(self, tls: ssl.SSLContext) -> None:
        """Accept with other certificates or authorities from now on."""
        self._tls = tls

    def close(self) -> None:
        """Stop accepting."""
        self._suspend()
        for listening in self._sockets:
            listening.close()
        self._sockets.clear()

    async def wait_begun(self) -> None:
        """Wait until each accepted connection has reached its protocol."""
        while self._beginning:
            await asyncio.wait(self._beginning)

    def _resume(self) -> None:
        self._pause = None
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            loop.add_reader(listening, self._accept_some, listening)

    def _suspend(self) -> None:
        loop = asyncio.get_running_loop()
        for listening in self._sockets:
            loop.remove_reader(listening)
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None

    def _accept_some(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_PER_CALL):
            try:
                connection, address = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in EXHAUSTED:
                    self._pause_accepting(error)
                    return
                continue  # The connection has failed already; see accept(2).
            self._admit(connection, address[0])

    def _admit(self, connection: socket.socket, host: str) -> None:
        cause = self._owner.refusal()
        answer = None if cause else self._admission.arrive(host, time.monotonic_ns())
        if answer is None or isinstance(answer, Refusal):
            connection.close()
            cause = cause if answer is None else answer.value
            self._counters.refused[cause] += 1
            self._log("connection_refused from=%s reason=%s", host, cause)
            return
        if answer.replaces is not None:
            self._owner.give_way(answer.replaces)
            if handshaking := self._handshaking.get(answer.replaces):
                with suppress(OSError):  # The peer may have reset the connection.
                    handshaking.shutdown(socket.SHUT_RDWR)
        connection.setblocking(False)  # noqa: FBT003
        protocol = self._owner.begin(answer.ticket)
        beginning = self._begin(answer.ticket, connection, protocol)
        task = asyncio.get_running_loop().create_task(beginning)
        self._handshaking[answer.ticket] = connection
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    async def _begin(
        self, ticket: int, connection: socket.socket, protocol: asyncio.Protocol
    ) -> None:
        within_s = HANDSHAKE_WITHIN_S if self._tls is not None else None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol, connection, ssl=self._tls, ssl_handshake_timeout=within_s
            )
        except (OSError, TimeoutError) as error:
            connection.close()
            protocol.connection_lost(error)
        finally:
            del self._handshaking[ticket]

    def _pause_accepting(self, error: OSError) -> None:
        self._suspend()
        self._counters.accept_pauses += 1
        self._pause = asyncio.get_running_loop().call_later(PAUSE_S, self._resume)
        self._log(
            "accepting_paused reason=%r hint=%r",
            str(error.strerror),
            "raise the limit of open files (ulimit -n, LimitNOFILE=)",
        )

    def _log(self, text: str, *facts: object) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s < self._next_log_s:
            self._unlogged += 1
            return
        self._next_log_s = now_s + LOG_INTERVAL_S
        log.warning(f"{text} unlogged=%d", *facts, self._unlogged)
        self._unlogged = 0


def _listening(family: int, kind: int, protocol: int, address: tuple[Any, ...]) -> socket.socket:
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            with suppress(OSError):
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.setblocking(False)  # noqa: FBT003
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening
