"""A whole router process in one test: real TLS to a stub of a broker, real UDP, real metrics."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gridstat.console.config.router_file import RouterPlan
from gridstat.console.daemons.router_daemon import RouterDaemon
from gridstat.core.rows import Limits
from gridstat.model.cloud import RouterRole
from gridstat.model.errors import CertificateRefused, LinkDown, NotAuthorised, ShuttingDown
from gridstat.model.rate_law import Period
from gridstat.net.command.endpoint_messages import (
    Answer,
    Outcomes,
    RefusedOutcome,
    ResolvedOutcome,
    Submit,
)
from gridstat.net.command.frames import decode_command, encode_body
from gridstat.net.command.identity import Role
from gridstat.net.command.machine import Received, Send, TimerFired
from gridstat.net.command.router_messages import (
    AttachmentChanged,
    ChangeTable,
    Forward,
    PathOrder,
    ReportCounters,
    ReportRouter,
    Return,
    RouterAccepted,
    SourceOrder,
    TableChanged,
    VariableOrder,
)
from tests.protocol.command_parties import (
    BROKER,
    END_POINT,
    ROUTER,
    RecordingMachine,
    Registry,
    party,
    until,
)
from tests.protocol.grids import PUBLISHER, datagram, event, told
from tests.protocol.router_cloud import channel_to, slot_after, stamp_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence

    import msgspec

    from gridstat.net.command.endpoint_messages import EndPointCommand
    from gridstat.net.command.machine import Event, Instruction
    from gridstat.net.command.messages import Message
    from tests.protocol.command_parties import Party

VOLTAGE, DESK = 1, 20
SMALL = Limits(variables_max=256, rings_max=16, channels_max=16, pool_small=64, pool_large=4)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    registry = Registry(tmp_path_factory.mktemp("certificates"))
    registry.credentials(ROUTER)
    return registry


@pytest.fixture
def subscriber() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        found.setblocking(False)
        yield found


def plan_of(registry: Registry, **changes: Any) -> RouterPlan:
    plan = RouterPlan(
        name=ROUTER.name,
        role=RouterRole.EDGE,
        certificates=registry.folder.path,
        brokers=(),
        name_services=(),
        listen=("127.0.0.1", 0, 0),
        advertised_host="127.0.0.1",
        command=("127.0.0.1", 0),
        command_advertised_host="127.0.0.1",
        limits=SMALL,
    )
    return replace(plan, **changes)


def accepting(event: Event) -> Sequence[Instruction]:
    match event:
        case Received(peer, ReportRouter()):
            return [Send(peer, RouterAccepted(term=1))]
        case Received(peer, Forward(endpoint=endpoint, request_id=request_id, body=body)):
            answer = Return(term=1, endpoint=endpoint, request_id=request_id, body=body[::-1])
            return [Send(peer, answer)]
        case _:
            return ()


class SpeakingMachine(RecordingMachine):
    """Machine that also sends the messages of its `outbox` on request."""

    def __init__(self) -> None:
        super().__init__(accepting)
        self.outbox: list[Instruction] = []

    def handle(self, event: Event, now_ns: int) -> Sequence[Instruction]:
        said = super().handle(event, now_ns)
        if event != TimerFired("speak"):
            return said
        self.outbox, outbox = [], self.outbox
        return outbox


def say(speaker: Party, peer: str, *messages: Message) -> None:
    assert isinstance(speaker.machine, SpeakingMachine)
    speaker.machine.outbox += [Send(peer, message) for message in messages]
    speaker.driver.inject(TimerFired("speak"))


@asynccontextmanager
async def broker_of(registry: Registry) -> AsyncIterator[Party]:
    machine = SpeakingMachine()
    async with party(registry.credentials(BROKER), serves=[Role.ROUTER], machine=machine) as broker:
        yield broker


@asynccontextmanager
async def running(plan: RouterPlan) -> AsyncIterator[tuple[RouterDaemon, dict[str, Any]]]:
    daemon = RouterDaemon(plan)
    try:
        yield daemon, await daemon.start()
    finally:
        await daemon.close()


def heard(broker: Party, kind: type[msgspec.Struct]) -> list[Any]:
    return [each for each in broker.machine.messages(ROUTER.peer) if isinstance(each, kind)]


def numbers(broker: Party) -> list[int]:
    return [each.number for each in heard(broker, TableChanged)]


def run(talk: Coroutine[Any, Any, None]) -> None:
    asyncio.run(talk)


@pytest.mark.feature("S3-55", "S3-40")
def test_it_obeys_a_stub_broker_and_forwards(registry: Registry, subscriber: socket.socket) -> None:
    host, port = subscriber.getsockname()
    table = ChangeTable(
        term=1,
        number=1,
        begins_anew=True,
        channels=(channel_to(DESK, (host, port, port)),),
        sources=(SourceOrder(channel_id=PUBLISHER, sender="c1/pmu", is_publisher=True),),
        variables=(VariableOrder(variable_id=VOLTAGE, period=Period(1, 100), source=PUBLISHER),),
        paths=(PathOrder(path_id=65_536, variable_id=VOLTAGE, channel_id=DESK),),
    )

    async def talk() -> None:
        async with broker_of(registry) as broker:
            plan = plan_of(registry, brokers=(broker.address,))
            async with running(plan) as (_, ready):
                await until(lambda: bool(heard(broker, ReportRouter)))
                [report] = heard(broker, ReportRouter)
                assert [report.host, report.data_port, report.urgent_port] == ready["address"]
                assert [report.command_host, report.command_port] == ready["command"]
                assert (report.is_first_time, report.datagram_versions) == (True, (1, 2, 3))
                say(broker, ROUTER.peer, table)
                await until(lambda: bool(heard(broker, TableChanged)))
                assert heard(broker, TableChanged)[0].number == 1
                slot = slot_after(time.time_ns())
                raw = datagram(PUBLISHER, event(VOLTAGE, stamp_of(slot)))
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as publisher:
                    publisher.sendto(raw, (report.host, report.data_port))
                arrived = await asyncio.get_running_loop().sock_recv(subscriber, 2_048)
                assert told([(0, arrived)]) == [(VOLTAGE, stamp_of(slot))]
                await until(lambda: bool(heard(broker, ReportCounters)))

    run(talk())


def test_a_flood_of_changes_is_acknowledged_in_few_words(registry: Registry) -> None:
    changes = [
        ChangeTable(
            term=1,
            number=number,
            variables=(VariableOrder(variable_id=number, period=Period(1, 100)),),
        )
        for number in range(1, 201)
    ]

    async def talk() -> None:
        async with (
            broker_of(registry) as broker,
            running(plan_of(registry, brokers=(broker.address,))),
        ):
            await until(lambda: bool(heard(broker, ReportRouter)))
            say(broker, ROUTER.peer, *changes)
            await until(lambda: 200 in numbers(broker))
            assert len(numbers(broker)) < 50
            assert numbers(broker) == sorted(numbers(broker))

    run(talk())


@pytest.mark.feature("S3-43")
def test_an_end_point_talks_to_the_broker_through_its_edge(registry: Registry) -> None:
    async def talk() -> None:
        async with (
            broker_of(registry) as broker,
            running(plan_of(registry, brokers=(broker.address,))) as (_, ready),
            party(registry.credentials(END_POINT), machine=SpeakingMachine()) as end_point,
        ):
            await until(lambda: bool(heard(broker, ReportRouter)))
            end_point.driver.connect_to(ROUTER, [tuple(ready["command"])])
            await until(lambda: bool(heard(broker, AttachmentChanged)))
            submit = Submit(request_id=7, body=b"abc", signature=b"signed")
            say(end_point, ROUTER.peer, submit)
            await until(lambda: bool(end_point.machine.messages(ROUTER.peer)))
            [answer] = end_point.machine.messages(ROUTER.peer)
            assert answer == Answer(request_id=7, body=b"cba")
            end_point.driver.forget(ROUTER)
            await until(lambda: not heard(broker, AttachmentChanged)[-1].is_up)

    run(talk())


@pytest.mark.feature("S3-42", "S3-43")
def test_an_inner_router_refuses_an_end_point_in_words(registry: Registry) -> None:
    async def talk() -> None:
        async with (
            broker_of(registry) as broker,
            running(plan_of(registry, role=RouterRole.INNER, brokers=(broker.address,))) as (
                _,
                ready,
            ),
            party(registry.credentials(END_POINT), machine=SpeakingMachine()) as end_point,
        ):
            address = tuple(ready["command"])
            end_point.driver.connect_to(ROUTER, [address], on_failure=end_point.failures.append)
            await until(lambda: end_point.failed_with(NotAuthorised))
            [told_why] = {str(error.args[0]) for error in end_point.failures}
            assert "end-points attach to edge routers only" in told_why

    run(talk())


@pytest.mark.feature("S3-53")
def test_a_draining_router_tells_everybody(registry: Registry) -> None:
    async def talk() -> None:
        async with (
            broker_of(registry) as broker,
            running(plan_of(registry, brokers=(broker.address,))) as (daemon, ready),
            party(registry.credentials(END_POINT), machine=SpeakingMachine()) as end_point,
        ):
            await until(lambda: broker.machine.is_connected(ROUTER.peer))
            address = tuple(ready["command"])
            end_point.driver.connect_to(ROUTER, [address], on_failure=end_point.failures.append)
            await until(lambda: end_point.machine.is_connected(ROUTER.peer))
            await daemon.drain()
            await until(lambda: end_point.failed_with(ShuttingDown))
            await until(lambda: not broker.machine.is_connected(ROUTER.peer))
            assert daemon.report()["router"] == ROUTER.name

    run(talk())


def resolving(address: tuple[str, int]) -> RecordingMachine:
    """Name service that resolves the broker's name."""

    def outcome(command: EndPointCommand) -> ResolvedOutcome | RefusedOutcome:
        if getattr(command, "name", "") != BROKER.name:
            return RefusedOutcome(code=1017, reason="no such name")
        return ResolvedOutcome(host=address[0], port=address[1])

    def answer(event: Event) -> Sequence[Instruction]:
        match event:
            case Received(peer, Submit(request_id=request_id, body=body)):
                outcomes = Outcomes(outcomes=(outcome(decode_command(body)),))
                return [Send(peer, Answer(request_id=request_id, body=encode_body(outcomes)))]
            case _:
                return ()

    return RecordingMachine(answer)


