"""One question, one answer: what people's commands do with a broker, and how they fail."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from gridstat.model.errors import DeadlinePassed, LinkDown, NoSuchVariable, NotAuthorised
from gridstat.net.command.caller import calling
from gridstat.net.command.client import Target
from gridstat.net.command.identity import Role
from gridstat.net.command.machine import Close, Received, Send
from gridstat.net.command.messages import (
    Explain,
    OperatorAnswer,
    RefusedOutcome,
    RemoveRouter,
    Survey,
)
from tests.protocol.command_parties import BROKER, RecordingMachine, Registry, party

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gridstat.net.command.machine import Event, Instruction

ALICE = "operator/c1/alice"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Registry:
    return Registry(tmp_path_factory.mktemp("certificates"))


def answering(event: Event) -> Sequence[Instruction]:
    """Knows the cloud, no variable, and hangs up on who asks for a removal."""
    match event:
        case Received(peer, Survey() as asked):
            facts = {"cloud": "c1"}
            return [Send(peer, OperatorAnswer(request_id=asked.request_id, facts=facts))]
        case Received(peer, Explain() as asked):
            refused = RefusedOutcome(code=NoSuchVariable.code, reason="nobody publishes it")
            return [Send(peer, OperatorAnswer(request_id=asked.request_id, refused=refused))]
        case Received(peer, RemoveRouter()):
            return [Close(peer, 1104, "going home")]
        case _:
            return ()


async def asked(registry: Registry, *commands: Survey | Explain | RemoveRouter) -> list[object]:
    machine = RecordingMachine(answering)
    async with party(
        registry.credentials(BROKER), serves=[Role.OPERATOR], machine=machine
    ) as broker:
        target = Target(BROKER, [broker.address])
        async with calling(registry.credentials(ALICE), target) as caller:
            return [await caller.facts(command) for command in commands]


def test_a_question_is_answered(registry: Registry) -> None:
    answers = asyncio.run(asked(registry, Survey(request_id=1), Survey(request_id=2)))
    assert answers == [{"cloud": "c1"}, {"cloud": "c1"}]


def test_a_refusal_is_raised_with_its_code(registry: Registry) -> None:
    with pytest.raises(NoSuchVariable, match="nobody publishes it"):
        asyncio.run(asked(registry, Explain(request_id=1, name="c1/x")))


def test_a_broker_that_hangs_up_is_no_answer(registry: Registry) -> None:
    with pytest.raises(LinkDown, match="before it answered"):
        asyncio.run(asked(registry, RemoveRouter(request_id=1, name="c1/e0")))


def test_nobody_there_is_told_at_once(registry: Registry) -> None:
    async def scene() -> None:
        target = Target(BROKER, [("127.0.0.1", 1), ("127.0.0.1", 2)])
        async with calling(registry.credentials(ALICE), target):
            raise AssertionError("connected to nobody")

    with pytest.raises(LinkDown, match=r"broker/c1 at 127\.0\.0\.1:2"):
        asyncio.run(scene())


def test_the_rule_that_forbids_it_is_told(registry: Registry) -> None:
    async def scene() -> None:
        async with party(registry.credentials(BROKER), serves=[Role.ROUTER]) as broker:
            target = Target(BROKER, [broker.address])
            async with calling(registry.credentials(ALICE), target):
                raise AssertionError("an operator among routers")

    with pytest.raises(NotAuthorised, match="allowed roles are router"):
        asyncio.run(scene())


def test_a_server_that_accepts_and_says_nothing_is_given_up(registry: Registry) -> None:
    async def scene() -> None:
        async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        server = await asyncio.start_server(ignore, "127.0.0.1", 0)
        try:
            target = Target(BROKER, [server.sockets[0].getsockname()])
            async with calling(registry.credentials(ALICE), target, within_s=0.2):
                raise AssertionError("nobody answered")
        finally:
            server.close()

    with pytest.raises(DeadlinePassed):
        asyncio.run(scene())
