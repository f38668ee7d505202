"""A session over a wire in memory: its states, its batches, and how it meets a bad wire."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from gridstat.model.errors import DeadlinePassed, GridStatError, LinkDown, NotAuthorised
from gridstat.net.command.certificate_folder import CertificateFolder
from gridstat.net.command.identity import Identity, Role
from gridstat.net.command.messages import (
    BackPressureChanged,
    Hello,
    OperatorAnswer,
    TableChanged,
)
from gridstat.net.command.peer_authorization import ClientAuthorization, ServerAuthorization
from gridstat.net.command.session import FRAMES_PER_CALL, Session, SessionParameters, SessionState
from gridstat.net.command.session_settings import SessionCounters, SessionSettings
from gridstat.net.command.tls import Credentials
from tests.unit.net.command.memory_wire import join

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gridstat.net.command.messages import Message
    from gridstat.net.command.peer_authorization import PeerAuthorization
    from tests.unit.net.command.memory_wire import MemoryTransport

BROKER = Identity(Role.BROKER, "c1")
ROUTER = Identity(Role.ROUTER, "c1/e0")
TURNS_MAX = 200


class RecordingOwner:
    """Owner that records a session's calls; refuses with `refusal` if it has one."""

    def __init__(self, refusal: GridStatError | None = None) -> None:
        self.refusal = refusal
        self.opened_count = 0
        self.closed_count = 0
        self.messages: list[Message] = []

    def opening(self, session: Session) -> None:
        if self.refusal:
            raise self.refusal
        session.peer = str(session.identity)

    def opened(self, session: Session) -> None:
        self.opened_count += 1

    def received(self, session: Session, message: Message) -> None:
        self.messages.append(message)

    def closed(self, session: Session) -> None:
        self.closed_count += 1


class Pair:
    """A router's and a broker's session, joined; made inside a running loop."""

    def __init__(
        self,
        credentials: dict[Identity, Credentials],
        *,
        settings: SessionSettings | None = None,
        refusal: GridStatError | None = None,
        schema_version: int = 2,
    ) -> None:
        self._credentials = credentials
        self._settings = settings or SessionSettings()
        self.counters = SessionCounters()
        self.router, self.broker = RecordingOwner(), RecordingOwner(refusal)
        gate = ServerAuthorization(BROKER, frozenset({Role.ROUTER}))
        self.client = self._session(
            self.router, ROUTER, ClientAuthorization(BROKER), schema_version
        )
        self.server = self._session(self.broker, BROKER, gate, 2)
        self.client_end: MemoryTransport
        self.client_end, self.server_end = join(self.client, self.server)

    def _session(
        self,
        owner: RecordingOwner,
        identity: Identity,
        gate: PeerAuthorization,
        schema_version: int,
    ) -> Session:
        hello = Hello(
            role=identity.role.value,
            name=identity.name,
            instance="a",
            schema_version=schema_version,
        )
        is_server = identity is BROKER
        context = self._credentials[identity].context(is_server=is_server)
        terms = SessionParameters(is_server, gate, context, hello, self._settings)
        return Session(owner, terms, self.counters)

    async def opened(self) -> Pair:
        await turn_until(lambda: self.client.is_open and self.server.is_open)
        return self


async def turn_until(condition: Callable[[], bool]) -> None:
    """Let the loop turn, without waiting for time, until the state is reached."""
    for _ in range(TURNS_MAX):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("the state was not reached")


def is_silent(session: Session) -> bool:
    """Read anew each time; a type checker takes a property to stay as it was."""
    return session.is_silent


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> dict[Identity, Credentials]:
    folder = CertificateFolder(tmp_path_factory.mktemp("certificates"))
    folder.create_authority()
    return {identity: Credentials(folder.issue(identity)) for identity in (BROKER, ROUTER)}


def run(scene: Awaitable[None]) -> None:
    async def whole() -> None:
        await scene

    asyncio.run(whole())


def test_both_sides_know_each_other_once_open(credentials: dict[Identity, Credentials]) -> None:
    async def scene() -> None:
        pair = await Pair(credentials).opened()
        assert pair.client.identity == BROKER
        assert pair.server.identity == ROUTER
        assert pair.broker.opened_count == pair.router.opened_count == 1
        assert pair.counters.sessions == 2
        pair.client.abort()

    run(scene())