def test_it_finds_its_broker_by_name(registry: Registry) -> None:
    async def talk() -> None:
        async with (
            broker_of(registry) as broker,
            party(
                registry.credentials(BROKER),
                serves=list(Role),
                machine=resolving(broker.address),
            ) as names,
            running(plan_of(registry, name_services=(names.address,))),
        ):
            await until(lambda: bool(heard(broker, ReportRouter)))

    run(talk())


def test_it_follows_its_broker_to_another_address_on_reload(registry: Registry) -> None:
    async def talk() -> None:
        async with (
            broker_of(registry) as first,
            broker_of(registry) as second,
            running(plan_of(registry, brokers=(first.address,))) as (daemon, _),
        ):
            await until(lambda: bool(heard(first, ReportRouter)))
            now = plan_of(registry, brokers=(second.address,), versions_max=1, cpu=1)
            said = daemon.reload(now)
            assert "broker" in said
            assert "restart is needed for versions_max, cpu" in said
            await until(lambda: bool(heard(second, ReportRouter)))
            assert not heard(second, ReportRouter)[0].is_first_time

    run(talk())


async def fetched(address: list[Any], request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def test_metrics_and_health_are_served(registry: Registry) -> None:
    async def talk() -> None:
        async with running(plan_of(registry, metrics_port=0)) as (daemon, ready):
            answer = await fetched(ready["metrics"], b"GET /metrics HTTP/1.1\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
            assert b"gridstat_router_broker_connected 0.0" in answer
            assert b"200 OK" in await fetched(ready["metrics"], b"GET /health HTTP/1.1\r\n\r\n")
            assert b"404" in await fetched(ready["metrics"], b"GET / HTTP/1.1\r\n\r\n")
            assert b"405" in await fetched(ready["metrics"], b"PUT /metrics HTTP/1.1\r\n\r\n")
            with suppress(ConnectionResetError):  # It need not read what it does not answer.
                assert await fetched(ready["metrics"], b"x" * 100_000) == b""
            await daemon.drain()
            assert b"503" in await fetched(ready["metrics"], b"GET /health HTTP/1.1\r\n\r\n")

    run(talk())


@pytest.mark.parametrize("key", ["listen", "command", "metrics_port"])
def test_a_port_that_is_taken_is_told(registry: Registry, key: str) -> None:
    kind = socket.SOCK_DGRAM if key == "listen" else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as taken:
        taken.bind(("127.0.0.1", 0))
        if kind is socket.SOCK_STREAM:
            taken.listen()
        port = taken.getsockname()[1]
        value: dict[str, Any] = {
            "listen": ("127.0.0.1", port, 0),
            "command": ("127.0.0.1", port),
            "metrics_port": port,
        }

        async def talk() -> None:
            with pytest.raises(LinkDown, match=str(port)):
                async with running(plan_of(registry, **{key: value[key]})):
                    pass

        run(talk())


def test_a_router_without_a_certificate_does_not_start(registry: Registry) -> None:
    with pytest.raises(CertificateRefused, match="c1__e7"):
        RouterDaemon(plan_of(registry, name="c1/e7"))
