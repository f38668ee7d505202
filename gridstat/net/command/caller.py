"""Asks one peer and awaits its answers: for commands that people type, and for look-ups.

Unlike a daemon's sessions it gives up: when every address has failed once, the last reason is
raised.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from gridstat.model.error_index import error_from
from gridstat.model.errors import DeadlinePassed, LinkDown
from gridstat.net.command.client import Target
from gridstat.net.command.messages import Answer, OperatorAnswer
from gridstat.net.command.session_table import SessionTable, TableSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gridstat.model.errors import GridStatError
    from gridstat.net.command.messages import Hello, Message, OperatorCommand, Submit
    from gridstat.net.command.tls import Credentials

WITHIN_S: Final = 5.0


@asynccontextmanager
async def calling(
    credentials: Credentials,
    target: Target,
    *,
    within_s: float = WITHIN_S,
    settings: TableSettings | None = None,
) -> AsyncIterator[Caller]:
    """A session with the target for as long as the block lasts."""
    caller = Caller(target, within_s)
    table = SessionTable(caller, credentials, settings or TableSettings())
    try:
        await caller.connect(table)
        yield caller
    finally:
        await table.close()


class Caller:
    """One session and the questions on their way, each answered once or failed."""

    def __init__(self, target: Target, within_s: float) -> None:
        self._target = target
        self._within_s = within_s
        self._is_connected = asyncio.get_running_loop().create_future()
        self._asked: dict[int, asyncio.Future[OperatorAnswer | Answer]] = {}
        self._failures = 0
        self._table: SessionTable | None = None

    async def connect(self, table: SessionTable) -> None:
        """Raises why not, if no address answers."""
        self._table = table
        identity, addresses = self._target.identity, self._target.addresses
        table.connect_to(Target(identity, addresses, self._failed))
        try:
            async with asyncio.timeout(self._within_s):
                await self._is_connected
        except TimeoutError:
            raise DeadlinePassed(f"{identity} does not answer") from None

    async def facts(self, command: OperatorCommand) -> dict[str, Any]:
        """What a broker answers an operator; its refusal is raised."""
        answer = await self.ask(command)
        assert isinstance(answer, OperatorAnswer), "operators are answered as such"
        if refused := answer.refused:
            raise error_from(refused.code, refused.reason, hint=refused.hint)
        return answer.facts

    async def ask(self, message: OperatorCommand | Submit) -> OperatorAnswer | Answer:
        """The answer with the same `request_id`."""
        assert self._table is not None
        assert message.request_id not in self._asked, "a question is asked once"
        waiting: asyncio.Future[OperatorAnswer | Answer]
        waiting = asyncio.get_running_loop().create_future()
        self._asked[message.request_id] = waiting
        self._table.send(self._target.identity.peer, message)
        try:
            async with asyncio.timeout(self._within_s):
                return await waiting
        except TimeoutError:
            raise DeadlinePassed(f"{self._target.identity} did not answer in time") from None
        finally:
            del self._asked[message.request_id]

    # What the session tells.

    def connected(self, peer: str, hello: Hello) -> None:
        if not self._is_connected.done():
            self._is_connected.set_result(None)

    def received(self, peer: str, message: Message) -> None:
        if not isinstance(message, OperatorAnswer | Answer):
            return  # A notice, perhaps; nobody here waits for one.
        waiting = self._asked.get(message.request_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(message)

    def disconnected(self, peer: str) -> None:
        for waiting in self._asked.values():
            if not waiting.done():
                waiting.set_exception(LinkDown(f"{peer} has gone before it answered"))

    def _failed(self, error: GridStatError) -> None:
        self._failures += 1
        if self._failures >= len(self._target.addresses) and not self._is_connected.done():
            self._is_connected.set_exception(error)
