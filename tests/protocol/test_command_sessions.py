"""Two drivers over real loopback TLS: they exchange messages, reconnect, and end."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import pytest

from gridstat.model.errors import EndPointExists, FrameTooLarge, LinkDown, ShuttingDown
from gridstat.net.command.identity import Role
from gridstat.net.command.machine import Close, Connected, Disconnected, Received, Send
from gridstat.net.command.messages import Bye, OperatorAnswer, Ping, Survey, TableChanged
from gridstat.net.command.session_settings import SessionSettings
from gridstat.net.command.session_table import TableSettings
from tests.protocol.command_parties import (
    BRISK,
    BROKER,
    ROUTER,
    RecordingMachine,
    Registry,
    hello_of,
    party,
    raw_peer,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gridstat.net.command.machine import Event, Instruction

MANY = 5_000


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    path: Path = tmp_path_factory.mktemp("certificates")
    return Registry(path)


def sending_many(event: Event) -> Sequence[Instruction]:
    """Send thousands of messages as soon as the peer is connected."""
    if isinstance(event, Connected):
        return [Send(event.peer, TableChanged(number=n, digest=n)) for n in range(MANY)]
    return ()


def echoing(event: Event) -> Sequence[Instruction]:
    return [Send(event.peer, event.message)] if isinstance(event, Received) else ()


@pytest.mark.feature("S3-47")
def test_messages_come_whole_and_in_order_both_ways(registry: Registry) -> None:
    async def talk() -> None:
        async with (
            party(
                registry.credentials(BROKER),
                serves=[Role.ROUTER],
                machine=RecordingMachine(echoing),
            ) as broker,
            party(registry.credentials(ROUTER), machine=RecordingMachine(sending_many)) as router,
        ):
            router.connect_to(broker)
            await until(lambda: len(router.machine.messages(BROKER.peer)) == MANY)
            expected = [TableChanged(number=n, digest=n) for n in range(MANY)]
            assert broker.machine.messages(ROUTER.peer) == expected
            assert router.machine.messages(BROKER.peer) == expected
            assert broker.driver.counters.sessions == 1
            assert broker.driver.counters.frames_in == MANY + 1

    asyncio.run(talk())


def test_the_hello_tells_who_it_is(registry: Registry) -> None:
    async def talk() -> None:
        async with (
            party(registry.credentials(BROKER), serves=[Role.ROUTER]) as broker,
            party(registry.credentials(ROUTER)) as router,
        ):
            router.connect_to(broker)
            await until(lambda: router.machine.is_connected(BROKER.peer))
            first = broker.machine.events[0]
            assert isinstance(first, Connected)
            assert (first.hello.role, first.hello.name) == ("router", "c1/e0")
            assert broker.driver.peers == [ROUTER.peer]

    asyncio.run(talk())


def test_a_client_finds_a_server_that_comes_back(registry: Registry) -> None:
    async def talk() -> None:
        credentials = registry.credentials(BROKER)
        async with party(registry.credentials(ROUTER)) as router:
            async with party(credentials, serves=[Role.ROUTER]) as broker:
                address = broker.address
                router.connect_to(broker)
                await until(lambda: router.machine.is_connected(BROKER.peer))
            await until(lambda: router.machine.count(Disconnected, BROKER.peer) == 1)
            await until(lambda: router.failed_with(LinkDown))
            async with party(credentials, serves=[Role.ROUTER], port=address[1]) as again:
                await until(lambda: router.machine.is_connected(BROKER.peer))
                await until(lambda: again.machine.is_connected(ROUTER.peer))

    asyncio.run(talk())


def test_a_connection_cut_without_a_bye_is_made_anew(registry: Registry) -> None:
    async def talk() -> None:
        async with (
            party(registry.credentials(BROKER), serves=[Role.ROUTER]) as broker,
            party(registry.credentials(ROUTER)) as router,
        ):
            router.connect_to(broker)
            for count in range(1, 4):
                await until(partial(router.has_connected, BROKER.peer, count))
                await until(lambda: broker.machine.is_connected(ROUTER.peer))
                for session in list(broker.driver._sessions._all):
                    session.abort()
            await until(lambda: router.machine.count(Disconnected, BROKER.peer) == 3)
            assert router.driver.counters.ended["told_bye"] == 0
            kinds = [type(event) for event in broker.machine.events[:6]]
            assert kinds == [Connected, Disconnected] * 3

    asyncio.run(talk())


def test_each_address_is_tried_in_turn(registry: Registry) -> None:
    async def talk() -> None:
        async with (
            party(registry.credentials(BROKER), serves=[Role.ROUTER]) as broker,
            party(registry.credentials(ROUTER)) as router,
        ):
            nobody = ("127.0.0.1", 1)
            router.driver.connect_to(BROKER, [nobody, broker.address])
            await until(lambda: router.machine.is_connected(BROKER.peer))

    asyncio.run(talk())


def test_new_addresses_leave_a_session_that_is_up(registry: Registry) -> None:
    async def talk() -> None:
        async with (
            party(registry.credentials(BROKER), serves=[Role.ROUTER]) as broker,
            party(registry.credentials(ROUTER)) as router,
        ):
            router.driver.connect_to(BROKER, [("127.0.0.1", 1)], on_failure=router.failures.append)
            await until(lambda: router.failed_with(LinkDown))
            router.connect_to(broker)
            await until(lambda: router.machine.is_connected(BROKER.peer))
            router.driver.connect_to(BROKER, [("127.0.0.1", 1)])
            assert router.driver.peers == [BROKER.peer]

    asyncio.run(talk())


@pytest.mark.parametrize("moment", ["connected here", "connected there"])
def test_a_forgotten_peer_is_left_and_not_dialled_again(registry: Registry, moment: str) -> None:
    async def talk() -> None:
        async with (
            party(registry.credentials(BROKER), serves=[Role.ROUTER]) as broker,
            party(registry.credentials(ROUTER)) as router,
        ):
            router.connect_to(broker)
            if moment == "connected here":
                await until(lambda: router.machine.is_connected(BROKER.peer))
            else:
                await until(lambda: broker.machine.is_connected(ROUTER.peer))
            router.driver.forget(BROKER)
            await until(lambda: broker.machine.count(Disconnected, ROUTER.peer) == 1)
            assert not router.machine.is_connected(BROKER.peer)
            assert router.driver.peers == []

    asyncio.run(talk())


def test_a_machine_that_closes_a_session_tells_why(registry: Registry) -> None:
    def refuse(event: Event) -> Sequence[Instruction]:
        if isinstance(event, Received):
            last = TableChanged(number=9, digest=9)
            return [Send(event.peer, last), Close(event.peer, ShuttingDown.code, "going home")]
        return ()

    async def talk() -> None:
        machine = RecordingMachine(refuse)
        broker_party = party(registry.credentials(BROKER), serves=[Role.ROUTER], machine=machine)
        async with (
            broker_party as broker,
            raw_peer(broker.address, registry.context("router/c1/e7")) as raw,
        ):
            raw.greet(hello_of("router/c1/e7"))
            raw.say(TableChanged(number=1, digest=1))
            assert await raw.hear_of(TableChanged) == TableChanged(number=9, digest=9)
            bye = await raw.hear_of(Bye)
            assert isinstance(bye, Bye)
            assert (bye.code, bye.reason) == (ShuttingDown.code, "going home")
            assert await raw.hear() is None
            assert machine.count(Disconnected, "router/c1/e7") == 1

    asyncio.run(talk())


def test_what_is_said_to_nobody_is_counted(registry: Registry) -> None:
    async def talk() -> None:
        def speak(event: Event) -> Sequence[Instruction]:
            return [Send("router/c1/nobody", Ping(number=1))]

        async with party(registry.credentials(BROKER), machine=RecordingMachine(speak)) as broker:
            broker.driver.disconnected("router/c1/e0")
            assert broker.driver.counters.unsent_messages == 1

    asyncio.run(talk())


def test_an_answer_too_large_is_a_refusal_and_what_follows_arrives(registry: Registry) -> None:
    def answer(event: Event) -> Sequence[Instruction]:
        if isinstance(event, Connected):
            huge = OperatorAnswer(request_id=1, facts={"x": "y" * 5_000_000})
            return [Send(event.peer, huge), Send(event.peer, OperatorAnswer(request_id=2))]
        return ()

    async def talk() -> None:
        machine = RecordingMachine(answer)
        async with (
            party(registry.credentials(BROKER), serves=[Role.ROUTER], machine=machine) as broker,
            party(registry.credentials(ROUTER)) as router,
        ):
            router.connect_to(broker)
            await until(lambda: len(router.machine.messages(BROKER.peer)) > 1)
            first, second = router.machine.messages(BROKER.peer)
            assert isinstance(first, OperatorAnswer)
            assert first.refused is not None
            assert (first.request_id, first.refused.code) == (1, FrameTooLarge.code)
            assert second == OperatorAnswer(request_id=2)
            assert broker.driver.counters.too_large_messages == 1

    asyncio.run(talk())


def test_a_process_that_reconnects_replaces_its_own_session(registry: Registry) -> None:
    async def talk() -> None:
        context = registry.context("router/c1/e7")
        async with (
            party(registry.credentials(BROKER), serves=[Role.ROUTER]) as broker,
            raw_peer(broker.address, context) as first,
            raw_peer(broker.address, context) as second,
        ):
            for raw in (first, second):
                raw.greet(hello_of("router/c1/e7", instance="the same"))
                assert await raw.hear() is not None
            assert isinstance(await first.hear(), Bye)
            peer = "router/c1/e7"
            kinds = [type(event) for event in broker.machine.events]
            assert kinds == [Connected, Disconnected, Connected]
            assert broker.driver.peers == [peer]

    asyncio.run(talk())


def test_a_second_process_of_one_name_is_refused_while_the_first_speaks(
    registry: Registry,
) -> None:
    async def talk() -> None:
        credentials = registry.credentials(ROUTER)
        async with (
            party(registry.credentials(BROKER), serves=[Role.ROUTER]) as broker,
            party(credentials) as first,
            party(credentials) as second,
        ):
            first.connect_to(broker)
            await until(lambda: first.machine.is_connected(BROKER.peer))
            second.connect_to(broker)
            await until(lambda: second.failed_with(EndPointExists))
            assert second.machine.events == []
            assert broker.driver.counters.refused["EndPointExists"] >= 1
            assert first.driver.peers == [BROKER.peer]

    asyncio.run(talk())


def test_a_second_process_takes_over_from_one_that_is_silent(registry: Registry) -> None:
    async def talk() -> None:
        # The first sends nothing more, but its session stays open.
        table = TableSettings(session=SessionSettings(ping_interval_s=0.05, silent_after_s=600.0))
        async with (
            party(registry.credentials(BROKER), serves=[Role.ROUTER], table=table) as broker,
            raw_peer(broker.address, registry.context(ROUTER.peer)) as frozen,
        ):
            frozen.greet(hello_of(ROUTER.peer))
            assert await frozen.hear() is not None
            async with party(registry.credentials(ROUTER)) as second:
                second.connect_to(broker)
                await until(lambda: second.machine.is_connected(BROKER.peer))
            assert broker.machine.count(Connected, ROUTER.peer) == 2

    asyncio.run(talk())


def test_an_operator_may_have_several_sessions(registry: Registry) -> None:
    async def talk() -> None:
        peer = "operator/c1/alice"
        credentials = registry.credentials(peer)
        async with (
            party(registry.credentials(BROKER), serves=[Role.OPERATOR]) as broker,
            party(credentials) as one,
            party(credentials, machine=RecordingMachine(_surveying)) as two,
        ):
            one.connect_to(broker)
            await until(lambda: broker.driver.peers == [peer])
            two.connect_to(broker)
            await until(lambda: bool(broker.machine.messages(f"{peer}#2")))
            assert broker.driver.peers == [peer, f"{peer}#2"]

    asyncio.run(talk())


def _surveying(event: Event) -> Sequence[Instruction]:
    return [Send(event.peer, Survey(request_id=1))] if isinstance(event, Connected) else ()


def test_an_idle_session_lives_on_pings(registry: Registry) -> None:
    async def talk() -> None:
        brisk = TableSettings(session=BRISK)
        async with (
            party(registry.credentials(BROKER), serves=[Role.ROUTER], table=brisk) as broker,
            party(registry.credentials(ROUTER)) as router,
        ):
            router.connect_to(broker)
            await until(lambda: broker.driver.counters.pings >= 12)
            assert broker.driver.peers == [ROUTER.peer]
            assert broker.machine.messages(ROUTER.peer) == []

    asyncio.run(talk())


def test_a_renewed_certificate_is_taken_up_without_a_restart(registry: Registry) -> None:
    async def talk() -> None:
        router = registry.credentials(ROUTER, days_off=-400)
        async with (
            party(registry.credentials(BROKER), serves=[Role.ROUTER]) as broker,
            party(router) as made,
        ):
            made.connect_to(broker)
            await until(lambda: bool(made.failures))
            assert made.machine.events == []
            registry.folder.renew(ROUTER)
            await until(lambda: made.machine.is_connected(BROKER.peer))

    asyncio.run(talk())


def test_a_port_that_is_taken_is_told(registry: Registry) -> None:
    async def talk() -> None:
        async with party(registry.credentials(BROKER), serves=[Role.ROUTER]) as broker:
            with pytest.raises(LinkDown, match="cannot listen"):
                await broker.driver.serve(*broker.address, [Role.ROUTER])

    asyncio.run(talk())


def test_ending_leaves_nobody_without_a_bye(registry: Registry) -> None:
    async def talk() -> None:
        async with party(registry.credentials(ROUTER)) as router:
            async with party(registry.credentials(BROKER), serves=[Role.ROUTER]) as broker:
                router.connect_to(broker)
                await until(lambda: broker.machine.is_connected(ROUTER.peer))
            await until(lambda: router.driver.counters.ended["told_bye"] == 1)
            assert broker.driver.counters.sessions == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(talk())
