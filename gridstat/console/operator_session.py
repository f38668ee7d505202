"""An operator's session with a broker: ask, and get facts or a refusal."""

from __future__ import annotations

import asyncio
import getpass
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gridstat.model.error_index import error_from
from gridstat.model.errors import DeadlinePassed, GridStatError, LinkDown, Misuse
from gridstat.net.command.driver import Driver, DriverEvent
from gridstat.net.command.identity import Identity, Role
from gridstat.net.command.machine import Connected, Disconnected, Received, Send
from gridstat.net.command.messages import OperatorAnswer, OperatorCommand
from gridstat.net.command.operator_messages import TreeCommand
from gridstat.net.command.tls import Credentials

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gridstat.console.access import Access

ANSWER_S_MAX: Final = 10.0


class OperatorSession:
    """Every question has a future; a lost session fails those that wait for an answer."""

    def __init__(self, broker: Identity) -> None:
        self._broker = broker
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._number = 0
        self._is_up = asyncio.Event()
        self._reason: GridStatError = LinkDown(f"{broker} has not answered yet")
        self.driver: Driver[OperatorCommand | TreeCommand] | None = None

    def failed(self, reason: GridStatError) -> None:
        self._reason = reason

    async def ask(
        self,
        command: OperatorCommand | TreeCommand,
        within_s: float | None = None,
        *,
        session_within_s: float | None = None,
    ) -> dict[str, Any]:
        """Return the facts; raise the broker's refusal, or the reason why it cannot be reached.

        Waits for a session if there is none, and then for the answer, 10 s each by default.
        """
        assert self.driver is not None
        within_s = ANSWER_S_MAX if within_s is None else within_s
        session_within_s = ANSWER_S_MAX if session_within_s is None else session_within_s
        try:
            await asyncio.wait_for(self._is_up.wait(), session_within_s)
        except TimeoutError:
            raise self._reason from None
        self._number += 1
        number = self._number
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self.driver.inject(msgspec.structs.replace(command, request_id=number))
        try:
            return await asyncio.wait_for(answer, within_s)
        except TimeoutError:
            raise DeadlinePassed(f"{self._broker} did not answer in {within_s:.0f} s") from None
        finally:
            self._waiting.pop(number, None)

    def handle(
        self, event: DriverEvent | OperatorCommand | TreeCommand, now_ns: int, /
    ) -> list[Send]:
        match event:
            case Connected():
                self._is_up.set()
            case Disconnected():
                self._is_up.clear()
                for answer in self._waiting.values():
                    if not answer.done():
                        answer.set_exception(LinkDown(f"the session with {self._broker} was lost"))
            case Received(_, OperatorAnswer() as message):
                self._take(message)
            case _ if isinstance(event, OperatorCommand | TreeCommand):
                return [Send(self._broker.peer, event)]
            case _:
                pass  # Nothing else concerns an operator.
        return []

    def _take(self, message: OperatorAnswer) -> None:
        answer = self._waiting.get(message.request_id)
        if answer is None or answer.done():
            return
        if message.refused is None:
            answer.set_result(message.facts)
        else:
            refused = message.refused
            answer.set_exception(error_from(refused.code, refused.reason, hint=refused.hint))


def person() -> str:
    """Return the user's name; the number where the system has no name, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user-{os.getuid()}"


def operator_name(broker: str, who: str = "") -> str:
    """The full name of an operator at one broker: `c1/alice`; without `who`, of this person."""
    if "/" in who:
        raise Misuse(
            f"an operator's name is one word, and {who!r} has a slash in it",
            hint=f"write --as {who.rpartition('/')[2] or 'alice'}: the broker's name is put before",
        )
    return f"{broker}/{who or person()}"


@asynccontextmanager
async def open_operator_session(access: Access, who: str = "") -> AsyncIterator[OperatorSession]:
    """A session as this person, or as `who`; it is closed with the block."""
    name = operator_name(access.cloud, who)
    credentials = Credentials(access.files_of(Role.OPERATOR, name))
    broker = Identity(Role.BROKER, access.cloud)
    session = OperatorSession(broker)
    driver: Driver[OperatorCommand | TreeCommand] = Driver(session, credentials)
    session.driver = driver
    driver.connect_to(broker, access.brokers, on_failure=session.failed)
    try:
        yield session
    finally:
        await driver.close()


def ask_once(
    access: Access,
    command: OperatorCommand | TreeCommand,
    within_s: float | None = None,
    *,
    who: str = "",
) -> dict[str, Any]:
    """Send one command and return the reply, for commands that end then."""

    async def asking() -> dict[str, Any]:
        async with open_operator_session(access, who) as session:
            return await session.ask(command, within_s)

    return asyncio.run(asking())
