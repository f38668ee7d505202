"""Keeps one session with one peer alive: dials the peer's addresses in turn, without end.

After a failed attempt or a lost session the dialer tries the next address, then waits with
exponential back-off and jitter. Only a session that lasted `SETTLED_S` resets the back-off.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from gridstat.model.errors import DeadlinePassed, GridStatError, LinkDown
from gridstat.net.command.address import address_text

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Sequence

    from gridstat.net.command.address import Address
    from gridstat.net.command.identity import Identity
    from gridstat.net.command.session import Session

BACK_OFF_FIRST_S: Final = 0.05
BACK_OFF_MOST_S: Final = 2.0
BACK_OFF_MOST_OF_SEVERAL_S: Final = 0.5
"""Longest wait for a peer with several addresses, so that a stand-by takes over within seconds."""
CONNECT_MOST_OF_SEVERAL_S: Final = 1.0
"""Connect timeout for a peer with several addresses, so that a dead host delays the next little."""
OPEN_MOST_OF_SEVERAL_S: Final = 2.0
"""Timeout from connecting to Hello for a peer with several addresses.

The system of a stopped process still accepts connections.
"""
SETTLED_S: Final = 1.0
"""A session that lasted this long resets the back-off.

Otherwise two processes that replace each other's sessions would do so twenty times a second.
"""
REASONS_LOGGED_MAX: Final = 8

log = logging.getLogger(__name__)


class BackOff:
    """Exponential back-off from first to most, each wait shortened by up to half at random.

    The jitter spreads the clients of a server that returns.
    """

    def __init__(
        self,
        random: random.Random,
        *,
        first_s: float = BACK_OFF_FIRST_S,
        most_s: float = BACK_OFF_MOST_S,
    ) -> None:
        self._random = random
        self._first_s = first_s
        self._most_s = most_s
        self._next_s = first_s

    def next_s(self, most_s: float = inf) -> float:
        """Return the wait for this attempt, at most `most_s`, and double the next one."""
        wait_s = min(self._next_s, most_s) * self._random.uniform(0.5, 1.0)
        self._next_s = min(2 * self._next_s, self._most_s)
        return wait_s

    def reset(self) -> None:
        self._next_s = self._first_s


@dataclass(frozen=True, slots=True)
class Target:
    """A peer and its addresses; `on_failure` receives the error of each failed attempt."""

    identity: Identity
    addresses: Sequence[Address]
    on_failure: Callable[[GridStatError], None] | None = None


class Dialer:
    """Has at most one session with its target at any time."""

    def __init__(
        self,
        target: Target,
        connect: Callable[[Address], Awaitable[Session]],
        back_off: BackOff,
        *,
        connect_within_s: float,
    ) -> None:
        self._target = target
        self._connect = connect
        self._back_off = back_off
        self._connect_within_s = connect_within_s
        self._session: Session | None = None
        self._logged_reasons: set[str] = set()

    def retarget(self, target: Target) -> None:
        """Replace the addresses of the same peer from the next attempt on."""
        assert target.identity == self._target.identity
        self._target = target

    def stop(self, task: asyncio.Task[None]) -> None:
        """End the task of `run`, and a session that is only being opened; an open one stays."""
        task.cancel()
        if self._session is not None and not self._session.is_open:
            self._session.abort()

    async def run(self) -> None:
        """Dial until stopped."""
        while True:
            addresses = self._target.addresses
            has_several = len(addresses) > 1
            for address in addresses:
                await self._one_session(address, has_others=has_several)
            wait_s = self._back_off.next_s(BACK_OFF_MOST_OF_SEVERAL_S if has_several else inf)
            await asyncio.sleep(wait_s)

    async def _one_session(self, address: Address, *, has_others: bool) -> None:
        loop = asyncio.get_running_loop()
        where = f"{self._target.identity} at {address_text(address)}"
        within_s, called_s = self._connect_within_s, loop.time()
        if has_others:
            within_s = min(within_s, CONNECT_MOST_OF_SEVERAL_S)
        try:
            async with asyncio.timeout(within_s):
                session = await self._connect(address)
        except TimeoutError:
            self._report_failure(DeadlinePassed(f"{where}: no answer"))
            return
        except OSError as error:
            self._report_failure(LinkDown(f"{where}: {error.strerror or error}"))
            return
        began_s = loop.time()
        self._session = session
        if has_others:
            silence = DeadlinePassed(f"{where}: no answer")
            loop.call_at(called_s + OPEN_MOST_OF_SEVERAL_S, _abort_unopened, session, silence)
        await asyncio.shield(session.finished)
        if session.was_open and loop.time() - began_s >= SETTLED_S:
            self._back_off.reset()
            self._logged_reasons.clear()
        if session.error is not None:
            self._report_failure(session.error)

    def _report_failure(self, error: GridStatError) -> None:
        text = str(error.args[0])
        if text not in self._logged_reasons and len(self._logged_reasons) < REASONS_LOGGED_MAX:
            # Each reason is logged once per absence: the attempts go on for hours, and each
            # address fails with a text of its own.
            log.warning("no_session peer=%s reason=%r", self._target.identity, text)
            self._logged_reasons.add(text)
        if self._target.on_failure is not None:
            self._target.on_failure(error)


def _abort_unopened(session: Session, error: GridStatError) -> None:
    """Abort a session that was never open, without Bye."""
    if not session.was_open:
        session.abort(error)
