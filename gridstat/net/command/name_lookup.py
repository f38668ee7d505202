"""Asks the name service of a cloud for the address of a party, over one short session.

The request travels in a `Submit`, like those of end-points; it needs no signature, since the name
service accepts the certificate of the session. Without an answer in time the caller gets the last
connection error, or `DeadlinePassed`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeAlias

from gridstat.model.error_index import error_from
from gridstat.model.errors import DeadlinePassed, GridStatError, MalformedFrame
from gridstat.net.command.driver import Driver, DriverEvent
from gridstat.net.command.endpoint_messages import (
    Answer,
    RefusedOutcome,
    ResolvedOutcome,
    ResolveName,
    Submit,
)
from gridstat.net.command.frames import decode_outcomes, encode_body
from gridstat.net.command.identity import Identity, Role
from gridstat.net.command.machine import Connected, Received, Send

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gridstat.net.command.address import Address
    from gridstat.net.command.tls import Credentials

ANSWER_WITHIN_S: Final = 10.0
Found: TypeAlias = "asyncio.Future[Address]"


class NameLookup:
    """A machine that sends one request on the first open session."""

    def __init__(self, name: str, found: Found) -> None:
        self._name = name
        self._found = found

    def handle(self, event: DriverEvent, now_ns: int) -> list[Send]:
        match event:
            case Connected(peer):
                body = encode_body(ResolveName(name=self._name))
                return [Send(peer, Submit(request_id=1, body=body, signature=b""))]
            case Received(_, Answer(body=body)) if not self._found.done():
                self._take(body)
                return []
            case _:
                return []

    def _take(self, body: bytes) -> None:
        try:
            outcomes = decode_outcomes(body).outcomes
        except MalformedFrame as error:
            self._found.set_exception(error)
            return
        match outcomes:
            case (ResolvedOutcome(host=host, port=port),):
                self._found.set_result((host, port))
            case (RefusedOutcome(code=code, reason=reason, hint=hint),):
                self._found.set_exception(error_from(code, reason, hint=hint))
            case _:
                self._found.set_exception(MalformedFrame("an answer without an address"))


async def resolve(
    name: str,
    credentials: Credentials,
    name_services: Sequence[Address],
    *,
    within_s: float = ANSWER_WITHIN_S,
) -> Address:
    """Return the address of `name`; raise the refusal of the name service or the connection
    error."""
    loop = asyncio.get_running_loop()
    found: Found = loop.create_future()
    broker = Identity(Role.BROKER, credentials.identity.cloud)
    driver: Driver[DriverEvent] = Driver(NameLookup(name, found), credentials)
    failures: list[GridStatError] = []
    driver.connect_to(broker, name_services, on_failure=failures.append)
    try:
        async with asyncio.timeout(within_s):
            return await found
    except TimeoutError:
        raise (
            failures[-1]
            if failures
            else DeadlinePassed(f"no name service has the address of {name}")
        ) from None
    finally:
        found.cancel()
        await driver.close()
