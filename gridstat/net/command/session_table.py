"""All sessions of one process by their peers: it dials, it serves, and keeps one session each.

A process that reconnects replaces its own older session. Another process with the same identity is
refused while the first one still speaks. Operators alone may have many sessions at once. Before a
peer is known, `connection_admission.py` bounds what its connection may cost; afterwards each role
has its places, so that end-points cannot occupy those of routers, brokers and operators.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol
from uuid import uuid4

from gridstat.model.errors import EndPointExists, LinkDown, QuotaReached
from gridstat.net.command.connection_admission import (
    AdmissionLimits,
    ConnectionAdmission,
    SessionPlaces,
)
from gridstat.net.command.dialer import BackOff, Dialer
from gridstat.net.command.identity import Role
from gridstat.net.command.listener import Listener
from gridstat.net.command.messages import Hello
from gridstat.net.command.peer_authorization import ClientAuthorization, ServerAuthorization
from gridstat.net.command.session import Session, SessionParameters
from gridstat.net.command.session_settings import SESSIONS_MAX, SessionCounters, SessionSettings
from gridstat.net.freed_memory import return_freed_memory

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gridstat.model.errors import GridStatError
    from gridstat.net.command.address import Address
    from gridstat.net.command.dialer import Target
    from gridstat.net.command.identity import Identity
    from gridstat.net.command.messages import Message
    from gridstat.net.command.peer_authorization import PeerAuthorization
    from gridstat.net.command.tls import Credentials

log = logging.getLogger(__name__)

CALM_AFTER_S: Final = 10.0
"""After a crowd of pending connections memory is returned once they are few, looked at so often."""

REFUSAL_LOG_INTERVAL_S: Final = 1.0
"""Refusals are all counted, but logged at most once in this time."""

ROLES_WITH_MANY_SESSIONS: Final = frozenset({Role.OPERATOR})
"""Roles of which one party may have several sessions: an operator may use several windows."""


class SessionListener(Protocol):
    """Receives for each peer `connected`, then any number of `received`, then `disconnected`."""

    def connected(self, peer: str, hello: Hello) -> None: ...

    def received(self, peer: str, message: Message) -> None: ...

    def disconnected(self, peer: str) -> None: ...


@dataclass(frozen=True, slots=True)
class TableSettings:
    """Contents of our Hello, and the bounds of the table."""

    session: SessionSettings = field(default_factory=SessionSettings)
    sessions_max: int = SESSIONS_MAX
    admission: AdmissionLimits = field(default_factory=AdmissionLimits)
    instance: str = field(default_factory=lambda: uuid4().hex)
    software: str = ""
    random: random.Random = field(default_factory=random.Random)


class SessionTable:
    """Holds at most one open session per peer name; `close` ends every session."""

    def __init__(
        self, listener: SessionListener, credentials: Credentials, settings: TableSettings
    ) -> None:
        self.counters = SessionCounters()
        self._listener = listener
        self._credentials = credentials
        self._settings = settings
        self._open: dict[str, Session] = {}
        self._all: set[Session] = set()
        self._dialling: dict[str, tuple[Dialer, asyncio.Task[None]]] = {}
        self._admission = ConnectionAdmission(settings.admission)
        self._pending: dict[int, Session] = {}
        """Accepted connections that are not open yet, by their tickets."""
        self._listeners: list[Listener] = []
        self._served: frozenset[Role] = frozenset()
        self._accepted: Counter[Role] = Counter()
        """Open sessions that were accepted, by role; those that we dialled need no place."""
        self._next_refusal_s = 0.0
        self._complaint = ""
        self._calm: asyncio.TimerHandle | None = None
        """Timer that looks whether a crowd of pending connections has gone."""

    @property
    def peers(self) -> list[str]:
        return sorted(self._open)

    async def serve(
        self, host: str, port: int, allowed_roles: Iterable[Role], *, children: Collection[str] = ()
    ) -> Address:
        """Listen, and return the bound address; port 0 lets the system choose."""
        authorization = ServerAuthorization(
            self._credentials.identity, frozenset(allowed_roles), children
        )
        listener = Listener(_Acceptor(self, authorization), self._admission, self.counters)
        try:
            address = await listener.open(host, port)
        except OSError as error:
            raise LinkDown(
                f"cannot listen on {host}, port {port}: {error.strerror or error}",
                hint="choose a free port and an address of this machine",
            ) from error
        self._listeners.append(listener)
        self._served |= authorization.allowed_roles
        return address

    def connect_to(self, target: Target) -> None:
        """Keep a session with the target from now on; new addresses replace the old ones."""
        peer = target.identity.peer
        if dialling := self._dialling.get(peer):
            dialling[0].retarget(target)
            return
        authorization = ClientAuthorization(target.identity)
        dialler = Dialer(
            target,
            lambda address: self._dial(address, authorization),
            BackOff(self._settings.random),
            connect_within_s=self._settings.session.hello_within_s,
        )
        task = asyncio.get_running_loop().create_task(dialler.run())
        self._dialling[peer] = (dialler, task)

    def forget(self, identity: Identity) -> None:
        """Stop dialling a peer, and end its session."""
        self._stop_dialling(identity.peer)
        self.end(identity.peer)

    def send(self, peer: str, message: Message) -> None:
        session = self._open.get(peer)
        if session is None:
            self.counters.unsent_messages += 1
        else:
            session.send(message)

    def end(self, peer: str, error: GridStatError | None = None) -> None:
        """Close a peer's session, if there is one."""
        if session := self._open.get(peer):
            session.close(error)

    async def close(self) -> None:
        """Stop listening and dialling, send Bye to all peers, and wait for all sessions to end."""
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener.close()
        if self._calm is not None:
            self._calm.cancel()
        tasks = [task for _, task in self._dialling.values()]
        for peer in list(self._dialling):
            self._stop_dialling(peer)
        await asyncio.gather(*tasks, return_exceptions=True)
        for listener in listeners:
            await listener.wait_begun()
        for session in list(self._all):
            if session.is_open:
                session.close()
            else:
                session.abort()
        if self._all:
            await asyncio.wait([session.finished for session in self._all])

    # Callbacks of sessions.

    def opening(self, session: Session) -> None:
        identity, hello = session.identity, session.hello
        assert identity is not None
        assert hello is not None
        peer = identity.peer
        older = self._open.get(peer)
        if older is not None and identity.role in ROLES_WITH_MANY_SESSIONS:
            numbers = range(2, len(self._open) + 3)
            peer = next(name for n in numbers if (name := f"{peer}#{n}") not in self._open)
        elif older is not None:
            assert older.hello is not None
            if older.hello.instance != hello.instance and not older.is_silent:
                raise EndPointExists(f"another process is connected as {identity}")
            # The same process reconnected, or the old one is silent: the new session replaces it.
            older.close()
        if session.is_server:
            self._check_place(identity)
        session.peer = peer

    def opened(self, session: Session) -> None:
        assert session.hello is not None
        self._open[session.peer] = session
        if session.is_server:
            assert session.identity is not None
            self._accepted[session.identity.role] += 1
            self._release_pending(session)
        self._listener.connected(session.peer, session.hello)

    def received(self, session: Session, message: Message) -> None:
        self._listener.received(session.peer, message)

    def closed(self, session: Session) -> None:
        if self._open.get(session.peer) is session:
            del self._open[session.peer]
            if session.is_server:
                assert session.identity is not None
                self._accepted[session.identity.role] -= 1
            self._listener.disconnected(session.peer)
        elif session.is_server and session.error is not None:
            self._log_refusal(session, session.error)

    def _log_refusal(self, session: Session, error: GridStatError) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._next_refusal_s:
            self._next_refusal_s = now_s + REFUSAL_LOG_INTERVAL_S
            log.warning("session_refused from=%s reason=%r", session.address, error.args[0])

    def _check_place(self, identity: Identity) -> None:
        places = SessionPlaces(self._settings.sessions_max, self._served)
        if not places.has_place(identity.role, self._accepted):
            role = identity.role.value
            raise QuotaReached(
                f"{self._credentials.identity} has no place for another session of role {role}: "
                f"it may have {places.places(identity.role):,} of them, and "
                f"{places.sessions_max:,} in all",
                hint="wait until another session ends, or connect to another server",
            )

    # Creating sessions.

    def refusal(self) -> str:
        """Return the cause for which no connection is accepted, or an empty text."""
        is_full = self._accepted.total() >= self._settings.sessions_max
        return "too_many_sessions" if is_full else ""

    def accept(self, ticket: int, authorization: ServerAuthorization) -> Session:
        """Make the session of an admitted connection."""
        session = self._session(authorization, is_server=True)
        self._pending[ticket] = session
        self.counters.pending += 1
        self._keep(session)
        session.finished.add_done_callback(lambda _: self._release_pending(session))
        if self._is_crowded and self._calm is None:
            self._look_again()
        return session

    def give_way(self, ticket: int) -> None:
        """End a pending session, whose place is taken."""
        session = self._pending.pop(ticket)
        self.counters.pending -= 1
        session.give_way()

    @property
    def _is_crowded(self) -> bool:
        return 2 * len(self._pending) >= self._settings.admission.pending_max

    def _look_again(self) -> None:
        loop = asyncio.get_running_loop()
        self._calm = loop.call_later(CALM_AFTER_S, self._return_memory)

    def _return_memory(self) -> None:
        """Return the memory of a crowd of pending connections, if the crowd has gone."""
        self._calm = None
        if self._is_crowded:
            self._look_again()
        else:
            return_freed_memory()

    def _release_pending(self, session: Session) -> None:
        ticket = next((at for at, held in self._pending.items() if held is session), None)
        if ticket is not None:
            del self._pending[ticket]
            self.counters.pending -= 1
            self._admission.leave(ticket)

    async def _dial(self, address: Address, authorization: ClientAuthorization) -> Session:
        session = self._session(authorization, is_server=False)
        await asyncio.get_running_loop().create_connection(lambda: session, *address)
        self._keep(session)
        return session

    def _session(self, authorization: PeerAuthorization, *, is_server: bool) -> Session:
        self._refresh()
        identity = self._credentials.identity
        hello = Hello(
            role=identity.role.value,
            name=identity.name,
            instance=self._settings.instance,
            software=self._settings.software,
        )
        context = self._credentials.context(is_server=is_server)
        parameters = SessionParameters(
            is_server, authorization, context, hello, self._settings.session
        )
        return Session(self, parameters, self.counters)

    def _refresh(self) -> None:
        complaint = self._credentials.refresh()
        if complaint and complaint != self._complaint:
            log.error("own_certificate_unfit reason=%r", complaint)
        self._complaint = complaint

    def _keep(self, session: Session) -> None:
        self._all.add(session)
        session.finished.add_done_callback(lambda _: self._all.discard(session))

    def _stop_dialling(self, peer: str) -> None:
        if dialling := self._dialling.pop(peer, None):
            dialler, task = dialling
            dialler.stop(task)


@dataclass(frozen=True, slots=True)
class _Acceptor:
    """Owner of one listener's connections: sessions of a table under one rule for peers."""

    table: SessionTable
    authorization: ServerAuthorization

    def refusal(self) -> str:
        return self.table.refusal()

    def begin(self, ticket: int) -> asyncio.Protocol:
        return self.table.accept(ticket, self.authorization)

    def give_way(self, ticket: int) -> None:
        self.table.give_way(ticket)
