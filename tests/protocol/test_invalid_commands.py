"""Raw peers with invalid messages, or of older and newer schemas: each with its answer."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

import msgspec
import pytest

from gridstat.model.errors import (
    FrameTooLarge,
    MalformedFrame,
    NoCommonSchema,
    NotAuthorised,
)
from gridstat.net.command.frames import FRAME_BYTES_MAX
from gridstat.net.command.identity import Role
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
def test_the_order_of_messages_is_kept(registry: Registry, first: str) -> None:
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
