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
    from collections.abc import AsyncIterator, Callable

    from gridstat.console.access import Access

ANSWER_S_MAX: Final = 10.0


class OperatorMachine:
    """State of an operator's session: whether it is up, and the requests that wait for a reply.

    A lost session fails all waiting requests; none is repeated.
    """

    def __init__(self, broker: Identity) -> None:
        self.broker = broker
        self.is_up = asyncio.Event()
        self.waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.reason: GridStatError = LinkDown(f"{broker} has not answered yet")
        """Last failure to open the session."""

    def failed(self, reason: GridStatError) -> None:
        self.reason = reason

    def handle(
        self, event: DriverEvent | OperatorCommand | TreeCommand, now_ns: int, /
    ) -> list[Send]:
        match event:
            case Connected():
                self.is_up.set()
            case Disconnected():
                self.is_up.clear()
                for answer in self.waiting.values():
                    if not answer.done():
                        answer.set_exception(LinkDown(f"the session with {self.broker} was lost"))
            case Received(_, OperatorAnswer() as message):
                self._take(message)
            case _ if isinstance(event, OperatorCommand | TreeCommand):
                return [Send(self.broker.peer, event)]
            case _:
                pass  # Nothing else concerns an operator.
        return []

    def _take(self, message: OperatorAnswer) -> None:
        answer = self.waiting.get(message.request_id)
        if answer is None or answer.done():
            return
        if message.refused is None:
            answer.set_result(message.facts)
        else:
            refused = message.refused
            answer.set_exception(error_from(refused.code, refused.reason, hint=refused.hint))


class OperatorSession:
    """Sends commands through a driver and waits for their replies, several at a time if need be."""

    def __init__(
        self, machine: OperatorMachine, inject: Callable[[OperatorCommand | TreeCommand], None]
    ) -> None:
        self._machine = machine
        self._inject = inject
        self._number = 0

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
        machine = self._machine
        within_s = ANSWER_S_MAX if within_s is None else within_s
        session_within_s = ANSWER_S_MAX if session_within_s is None else session_within_s
        try:
            await asyncio.wait_for(machine.is_up.wait(), session_within_s)
        except TimeoutError:
            raise machine.reason from None
        self._number += 1
        number = self._number
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        machine.waiting[number] = answer
        self._inject(msgspec.structs.replace(command, request_id=number))
        try:
            return await asyncio.wait_for(answer, within_s)
        except TimeoutError:
            raise DeadlinePassed(f"{machine.broker} did not answer in {within_s:.0f} s") from None
        finally:
            machine.waiting.pop(number, None)


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
    """Open a session as this user, or as `who`; the session is closed with the block."""
    name = operator_name(access.cloud, who)
    credentials = Credentials(access.files_of(Role.OPERATOR, name))
    broker = Identity(Role.BROKER, access.cloud)
    machine = OperatorMachine(broker)
    driver: Driver[OperatorCommand | TreeCommand] = Driver(machine, credentials)
    driver.connect_to(broker, access.brokers, on_failure=machine.failed)
    try:
        yield OperatorSession(machine, driver.inject)
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
