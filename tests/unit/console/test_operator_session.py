"""An operator's questions: each gets its own answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from gridstat.console.operator_session import OperatorMachine, OperatorSession
from gridstat.model.errors import DeadlinePassed, LinkDown
from gridstat.net.command.identity import Identity, Role
from gridstat.net.command.machine import Connected, Received, TimerFired
from gridstat.net.command.messages import Explain, Hello, OperatorAnswer, Survey

if TYPE_CHECKING:
    from gridstat.net.command.messages import OperatorCommand
    from gridstat.net.command.operator_messages import TreeCommand

BROKER = Identity(Role.BROKER, "c1")


class Asked:
    """Stands for the driver: keeps what is to be sent, and says when it is two."""

    def __init__(self) -> None:
        self.commands: list[OperatorCommand | TreeCommand] = []
        self.both = asyncio.Event()

    def inject(self, command: OperatorCommand | TreeCommand) -> None:
        self.commands.append(command)
        if len(self.commands) == 2:
            self.both.set()


def test_two_questions_at_once_get_each_their_own_answer() -> None:
    async def asking() -> list[dict[str, Any]]:
        machine, asked = OperatorMachine(BROKER), Asked()
        session = OperatorSession(machine, asked.inject)
        machine.handle(Connected(BROKER.peer, cast("Hello", None)), 0)
        questions = [
            asyncio.ensure_future(session.ask(command))
            for command in (Survey(request_id=0), Explain(request_id=0, name="v"))
        ]
        await asked.both.wait()
        for command in asked.commands:
            answer = OperatorAnswer(command.request_id, {"to": type(command).__name__})
            machine.handle(Received(BROKER.peer, answer), 0)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return list(await asyncio.gather(*questions))

    assert asyncio.run(asking()) == [{"to": "Survey"}, {"to": "Explain"}]


def test_a_question_that_takes_its_time_is_given_up_only_after_that() -> None:
    async def asking() -> None:
        machine = OperatorMachine(BROKER)
        session = OperatorSession(machine, Asked().inject)
        machine.handle(Connected(BROKER.peer, cast("Hello", None)), 0)
        await session.ask(Survey(request_id=0), 0.01)

    with pytest.raises(DeadlinePassed, match="did not answer in 0 s"):
        asyncio.run(asking())


def test_only_what_an_operator_says_is_sent() -> None:
    async def sending() -> list[int]:
        machine = OperatorMachine(BROKER)
        return [
            len(machine.handle(event, 0)) for event in (Survey(request_id=1), TimerFired("any"))
        ]

    assert asyncio.run(sending()) == [1, 0]


def test_a_session_is_waited_for_only_as_long_as_it_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker that is down must not hold up a screen of all the others."""
    monkeypatch.setattr("gridstat.console.operator_session.ANSWER_S_MAX", 3_600.0)

    async def ask() -> None:
        session = OperatorSession(OperatorMachine(BROKER), Asked().inject)
        with pytest.raises(LinkDown, match="has not answered yet"):
            await session.ask(Survey(request_id=0), session_within_s=0.0)

    asyncio.run(ask())
