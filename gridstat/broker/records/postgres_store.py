"""A journal in a PostgreSQL database, beside which another broker stands by.

The last statement of each transaction moves the journal's end on, in the row of the lease, and only
if the lease is still ours; so it is the fence, and tells after a broken connection whether the
transaction was committed. It stands last, since renewals wait for that row.
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
    JournalRow,
    Unsettled,
    check_schema,
    checked_rows,
    damaged,
)
from gridstat.broker.records.postgres_connection import ConnectionTimeouts
from gridstat.broker.records.postgres_database import (
    create_tables,
    end_sessions,
    is_broken,
    unopened,
    unreached,
    words_of,
)
from gridstat.model.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gridstat.broker.records.postgres_connection import PostgresConnection
    from gridstat.broker.records.postgres_database import PostgresDatabase

USE: Final = "journal"
ROWS_AT_ONCE: Final = 4_096
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
    """Read by anybody at any time; written by the one who holds the lease, which goes with it.

    `LinkDown` from the start on says that the database is away, and that waiting helps.
    """

    def __init__(
        self, place: PostgresDatabase, *, lost: Callable[[str, str], None] = end_process
    ) -> None:
        place.check()
        self._place = place
        self._lease = Lease(place, lost=lost)
        self._trouble = ""
        self._reconnect_count = 0
        self._end = BEGINNING.number, BEGINNING.checksum
        self._patience = ConnectionTimeouts(place.lease_s)
        self._connection: PostgresConnection = place.open(USE, self._patience)
        try:
            create_tables(self._connection, place)
        except psycopg.Error as error:
            is_away = is_broken(self._connection, error)
            self.close()
            raise (unreached if is_away else unopened)(place, error) from error

    def __str__(self) -> str:
        return str(self._place)

    def claim(self) -> float:
        return self._reaching(lambda: self._lease.claim(self._connection))

    def read(self, after: JournalRow) -> list[JournalRow]:
        """Who holds the lease has no more time than for a write: another may be able to read."""
        self._lease.journal_is_asked()
        try:
            return self._reaching(lambda: self._read(after))
        finally:
            self._lease.journal_has_answered()

    def write(self, rows: Sequence[JournalRow], *, is_whole: bool) -> None:
        """As long as the lease lasts it is tried anew, over another connection if need be."""
        assert self._lease.tenure, "only who holds the lease writes"
        self._lease.journal_is_asked()
        try:
            self._write_at_last(rows, is_whole=is_whole)
        finally:
            self._lease.journal_has_answered()

    def complaint(self) -> str:
        return self._trouble or self._lease.trouble

    def figures(self) -> dict[str, int]:
        return {"tenure": self._lease.tenure, "reconnects": self._reconnect_count}

    def interrupt(self) -> None:
        self._patience.is_over = True

    def close(self) -> None:
        """Give the lease back, so that another need not wait until it runs out."""
        self._lease.release()
        self._connection.close()

    def _reaching(self, work: Callable[[], Found]) -> Found:
        """A store out of reach is not a damaged one: who stands by tries again."""
        try:
            if self._connection.closed:
                self._connect_anew()
            return work()
        except psycopg.Error as error:
            self._trouble = words_of(error)
            if not is_broken(self._connection, error):
                raise StorageFailed(f"journal {self} cannot be read: {self._trouble}") from error
            self._connection.close()
            raise unreached(self._place, error) from error

    def _read(self, after: JournalRow) -> list[JournalRow]:
        """As of one moment: the journal's end is compared with what is there."""
        connection, name = self._connection, str(self)
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            end = connection.execute(_END, (self._place.broker,)).fetchone()
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
                yield from cursor.execute(_READ, (self._place.broker, first, last))

    def _pages_after(self, number: int) -> Iterator[tuple[int, int]]:
        """First and last number of one page of rows after another; each has the time of a lease.

        A statement about all rows at once may say nothing for longer: a server that knows little
        of its table sorts it first. A page is a range of numbers and not a count, so that it is
        short whatever the server's plan is.
        """
        while found := self._connection.execute(_NEXT, (self._place.broker, number)).fetchone():
            (first,) = found
            number = first + ROWS_AT_ONCE - 1
            yield first, number
            self._lease.journal_is_asked()

    def _write_at_last(self, rows: Sequence[JournalRow], *, is_whole: bool) -> None:
        give_up_s = time.monotonic() + self._place.lease_s
        is_in_doubt = False
        while True:
            try:
                if is_in_doubt:
                    self._connect_anew()
                if not (is_in_doubt and self._is_written(rows[-1])):
                    is_in_doubt = False
                    self._write(rows, is_whole=is_whole)
            except psycopg.Error as error:
                self._trouble = words_of(error)
                # While we do not know, no refusal of the server says that nothing is durable.
                is_in_doubt = is_in_doubt or is_broken(self._connection, error)
                if not is_in_doubt:
                    self._check_end(error)
                    raise StorageFailed(self._trouble) from error
                if time.monotonic() > give_up_s:
                    self._lease.lose(f"the journal cannot be written: {self._trouble}")
                    raise Unsettled(self._trouble) from error
                time.sleep(RETRY_S)
            else:
                self._end = rows[-1].number, rows[-1].checksum
                self._trouble = ""
                return

    def _write(self, rows: Sequence[JournalRow], *, is_whole: bool) -> None:
        broker, last = self._place.broker, rows[-1]
        connection = self._connection
        with (
            connection.unwarned() as warnings,
            connection.transaction(),
            connection.cursor() as cursor,
        ):
            if is_whole:
                for first, until in self._pages_after(0):
                    cursor.execute(_DELETE, (broker, first, until))
            for at in range(0, len(rows), ROWS_AT_ONCE):
                columns = zip(*rows[at : at + ROWS_AT_ONCE], strict=True)
                cursor.execute(_INSERT, (broker, *(list(column) for column in columns)))
                self._lease.journal_is_asked()
            end = (SCHEMA, last.number, last.checksum)
            cursor.execute(_MOVE_END, (*end, broker, *self._fence(), *self._end))
            if not cursor.rowcount:
                self._fenced()
            warnings.clear()  # What counts is said of the commit.

    def _is_written(self, last: JournalRow) -> bool:
        """Whether a transaction that was broken off was committed; it waits until it is over.

        To lock the row is a commit of its own, later in the log: where commits wait for copies of
        the database, the answer says that they have the earlier one too.
        """
        with self._connection.unwarned():
            asked = self._connection.execute(f"{_END} FOR UPDATE", (self._place.broker,))
        found = asked.fetchone()
        if found is None or found[3:] != self._fence():
            self._fenced()
        return found is not None and found[1:3] == (last.number, last.checksum)

    def _check_end(self, error: psycopg.Error) -> None:
        """What failed may have failed because another writes: then we are not to write."""
        if isinstance(error, psycopg.errors.UniqueViolation):
            self._fenced()
        try:
            found = self._connection.execute(_END, (self._place.broker,)).fetchone()
        except psycopg.Error:
            return  # The next write will see.
        if found is None or found[1:] != (*self._end, *self._fence()):
            self._fenced()

    def _fence(self) -> tuple[int, str]:
        """What stands in the row of the lease while it is ours."""
        return self._lease.tenure, self._place.holder

    def _fenced(self) -> None:
        self._lease.lose("another broker writes the journal")
        raise StorageFailed("another broker is in charge")

    def _connect_anew(self) -> None:
        self._connection.close()
        self._connection = self._place.connect(USE, self._patience)
        self._reconnect_count += 1
        log.warning("database_reconnected reason=%r", self._trouble)
        end_sessions(self._connection, self._place.holder, USE)