def test_messages_of_one_unit_of_work_leave_in_one_write(
    credentials: dict[Identity, Credentials],
) -> None:
    async def scene() -> None:
        pair = await Pair(credentials).opened()
        pair.client_end.held = []
        for number in range(100):
            pair.client.send(TableChanged(number=number, digest=0))
        await asyncio.sleep(0)
        assert len(pair.client_end.held) == 1
        pair.client.abort()

    run(scene())


def test_the_last_messages_before_a_bye_arrive(credentials: dict[Identity, Credentials]) -> None:
    async def scene() -> None:
        pair = await Pair(credentials).opened()
        pair.client.send(TableChanged(number=1, digest=0))
        pair.client.close(NotAuthorised("enough"))
        assert pair.client.state is SessionState.CLOSING
        await turn_until(lambda: pair.client.finished.done() and pair.server.finished.done())
        assert pair.broker.messages == [TableChanged(number=1, digest=0)]
        assert isinstance(pair.server.error, NotAuthorised)
        assert pair.router.closed_count == pair.broker.closed_count == 1
        assert pair.counters.sessions == 0

    run(scene())


def test_nothing_is_sent_after_the_end(credentials: dict[Identity, Credentials]) -> None:
    async def scene() -> None:
        pair = await Pair(credentials).opened()
        pair.client.close()
        pair.client.send(TableChanged(number=1, digest=0))
        pair.client.close()
        await turn_until(pair.server.finished.done)
        assert pair.broker.messages == []
        assert pair.counters.unsent_messages == 1
        assert pair.router.closed_count == 1

    run(scene())


def test_a_client_that_is_refused_was_never_open(credentials: dict[Identity, Credentials]) -> None:
    async def scene() -> None:
        pair = Pair(credentials, refusal=NotAuthorised("not today"))
        await turn_until(pair.client.finished.done)
        assert pair.router.opened_count == pair.broker.opened_count == 0
        assert isinstance(pair.client.error, NotAuthorised)
        assert pair.client.error.args == ("not today",)
        assert pair.counters.refused == {"NotAuthorised": 1, "told_bye": 1}

    run(scene())


def test_an_older_peer_is_spared_newer_messages(credentials: dict[Identity, Credentials]) -> None:
    async def scene() -> None:
        pair = await Pair(credentials, schema_version=1).opened()
        for session in (pair.client, pair.server):
            session.send(BackPressureChanged(channel_id=1, is_on=True))
        assert pair.counters.too_new_messages == 2
        pair.client.abort()

    run(scene())


@pytest.mark.parametrize("moment", ["handshake", "open"])
def test_a_wire_that_changes_a_bit_ends_the_session(
    credentials: dict[Identity, Credentials], moment: str
) -> None:
    def flipped(sent: bytes) -> bytes:
        return sent[:-1] + bytes([sent[-1] ^ 1])

    async def scene() -> None:
        pair = Pair(credentials)
        if moment == "open":
            await pair.opened()
            pair.server.send(TableChanged(number=2, digest=0))
        pair.client_end.change = flipped
        pair.client.send(TableChanged(number=1, digest=0))
        await turn_until(lambda: pair.client.finished.done() and pair.server.finished.done())
        assert pair.broker.messages == []
        assert isinstance(pair.server.error, LinkDown)
        assert pair.broker.closed_count == pair.router.closed_count == 1

    run(scene())


def test_words_still_in_hand_do_not_disturb_the_end_of_a_broken_session(
    credentials: dict[Identity, Credentials],
) -> None:
    async def scene() -> None:
        pair = await Pair(credentials).opened()
        pair.server.send(TableChanged(number=2, digest=0))
        pair.server.data_received(b"\x17\x03\x03\x00\x20" + bytes(32))
        await turn_until(pair.server.finished.done)
        assert pair.broker.closed_count == 1

    run(scene())


def test_a_peer_that_takes_nothing_is_cut_off(credentials: dict[Identity, Credentials]) -> None:
    async def scene() -> None:
        settings = SessionSettings(write_bytes_max=100_000)
        pair = await Pair(credentials, settings=settings).opened()
        pair.server_end.held = []
        for _ in range(3):
            pair.server.send(OperatorAnswer(request_id=1, facts={"x": "y" * 40_000}))
        await turn_until(pair.server.finished.done)
        assert pair.counters.ended["slow"] == 1
        assert pair.broker.closed_count == 1
        pair.client.abort()

    run(scene())


