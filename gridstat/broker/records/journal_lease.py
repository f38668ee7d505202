"""The right to write a journal that others could write too: held for a while, renewed, fenced.

A holder that cannot renew its lease stops when it runs out by its own clock, counted from before
the last renewal was sent; another can take it only after it ran out by the database's. So two are
in charge at once only if one of them sleeps, and that one can write nothing when it wakes: each
take-over raises `tenure`, and each write asks for its own. It asks for its own holder too: a
database that has lost a take-over, as an older copy of it has, gives the same tenure out again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import psycopg

from gridstat.broker.records.postgres_database import end_sessions, words_of
from gridstat.net.process_end import end_at_once

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg import AsyncConnection, Connection

    from gridstat.broker.records.postgres_database import PostgresDatabase

EXIT_LEASE_LOST: Final = 75
"""EX_TEMPFAIL of sysexits: the same process, started again, stands by."""
RETRY_S: Final = 0.1
NEVER_S: Final = float("inf")
STILL_LEASES: Final = 2
"""For how many times of a lease one must stand still to be nobody's, whatever its end says."""
_LEFT: Final = (
    "SELECT holder, tenure, expires, extract(epoch FROM expires - clock_timestamp())::float8, "
    "lease_s FROM gridstat_brokers WHERE broker = %s"
)
_TAKE: Final = (
    "UPDATE gridstat_brokers SET holder = %(holder)s, tenure = tenure + 1, "
    "lease_s = %(lease_s)s, expires = clock_timestamp() + make_interval(secs => %(lease_s)s) "
    "WHERE broker = %(broker)s AND tenure = %(tenure)s AND expires = %(expires)s RETURNING tenure"
)
_RENEW: Final = (
    "UPDATE gridstat_brokers SET expires = clock_timestamp() + make_interval(secs => %s) "
    "WHERE broker = %s AND tenure = %s AND holder = %s"
)

log = logging.getLogger(__name__)


def end_process(broker: str, reason: str) -> None:
    """At once and without farewell: whatever this process would say, another may know better."""
    hint = "this process ends; started again, it stands by"
    words = "lease_lost broker=%s reason=%r hint=%r"
    end_at_once(EXIT_LEASE_LOST, lambda: log.critical(words, broker, reason, hint))


class Stillness:
    """For how long something has looked the same, by a clock that never goes back."""

    def __init__(self) -> None:
        self._seen: object = None
        self._since_s = 0.0

    def lasting_s(self, seen: object, now_s: float) -> float:
        if seen != self._seen:
            self._seen, self._since_s = seen, now_s
        return now_s - self._since_s


