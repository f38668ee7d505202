"""Lease on a journal in a shared database: the right to write it, renewed and fenced.

States: free, held (a thread renews it), lost. A broker claims a free or expired lease; each claim
raises `tenure`. The holder renews it four times per lease. A holder that cannot renew stops when
the lease expires by its own clock, counted from before the last renewal was sent; another broker
can claim it only after it expired by the database's clock. So two brokers are in charge at once
only if one of them is suspended, and that one can write nothing when it resumes: each write checks
tenure and holder. The holder is checked too, because a database that was restored from an older
copy may assign the same tenure again.

Timeout: a journal request without an answer for a whole lease also loses the lease, so that another
broker with a better connection takes over. On loss the process ends at once; started again, it
stands by.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import psycopg

from gridstat.broker.records.postgres_database import end_sessions, error_text
from gridstat.net.process_end import end_at_once

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg import AsyncConnection, Connection

    from gridstat.broker.records.postgres_database import PostgresDatabase

EXIT_LEASE_LOST: Final = 75
"""Exit code EX_TEMPFAIL of sysexits: the same process, started again, stands by."""
RETRY_S: Final = 0.1
NEVER_S: Final = float("inf")
UNCHANGED_LEASES_MIN: Final = 2
"""A lease that has not changed for this many lease times is free, whatever its expiry says."""
_SELECT_LEASE: Final = (
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
    """End the process at once, since another broker may be in charge."""
    hint = "this process ends; started again, it stands by"
    text = "lease_lost broker=%s reason=%r hint=%r"
    end_at_once(EXIT_LEASE_LOST, lambda: log.critical(text, broker, reason, hint))


class UnchangedTime:
    """Measures for how long a value has not changed, by a steady clock."""

    def __init__(self) -> None:
        self._seen: object = None
        self._since_s = 0.0

    def unchanged_s(self, seen: object, now_s: float) -> float:
        if seen != self._seen:
            self._seen, self._since_s = seen, now_s
        return now_s - self._since_s


class Lease:
    """A lease, held from a successful claim until `release`, or until `lost` is called.

    `lost` may be called from any thread.
    """

    def __init__(
        self, database: PostgresDatabase, *, lost: Callable[[str, str], None] = end_process
    ) -> None:
        self.tenure = 0
        self.trouble = ""
        self._database = database
        self._lost = lost
        self._unchanged = UnchangedTime()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending = asyncio.Event()
        self._is_lost = False
        self._waiting_since_s = NEVER_S
        self._thread: threading.Thread | None = None

    def claim(self, connection: Connection) -> float:
        """Try to take the lease; return 0 on success, else the seconds for which another holds
        it."""
        if self._thread is not None:
            return 0.0
        database = self._database
        found = connection.execute(_SELECT_LEASE, (database.broker,)).fetchone()
        assert found is not None, "a store has a row for its broker"
        holder, tenure, expires, left_s, held_s = found
        unchanged_s = self._unchanged.unchanged_s((tenure, expires), time.monotonic())
        # A database whose clock was set back, or a stand-by server with a slow clock, would honour
        # the lease of a dead holder until its clock has caught up. So a lease that has not changed
        # for long enough counts as free. A holder with a longer lease renews it more rarely.
        if left_s > 0 and unchanged_s < UNCHANGED_LEASES_MIN * max(database.lease_s, held_s):
            return float(left_s)
        # A stopped or unreachable process may hold locks that would block us.
        end_sessions(connection, holder)
        sent_s = time.monotonic()
        seen = {"broker": database.broker, "tenure": tenure, "expires": expires}
        taken = connection.execute(
            _TAKE, {"holder": database.holder, "lease_s": database.lease_s, **seen}
        ).fetchone()
        if taken is None:
            return database.renew_after_s
        self.tenure = int(taken[0])
        log.info("lease_taken broker=%s tenure=%d", database.broker, self.tenure)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._run, args=(self._loop, sent_s), name="lease", daemon=True
        )
        self._thread.start()
        return 0.0

    def lose(self, reason: str) -> None:
        """Give up a lease that another broker holds or may hold; returns only in tests."""
        self._is_lost = True  # Stops the renewals, before `lost` ends the process.
        self._lost(self._database.broker, reason)

    def journal_request_sent(self) -> None:
        """Start the deadline of a journal request, which must be answered within the time of a
        lease.

        A holder that renewed a lease it cannot use would keep others from using it.
        """
        self._waiting_since_s = time.monotonic()

    def journal_request_answered(self) -> None:
        self._waiting_since_s = NEVER_S

    def release(self) -> None:
        """Release the lease at once; the process ends if that takes longer than the lease."""
        if self._thread is None or self._loop is None:
            return
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join()
        self._loop.close()

    # The thread. It has an event loop of its own, so that neither a database that does not answer
    # nor a broker that is busy for seconds keeps it from looking at the clock.

    def _run(self, loop: asyncio.AbstractEventLoop, sent_s: float) -> None:
        try:
            loop.run_until_complete(self._renew_until_ended(loop, sent_s))
        except BaseException as error:
            # Without this thread nobody renews the lease or watches its end.
            self.lose(f"the lease cannot be kept: {error!r}")

    async def _renew_until_ended(self, loop: asyncio.AbstractEventLoop, sent_s: float) -> None:
        database = self._database
        deadline = loop.call_at(sent_s + database.lease_s, self._expired)
        connection: AsyncConnection | None = None
        while not self._ending.is_set() and not self._is_lost:
            if loop.time() - self._waiting_since_s > database.lease_s:
                self.lose("the journal does not answer")
                break
            try:
                connection = connection or await self._connect()
                sent_s = loop.time()
                renewed = await connection.execute(_RENEW, self._renewal(database.lease_s))
                if not renewed.rowcount:
                    self.lose("another broker has taken over")
                    break
                deadline.cancel()
                deadline = loop.call_at(sent_s + database.lease_s, self._expired)
                self.trouble = ""
                wait_s = database.renew_after_s
            except psycopg.Error as error:
                self.trouble = f"the lease cannot be renewed: {error_text(error)}"
                await _close(connection)
                connection = None
                wait_s = RETRY_S
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), wait_s)
        if not self._is_lost:
            await self._release_in_database(connection)
        deadline.cancel()
        await _close(connection)

    async def _release_in_database(self, connection: AsyncConnection | None) -> None:
        """Release the lease in the database, over a new connection if the present one is broken."""
        for known in (connection, None):
            used = known
            try:
                used = known or await self._connect()
                await used.execute(_RENEW, self._renewal(0))
            except psycopg.Error:
                continue  # The lease expires anyway.
            finally:
                await _close(used)
            return

    def _renewal(self, for_s: float) -> tuple[float, str, int, str]:
        return for_s, self._database.broker, self.tenure, self._database.holder

    async def _connect(self) -> AsyncConnection:
        database = self._database
        connection = await psycopg.AsyncConnection.connect(
            database.url, autocommit=True, **database.connection_options("lease")
        )
        try:
            await connection.execute(*database.session_settings())
            # A crash of the database may undo a renewal, and a take-over then comes early; the
            # fence allows for that. So renewals need not wait for a busy disk.
            await connection.execute("SET synchronous_commit = off")
        except BaseException:
            await connection.close()
            raise
        return connection

    def _expired(self) -> None:
        reason = self.trouble or "the lease was not renewed in time"
        self.lose(f"{reason}; after {self._database.lease_s} s another may be in charge")


async def _close(connection: AsyncConnection | None) -> None:
    if connection is not None:
        await connection.close()