def test_a_large_burst_to_a_peer_that_reads_is_no_reason_to_cut(
    credentials: dict[Identity, Credentials],
) -> None:
    async def scene() -> None:
        settings = SessionSettings(write_bytes_max=100_000)
        pair = await Pair(credentials, settings=settings).opened()
        for _ in range(10):
            pair.server.send(OperatorAnswer(request_id=1, facts={"x": "y" * 40_000}))
        await turn_until(lambda: len(pair.router.messages) == 10)
        assert pair.server.is_open
        pair.client.abort()

    run(scene())


def test_silence_is_counted_in_intervals(credentials: dict[Identity, Credentials]) -> None:
    async def scene() -> None:
        pair = await Pair(credentials).opened()
        pair.client_end.held = []
        pair.server._tick()
        assert not is_silent(pair.server)
        pair.server._tick()
        pair.server._tick()
        assert is_silent(pair.server)
        assert pair.server.is_open
        pair.server._tick()
        assert isinstance(pair.server.error, DeadlinePassed)
        assert pair.counters.ended["silent"] == 1
        pair.client.abort()
        pair.server.abort()

    run(scene())


def test_an_answer_ends_the_silence(credentials: dict[Identity, Credentials]) -> None:
    async def scene() -> None:
        pair = await Pair(credentials).opened()
        for _ in range(3):
            pair.server._tick()
        assert is_silent(pair.server)
        heard = pair.counters.frames_in + 4
        await turn_until(lambda: pair.counters.frames_in == heard)
        assert not is_silent(pair.server)
        pair.client.abort()

    run(scene())


def test_an_idle_peer_that_has_just_been_pinged_is_not_silent(
    credentials: dict[Identity, Credentials],
) -> None:
    async def scene() -> None:
        pair = await Pair(credentials).opened()
        pair.server._tick()
        pair.server._tick()
        assert pair.counters.pings == 1
        assert not is_silent(pair.server)
        pair.client.abort()

    run(scene())


def test_who_does_not_introduce_itself_is_sent_away(
    credentials: dict[Identity, Credentials],
) -> None:
    async def scene() -> None:
        pair = Pair(credentials)
        pair.client_end.held = []
        pair.server._hello_timed_out()
        await turn_until(pair.client.finished.done)
        assert pair.counters.refused["hello_deadline"] == 1
        assert pair.broker.opened_count == 0
        pair.server.abort()

    run(scene())


def test_before_the_hello_there_is_no_room_for_a_large_frame(
    credentials: dict[Identity, Credentials],
) -> None:
    async def scene() -> None:
        pair = Pair(credentials)
        pair.client._parameters = SessionParameters(
            is_server=False,
            authorization=ClientAuthorization(BROKER),
            context=credentials[ROUTER].context(is_server=False),
            hello=Hello(role="router", name="c1/e0", instance="a", software="x" * 20_000),
            settings=SessionSettings(),
        )
        await turn_until(pair.client.finished.done)
        assert pair.counters.refused["malformed_frame_length"] == 1
        assert pair.broker.opened_count == 0

    run(scene())


def test_many_messages_at_once_are_read_in_batches_and_in_order(
    credentials: dict[Identity, Credentials],
) -> None:
    async def scene() -> None:
        pair = await Pair(credentials).opened()
        for number in range(3 * FRAMES_PER_CALL):
            pair.client.send(TableChanged(number=number, digest=0))
        await turn_until(lambda: bool(pair.broker.messages))
        assert len(pair.broker.messages) == FRAMES_PER_CALL
        pair.client.send(TableChanged(number=3 * FRAMES_PER_CALL, digest=0))
        await turn_until(lambda: len(pair.broker.messages) > 3 * FRAMES_PER_CALL)
        numbers = [each.number for each in pair.broker.messages if isinstance(each, TableChanged)]
        assert numbers == list(range(3 * FRAMES_PER_CALL + 1))
        pair.client.abort()

    run(scene())


def test_a_session_closed_between_two_batches_reads_no_more_and_ends(
    credentials: dict[Identity, Credentials],
) -> None:
    async def scene() -> None:
        pair = await Pair(credentials).opened()
        for number in range(3 * FRAMES_PER_CALL):
            pair.client.send(TableChanged(number=number, digest=0))
        await turn_until(lambda: bool(pair.broker.messages))
        pair.server.close()
        await turn_until(lambda: pair.client.finished.done() and pair.server.finished.done())
        assert len(pair.broker.messages) == FRAMES_PER_CALL
        assert pair.broker.closed_count == pair.router.closed_count == 1

    run(scene())