class Lease:
    """Ours from a claim that succeeds to `release`, or until `lost` is called, from any thread."""

    def __init__(
        self, place: PostgresDatabase, *, lost: Callable[[str, str], None] = end_process
    ) -> None:
        self.tenure = 0
        self.trouble = ""
        self._place = place
        self._lost = lost
        self._stillness = Stillness()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending = asyncio.Event()
        self._is_lost = False
        self._asked_since_s = NEVER_S
        self._thread: threading.Thread | None = None

    def claim(self, connection: Connection) -> float:
        """0 if it is ours from now on, else how long another holds it at least, in s."""
        if self._thread is not None:
            return 0.0
        place = self._place
        found = connection.execute(_LEFT, (place.broker,)).fetchone()
        assert found is not None, "a store has a row for its broker"
        holder, tenure, expires, left_s, held_s = found
        still_s = self._stillness.lasting_s((tenure, expires), time.monotonic())
        # A database whose clock has gone back, as that of another server may be behind, would
        # honour a dead holder's lease for as long as its clock needs to catch up. A holder whose
        # lease is longer than ours moves it more rarely.
        if left_s > 0 and still_s < STILL_LEASES * max(place.lease_s, held_s):
            return float(left_s)
        # A stopped process, or one behind a broken wire, may hold locks that we would wait for.
        end_sessions(connection, holder)
        asked_s = time.monotonic()
        seen = {"broker": place.broker, "tenure": tenure, "expires": expires}
        taken = connection.execute(
            _TAKE, {"holder": place.holder, "lease_s": place.lease_s, **seen}
        ).fetchone()
        if taken is None:
            return place.renew_after_s
        self.tenure = int(taken[0])
        log.info("lease_taken broker=%s tenure=%d", place.broker, self.tenure)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._run, args=(self._loop, asked_s), name="lease", daemon=True
        )
        self._thread.start()
        return 0.0

    def lose(self, reason: str) -> None:
        """It is another's, or may be; not meant to return, but for tests."""
        self._is_lost = True  # Nobody renews it while we say so.
        self._lost(self._place.broker, reason)

    def journal_is_asked(self) -> None:
        """Something from now on that has to be answered before the lease could run out.

        Whoever renews for ever what he cannot use keeps others from using it.
        """
        self._asked_since_s = time.monotonic()

    def journal_has_answered(self) -> None:
        self._asked_since_s = NEVER_S

    def release(self) -> None:
        """Let another have it at once; the process ends if that takes longer than the lease."""
        if self._thread is None or self._loop is None:
            return
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()
        self._loop.close()

    # The thread. It has an event loop of its own, so that neither a database that does not answer
    # nor a broker that is busy for seconds keeps it from looking at the clock.

    def _run(self, loop: asyncio.AbstractEventLoop, asked_s: float) -> None:
        try:
            loop.run_until_complete(self._keep(loop, asked_s))
        except BaseException as error:
            # Whatever it was, nobody renews the lease or looks at its end any more.
            self.lose(f"the lease cannot be kept: {error!r}")

    async def _keep(self, loop: asyncio.AbstractEventLoop, asked_s: float) -> None:
        place = self._place
        deadline = loop.call_at(asked_s + place.lease_s, self._ran_out)
        connection: AsyncConnection | None = None
        while not self._ending.is_set() and not self._is_lost:
            if loop.time() - self._asked_since_s > place.lease_s:
                self.lose("the journal does not answer")
                break
            try:
                connection = connection or await self._connect()
                asked_s = loop.time()
                renewed = await connection.execute(_RENEW, self._renewal(place.lease_s))
                if not renewed.rowcount:
                    self.lose("another broker has taken over")
                    break
                deadline.cancel()
                deadline = loop.call_at(asked_s + place.lease_s, self._ran_out)
                self.trouble = ""
                wait_s = place.renew_after_s
            except psycopg.Error as error:
                self.trouble = f"the lease cannot be renewed: {words_of(error)}"
                await _close(connection)
                connection = None
                wait_s = RETRY_S
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), wait_s)
        if not self._is_lost:
            await self._give_back(connection)
        deadline.cancel()
        await _close(connection)

    async def _give_back(self, connection: AsyncConnection | None) -> None:
        """Over another connection where this one has broken; nobody may have noticed yet."""
        for known in (connection, None):
            used = known
            try:
                used = known or await self._connect()
                await used.execute(_RENEW, self._renewal(0))
            except psycopg.Error:
                continue  # At worst it runs out.
            finally:
                await _close(used)
            return

    def _renewal(self, for_s: float) -> tuple[float, str, int, str]:
        return for_s, self._place.broker, self.tenure, self._place.holder

    async def _connect(self) -> AsyncConnection:
        place = self._place
        connection = await psycopg.AsyncConnection.connect(
            place.url, autocommit=True, **place.words("lease")
        )
        try:
            await connection.execute(*place.settling())
            # A renewal that a crash of the database undoes makes a take-over early, and the fence
            # minds that; so renewals need not wait for a disk that is busy.
            await connection.execute("SET synchronous_commit = off")
        except BaseException:
            await connection.close()
            raise
        return connection

    def _ran_out(self) -> None:
        reason = self.trouble or "the lease was not renewed in time"
        self.lose(f"{reason}; after {self._place.lease_s} s another may be in charge")


async def _close(connection: AsyncConnection | None) -> None:
    if connection is not None:
        await connection.close()
