"""Journal in a PostgreSQL database, for a broker with another broker standing by.

The last statement of each transaction moves the journal's end in the row of the lease, and only if
the lease is still ours. The statement is the fence, and shows after a broken connection whether the
transaction was committed. It is the last one because renewals wait for that row.

A write whose connection breaks is in doubt: the store reconnects, asks whether the transaction was
committed, and repeats it if not. After the time of a lease it gives up, loses the lease and raises
`CommitUnknown`.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, TypeVar

import psycopg

from gridstat.broker.records.journal_lease import RETRY_S, Lease, end_process
from gridstat.broker.records.journal_rows import (
    BEGINNING,
    SCHEMA,
    CommitUnknown,
    JournalRow,
    check_schema,
    checked_rows,
    damaged,
)
from gridstat.broker.records.postgres_connection import ConnectionTimeouts
from gridstat.broker.records.postgres_database import (
    cannot_open,
    create_tables,
    end_sessions,
    error_text,
    is_unavailable,
    unreachable,
)
from gridstat.model.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gridstat.broker.records.postgres_connection import PostgresConnection
    from gridstat.broker.records.postgres_database import PostgresDatabase

USE: Final = "journal"
ROWS_PER_PAGE: Final = 4_096
_END: Final = (
    "SELECT schema, number, checksum, tenure, holder FROM gridstat_brokers WHERE broker = %s"
)
_NEXT: Final = (
    "SELECT number FROM gridstat_operations WHERE broker = %s AND number > %s "
    "ORDER BY number LIMIT 1"
)
_READ: Final = (
    "SELECT number, operation, checksum FROM gridstat_operations "
    "WHERE broker = %s AND number BETWEEN %s AND %s ORDER BY number"
)
_DELETE: Final = "DELETE FROM gridstat_operations WHERE broker = %s AND number BETWEEN %s AND %s"
_INSERT: Final = (
    "INSERT INTO gridstat_operations SELECT %s, * "
    "FROM unnest(%b::bigint[], %b::bytea[], %b::bytea[])"
)
_MOVE_END: Final = (
    "UPDATE gridstat_brokers SET schema = %s, number = %s, checksum = %s "
    "WHERE broker = %s AND tenure = %s AND holder = %s AND number = %s AND checksum = %s"
)

Found = TypeVar("Found")

log = logging.getLogger(__name__)


class PostgresStore:
    """Store that any broker may read; only the holder of the lease writes.

    `LinkDown` means that the database is unavailable, and that waiting helps.
    """

    def __init__(
        self, database: PostgresDatabase, *, lost: Callable[[str, str], None] = end_process
    ) -> None:
        database.check()
        self._database = database
        self._lease = Lease(database, lost=lost)
        self._trouble = ""
        self._reconnect_count = 0
        self._end = BEGINNING.number, BEGINNING.checksum
        self._timeouts = ConnectionTimeouts(database.lease_s)
        self._connection: PostgresConnection = database.open(USE, self._timeouts)
        try:
            create_tables(self._connection, database)
        except psycopg.Error as error:
            is_away = is_unavailable(self._connection, error)
            self.close()
            raise (unreachable if is_away else cannot_open)(database, error) from error

    def __str__(self) -> str:
        return str(self._database)

    def claim(self) -> float:
        return self._with_connection(lambda: self._lease.claim(self._connection))

    def read(self, after: JournalRow) -> list[JournalRow]:
        """Read rows; a holder of the lease must finish each page within the time of a lease."""
        self._lease.journal_request_sent()
        try:
            return self._with_connection(lambda: self._read(after))
        finally:
            self._lease.journal_request_answered()

    def write(self, rows: Sequence[JournalRow], *, is_whole: bool) -> None:
        """Write rows; repeat on a new connection until the lease ends."""
        assert self._lease.tenure, "only who holds the lease writes"
        self._lease.journal_request_sent()
        try:
            self._write_until_decided(rows, is_whole=is_whole)
        finally:
            self._lease.journal_request_answered()

    def complaint(self) -> str:
        return self._trouble or self._lease.trouble

    def figures(self) -> dict[str, int]:
        return {"tenure": self._lease.tenure, "reconnects": self._reconnect_count}

    def interrupt(self) -> None:
        self._timeouts.is_interrupted = True

    def close(self) -> None:
        """Release the lease, so that another broker need not wait until it expires."""
        self._lease.release()
        self._connection.close()

    def _with_connection(self, work: Callable[[], Found]) -> Found:
        """Do work on a connection; raise `LinkDown` if the database is unavailable.

        A broker that stands by tries again after `LinkDown`, but not after `StorageFailed`.
        """
        try:
            if self._connection.closed:
                self._reconnect()
            return work()
        except psycopg.Error as error:
            self._trouble = error_text(error)
            if not is_unavailable(self._connection, error):
                raise StorageFailed(f"journal {self} cannot be read: {self._trouble}") from error
            self._connection.close()
            raise unreachable(self._database, error) from error

    def _read(self, after: JournalRow) -> list[JournalRow]:
        """Read rows in one snapshot of the database, and compare them with the journal's end."""
        connection, name = self._connection, str(self)
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            end = connection.execute(_END, (self._database.broker,)).fetchone()
            if end is None:
                raise damaged(name, "it is gone")
            schema, number, checksum, *_ = end
            check_schema(schema, journal=name)
            rows = checked_rows(self._rows_after(after.number), after, journal=name)
        last = rows[-1] if rows else after
        if number > last.number:
            raise damaged(name, f"rows {last.number + 1} to {number} are missing")
        if (number, checksum) != (last.number, last.checksum):
            raise damaged(name, f"row {last.number} is not the one that was written")
        self._end = number, checksum
        return rows

    def _rows_after(self, number: int) -> Iterator[tuple[int, bytes, bytes]]:
        with self._connection.cursor(binary=True) as cursor:
            for first, last in self._pages_after(number):
                yield from cursor.execute(_READ, (self._database.broker, first, last))

    def _pages_after(self, number: int) -> Iterator[tuple[int, int]]:
        """Yield the first and last number of each page of rows; each page has the time of a lease.

        One statement about all rows may be silent for longer: a server without statistics sorts the
        table first. A page is a range of numbers and not a count, so that it is short under any
        plan.
        """
        while found := self._connection.execute(_NEXT, (self._database.broker, number)).fetchone():
            (first,) = found
            number = first + ROWS_PER_PAGE - 1
            yield first, number
            self._lease.journal_request_sent()

    def _write_until_decided(self, rows: Sequence[JournalRow], *, is_whole: bool) -> None:
        give_up_s = time.monotonic() + self._database.lease_s
        is_in_doubt = False
        while True:
            try:
                if is_in_doubt:
                    self._reconnect()
                if not (is_in_doubt and self._is_written(rows[-1])):
                    is_in_doubt = False
                    self._write(rows, is_whole=is_whole)
            except psycopg.Error as error:
                self._trouble = error_text(error)
                # After a broken transaction, an error does not prove that nothing is durable.
                is_in_doubt = is_in_doubt or is_unavailable(self._connection, error)
                if not is_in_doubt:
                    self._check_end(error)
                    raise StorageFailed(self._trouble) from error
                if time.monotonic() > give_up_s:
                    self._lease.lose(f"the journal cannot be written: {self._trouble}")
                    raise CommitUnknown(self._trouble) from error
                time.sleep(RETRY_S)
            else:
                self._end = rows[-1].number, rows[-1].checksum
                self._trouble = ""
                return

    def _write(self, rows: Sequence[JournalRow], *, is_whole: bool) -> None:
        broker, last = self._database.broker, rows[-1]
        connection = self._connection
        with (
            connection.warnings_as_errors() as warnings,
            connection.transaction(),
            connection.cursor() as cursor,
        ):
            if is_whole:
                for first, until in self._pages_after(0):
                    cursor.execute(_DELETE, (broker, first, until))
            for at in range(0, len(rows), ROWS_PER_PAGE):
                columns = zip(*rows[at : at + ROWS_PER_PAGE], strict=True)
                cursor.execute(_INSERT, (broker, *(list(column) for column in columns)))
                self._lease.journal_request_sent()
            end = (SCHEMA, last.number, last.checksum)
            cursor.execute(_MOVE_END, (*end, broker, *self._fence(), *self._end))
            if not cursor.rowcount:
                self._stop_as_fenced()
            warnings.clear()  # Only a warning of the commit itself matters.

    def _is_written(self, last: JournalRow) -> bool:
        """Return whether an interrupted transaction was committed; wait until it has ended.

        Locking the row is a later commit of its own: if commits wait for replicas of the database,
        the answer proves that the replicas have the earlier one too.
        """
        with self._connection.warnings_as_errors():
            result = self._connection.execute(f"{_END} FOR UPDATE", (self._database.broker,))
        found = result.fetchone()
        if found is None or found[3:] != self._fence():
            self._stop_as_fenced()
        return found is not None and found[1:3] == (last.number, last.checksum)

    def _check_end(self, error: psycopg.Error) -> None:
        """Stop if the write failed because another broker writes the journal."""
        if isinstance(error, psycopg.errors.UniqueViolation):
            self._stop_as_fenced()
        try:
            found = self._connection.execute(_END, (self._database.broker,)).fetchone()
        except psycopg.Error:
            return  # The next write checks it.
        if found is None or found[1:] != (*self._end, *self._fence()):
            self._stop_as_fenced()

    def _fence(self) -> tuple[int, str]:
        """Return tenure and holder, as they are in the row of the lease while it is ours."""
        return self._lease.tenure, self._database.holder

    def _stop_as_fenced(self) -> None:
        self._lease.lose("another broker writes the journal")
        raise StorageFailed("another broker is in charge")

    def _reconnect(self) -> None:
        self._connection.close()
        self._connection = self._database.connect(USE, self._timeouts)
        self._reconnect_count += 1
        log.warning("database_reconnected reason=%r", self._trouble)
        end_sessions(self._connection, self._database.holder, USE)
