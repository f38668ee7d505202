"""Peers that may not be here, or say what they must not: each is refused with code and reason."""

from __future__ import annotations

import asyncio
import ssl
import struct
from typing import TYPE_CHECKING

import msgspec
import pytest

from gridstat.model.errors import (
    CertificateRefused,
    FrameTooLarge,
    MalformedFrame,
    NoCommonSchema,
    NotAuthorised,
    WrongCloud,
)
from gridstat.net.command.frames import FRAME_BYTES_MAX
from gridstat.net.command.identity import Identity, Role
from gridstat.net.command.machine import Connected, Disconnected, Received, Send
from gridstat.net.command.messages import (
    BackPressureChanged,
    Bye,
    Hello,
    OperatorAnswer,
    Ping,
    Pong,
    RouterAccepted,
    TableChanged,
)
from gridstat.net.command.session_settings import SessionSettings
from gridstat.net.command.session_table import TableSettings
from tests.protocol.command_parties import (
    BRISK,
    BROKER,
    END_POINT,
    ROUTER,
    RecordingMachine,
    Registry,
    hello_of,
    party,
    raw_peer,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from pathlib import Path

    from gridstat.net.command.machine import Event, Instruction
    from tests.protocol.command_parties import Party, RawPeer

RAW = "router/c1/raw"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    path: Path = tmp_path_factory.mktemp("certificates")
    return Registry(path)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    return Registry(tmp_path_factory.mktemp("foreign"))


def converse(
    registry: Registry,
    talk: Callable[[Party, RawPeer], Coroutine[None, None, None]],
    *,
    machine: RecordingMachine | None = None,
    session: SessionSettings | None = None,
) -> None:
    """A broker and a raw peer with a router's certificate."""

    async def run() -> None:
        table = TableSettings(session=session or SessionSettings(ping_interval_s=60))
        credentials = registry.credentials(BROKER)
        async with (
            party(credentials, serves=[Role.ROUTER], machine=machine, table=table) as broker,
            raw_peer(broker.address, registry.context(RAW)) as raw,
        ):
            await talk(broker, raw)

    asyncio.run(run())


@pytest.mark.feature("S0-142", "S3-47")
@pytest.mark.parametrize("role", [role for role in Role if role is not Role.ROUTER])
def test_a_role_that_has_no_business_here_is_told_the_rule(registry: Registry, role: Role) -> None:
    async def talk() -> None:
        intruder = registry.credentials(Identity(role, "c1/intruder"))
        async with (
            party(registry.credentials(BROKER), serves=[Role.ROUTER]) as broker,
            party(intruder) as made,
        ):
            made.connect_to(broker)
            await until(lambda: made.failed_with(NotAuthorised))
            assert "allowed roles are router" in str(made.failures[0])
            assert made.failures[0].code == 1015
            assert broker.driver.counters.refused["NotAuthorised"] >= 1
            assert broker.machine.events == made.machine.events == []

    asyncio.run(talk())


def test_a_party_of_another_cloud_is_refused(registry: Registry) -> None:
    async def talk() -> None:
        async with (
            party(registry.credentials(BROKER), serves=[Role.ROUTER]) as broker,
            party(registry.credentials("router/c2/e0")) as stranger,
        ):
            stranger.connect_to(broker)
            await until(lambda: stranger.failed_with(WrongCloud))
            assert broker.machine.events == []

    asyncio.run(talk())


@pytest.mark.feature("S0-142")
def test_a_server_that_is_not_the_one_asked_for_is_refused(registry: Registry) -> None:
    async def talk() -> None:
        async with (
            party(registry.credentials(ROUTER), serves=[Role.ENDPOINT]) as router,
            party(registry.credentials(END_POINT)) as end_point,
        ):
            end_point.connect_to(router, Identity(Role.ROUTER, "c1/e1"))
            await until(lambda: end_point.failed_with(NotAuthorised))
            assert "router/c1/e0, not router/c1/e1" in str(end_point.failures[0])
            await until(lambda: router.driver.counters.refused["told_bye"] >= 1)
            assert end_point.machine.events == router.machine.events == []

    asyncio.run(talk())


@pytest.mark.feature("S0-142")
def test_a_hello_in_another_name_than_the_certificate_is_refused(registry: Registry) -> None:
    async def talk(broker: Party, raw: RawPeer) -> None:
        raw.greet(hello_of("router/c1/e0"))
        bye = await raw.hear()
        assert isinstance(bye, Bye)
        assert bye.code == NotAuthorised.code
        assert "both must name the same party" in bye.reason
        assert await raw.hear() is None
        assert broker.machine.events == []

    converse(registry, talk)


@pytest.mark.feature("S3-47")
@pytest.mark.parametrize(
    ("days_off", "word", "told"),
    [
        (-400, "certificate_expired", "certificate expired"),
        (30, "certificate_not_yet_valid", "bad certificate"),
    ],
)
def test_a_client_whose_certificate_is_out_of_date_learns_so(
    registry: Registry, days_off: int, word: str, told: str
) -> None:
    async def talk() -> None:
        client = registry.credentials("router/c1/dated", days_off=days_off)
        async with (
            party(registry.credentials(BROKER), serves=[Role.ROUTER]) as broker,
            party(client) as made,
        ):
            made.connect_to(broker)
            await until(lambda: made.failed_with(CertificateRefused))
            assert told in str(made.failures[0])
            assert made.failures[0].hint
            await until(lambda: broker.driver.counters.refused[word] >= 1)
            assert broker.machine.events == []

    asyncio.run(talk())


@pytest.mark.feature("S3-47")
def test_a_server_whose_certificate_has_expired_is_not_trusted(registry: Registry) -> None:
    async def talk() -> None:
        server = registry.credentials("broker/c1", days_off=-400)
        async with (
            party(server, serves=[Role.ROUTER]) as broker,
            party(registry.credentials(ROUTER)) as router,
        ):
            router.connect_to(broker)
            await until(lambda: router.failed_with(CertificateRefused))
            assert "certificate has expired" in str(router.failures[0])
            assert "certificates renew" in router.failures[0].hint
            await until(lambda: broker.driver.counters.refused["refused_by_peer"] >= 1)

    asyncio.run(talk())


@pytest.mark.feature("S3-47")
def test_certificates_of_another_authority_are_worth_nothing(
    registry: Registry, foreign: Registry
) -> None:
    async def talk() -> None:
        stranger = foreign.credentials(ROUTER)
        async with (
            party(registry.credentials(BROKER), serves=[Role.ROUTER]) as broker,
            party(stranger) as made,
        ):
            made.connect_to(broker)
            await until(lambda: made.failed_with(CertificateRefused))
            assert "same authority" in made.failures[0].hint
            assert broker.machine.events == []

    asyncio.run(talk())


@pytest.mark.feature("S3-47")
def test_an_end_point_cannot_pose_as_a_server(registry: Registry) -> None:
    async def talk() -> None:
        async with (
            party(registry.credentials(END_POINT), serves=[Role.ROUTER]) as server,
            party(registry.credentials(ROUTER)) as router,
        ):
            router.connect_to(server, BROKER)
            await until(lambda: router.failed_with(CertificateRefused))

    asyncio.run(talk())


@pytest.mark.feature("S3-47")
@pytest.mark.parametrize("lacks", ["a certificate", "TLS 1.3", "TLS", "any word"])
def test_who_cannot_prove_itself_never_gets_as_far_as_a_message(
    registry: Registry, lacks: str
) -> None:
    words = {
        "a certificate": "certificate_missing",
        "TLS 1.3": "tls_version",
        "TLS": "not_tls",
        "any word": "hello_deadline",
    }

    async def talk() -> None:
        table = TableSettings(session=SessionSettings(hello_within_s=0.2, linger_s=0.2))
        async with party(registry.credentials(BROKER), serves=[Role.ROUTER], table=table) as broker:
            context = None
            if lacks == "a certificate":
                context = registry.context(RAW, has_certificate=False)
            elif lacks == "TLS 1.3":
                context = registry.context(RAW)
                context.maximum_version = ssl.TLSVersion.TLSv1_2
            try:
                async with raw_peer(broker.address, context) as raw:
                    if lacks == "TLS":
                        raw.say_bytes(b"GET / HTTP/1.1\r\n\r\n")
                    assert await raw.hear() is None
            except (ssl.SSLError, ConnectionResetError):
                pass  # Python's own client tells an alert, or the end, by an exception.
            await until(lambda: broker.driver.counters.refused[words[lacks]] == 1)
            assert broker.machine.events == []

    asyncio.run(talk())


@pytest.mark.parametrize(
    ("raw_bytes", "kind"),
    [
        (b"\x01\x00\x00\x00\x00\x00\x00\x03abc", MalformedFrame),
        (b"\x07\x00\x00\x00\x00\x00\x00\x03abc", MalformedFrame),
        (struct.pack(">BBHI", 1, 0, 0, FRAME_BYTES_MAX + 1), FrameTooLarge),
    ],
    ids=["no message", "another version", "too large"],
)
def test_a_frame_that_cannot_be_read_ends_the_session_and_says_so(
    registry: Registry, raw_bytes: bytes, kind: type[MalformedFrame | FrameTooLarge]
) -> None:
    async def talk(broker: Party, raw: RawPeer) -> None:
        raw.greet(hello_of(RAW))
        raw.say(TableChanged(number=1, digest=1))
        raw.say_bytes(raw_bytes)
        bye = await raw.hear_of(Bye)
        assert isinstance(bye, Bye)
        assert bye.code == kind.code
        assert bye.hint
        assert await raw.hear() is None
        assert broker.machine.messages(RAW) == [TableChanged(number=1, digest=1)]
        assert broker.machine.count(Disconnected, RAW) == 1
        assert broker.driver.counters.ended[f"malformed_{kind.reason}"] == 1

    converse(registry, talk)


@pytest.mark.parametrize("first", ["a message", "a second hello"])
def test_the_order_of_words_is_kept(registry: Registry, first: str) -> None:
    async def talk(broker: Party, raw: RawPeer) -> None:
        if first == "a message":
            raw.say(TableChanged(number=1, digest=1))
        else:
            raw.greet(hello_of(RAW))
            raw.greet(hello_of(RAW))
        bye = await raw.hear_of(Bye)
        assert isinstance(bye, Bye)
        assert bye.code == MalformedFrame.code
        assert broker.machine.messages(RAW) == []

    converse(registry, talk)


def accepting(event: Event) -> Sequence[Instruction]:
    """A broker of the present schema, which says old and new things."""
    if isinstance(event, Connected):
        return [
            Send(event.peer, BackPressureChanged(channel_id=1, is_on=True)),
            Send(event.peer, RouterAccepted(term=7)),
        ]
    return ()


@pytest.mark.feature("S3-48")
def test_a_router_of_the_schema_before_is_never_sent_a_newer_message(registry: Registry) -> None:
    async def talk(broker: Party, raw: RawPeer) -> None:
        raw.greet(hello_of(RAW, schema_version=1))
        hello = await raw.hear()
        assert isinstance(hello, Hello)
        assert hello.schema_version_min <= 1
        assert await raw.hear() == RouterAccepted(term=7)
        assert broker.driver.counters.too_new_messages == 1
        raw.say(TableChanged(number=1, digest=1))
        await until(lambda: bool(broker.machine.messages(RAW)))

    converse(registry, talk, machine=RecordingMachine(accepting))


@pytest.mark.feature("S3-48")
def test_a_command_that_a_later_schema_adds_is_ignored_and_counted(registry: Registry) -> None:
    async def talk(broker: Party, raw: RawPeer) -> None:
        raw.greet(hello_of(RAW, schema_version=3))
        for fields in (
            {"type": "PaintRouter", "colour": "red"},
            {"type": "TableChanged", "number": 1, "digest": 1, "colour": "red"},
        ):
            body = msgspec.msgpack.encode(fields)
            raw.say_bytes(struct.pack(">BBHI", 1, 0, 0, len(body)) + body)
        await until(lambda: bool(broker.machine.messages(RAW)))
        assert broker.machine.messages(RAW) == [TableChanged(number=1, digest=1)]
        assert broker.driver.counters.unknown_messages == 1
        assert broker.driver.peers == [RAW]

    converse(registry, talk)


def test_ends_without_a_common_schema_part_with_the_reason(registry: Registry) -> None:
    async def talk(broker: Party, raw: RawPeer) -> None:
        raw.greet(hello_of(RAW, schema_version=9, schema_version_min=8))
        bye = await raw.hear()
        assert isinstance(bye, Bye)
        assert bye.code == NoCommonSchema.code
        assert "8 to 9" in bye.reason
        assert broker.machine.events == []

    converse(registry, talk)


def test_a_ping_is_answered_without_the_machine(registry: Registry) -> None:
    async def talk(broker: Party, raw: RawPeer) -> None:
        raw.greet(hello_of(RAW))
        raw.say(Ping(number=42))
        assert await raw.hear_of(Pong) == Pong(number=42)
        assert broker.machine.messages(RAW) == []

    converse(registry, talk)


def test_a_peer_that_falls_silent_is_given_up(registry: Registry) -> None:
    async def talk(broker: Party, raw: RawPeer) -> None:
        raw.greet(hello_of(RAW))
        await until(lambda: broker.machine.count(Disconnected, RAW) == 1)
        assert broker.driver.counters.ended["silent"] == 1
        assert broker.driver.counters.pings == BRISK.silent_intervals_max - 1
        bye = await raw.hear_of(Bye)
        assert isinstance(bye, Bye)
        assert "silent" in bye.reason

    converse(registry, talk, session=BRISK)


def flooding(event: Event) -> Sequence[Instruction]:
    """Answers each message with a megabyte."""
    if isinstance(event, Received):
        return [Send(event.peer, OperatorAnswer(request_id=1, facts={"x": "y" * 1_000_000}))]
    return ()


def test_a_peer_that_does_not_read_is_cut_off(registry: Registry) -> None:
    async def talk(broker: Party, raw: RawPeer) -> None:
        raw.greet(hello_of(RAW))
        assert isinstance(await raw.hear(), Hello)
        for number in range(100):
            raw.say(TableChanged(number=number, digest=0))
        await until(lambda: broker.machine.count(Disconnected, RAW) == 1)
        assert broker.driver.counters.ended["slow"] == 1
        assert broker.driver.peers == []

    small = SessionSettings(ping_interval_s=60, write_bytes_max=2_000_000)
    converse(registry, talk, machine=RecordingMachine(flooding), session=small)


def test_connections_beyond_the_bound_are_turned_away(registry: Registry) -> None:
    async def talk() -> None:
        table = TableSettings(sessions_max=1)
        async with (
            party(registry.credentials(BROKER), serves=[Role.ROUTER], table=table) as broker,
            raw_peer(broker.address, registry.context(RAW)) as first,
        ):
            first.greet(hello_of(RAW))
            assert await first.hear() is not None
            async with raw_peer(broker.address, None) as second:
                assert await second.hear() is None
            assert broker.driver.counters.refused["too_many_sessions"] == 1
            assert broker.driver.peers == [RAW]

    asyncio.run(talk())
