"""Journal in a file of its own: SQLite with a write-ahead log, fully synced.

SQLite takes a damaged end of its write-ahead log for the end of the log. The head, a small file
written after each commit, records the last row, so that such a loss is detected too.

  offset | size | field of the head, big-endian
       0 |    8 | number of the last row
       8 |   16 | checksum of the last row
      24 |    8 | checksum of the head itself
"""

from __future__ import annotations

import logging
import os
import sqlite3
import struct
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from gridstat.broker.records.journal_rows import (
    BEGINNING,
    SCHEMA,
    CommitUnknown,
    JournalRow,
    check_schema,
    checked_rows,
    damaged,
)
from gridstat.model.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

APPLICATION_ID: Final = 0x67726964
_INSERTS: Final = tuple(
    (size, f"INSERT INTO operations VALUES {', '.join(['(?, ?, ?)'] * size)}")
    for size in (128, 64, 32, 16, 8, 4, 2, 1)
)
_PRIMARY_CODE: Final = 0xFF
_UNWRITTEN: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY})
"""Error codes of a commit that has not reached the end of the log."""
_HEAD: Final = struct.Struct(">Q16s")
_HEAD_CHECKSUM_BYTES: Final = 8

log = logging.getLogger(__name__)


class SqliteStore:
    """Journal file of one broker; the lock ends with the process, also if it is killed.

    `may_be_older` accepts a journal that is older than its head: restored from a copy, or begun
    again, as the operator has confirmed.
    """

    def __init__(self, path: Path, *, may_be_older: bool = False) -> None:
        self._path = path
        self._may_be_older = may_be_older
        self._schema = SCHEMA
        self._head_failure_count = 0
        self._database, self._head = self._open()

    def __str__(self) -> str:
        return str(self._path)

    def claim(self) -> float:
        return 0.0

    def read(self, after: JournalRow) -> list[JournalRow]:
        try:
            found = self._database.execute(
                "SELECT number, operation, checksum FROM operations WHERE number > ? "
                "ORDER BY number",
                (after.number,),
            )
            rows = checked_rows(found, after, journal=str(self))
        except sqlite3.Error as error:
            raise StorageFailed(f"journal {self} cannot be read: {error}") from error
        self._compare_with_head(rows[-1] if rows else after)
        return rows

    def write(self, rows: Sequence[JournalRow], *, is_whole: bool) -> None:
        database = self._database
        try:
            database.execute("BEGIN IMMEDIATE")
            if self._schema != SCHEMA:
                _raise_schema(database)
            if is_whole:
                database.execute("DELETE FROM operations")
            _insert(database, rows)
            _commit(database)
        except sqlite3.Error as error:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise StorageFailed(str(error)) from error
        self._schema = SCHEMA
        try:
            self._head.write(rows[-1])
        except OSError:
            self._head_failure_count += 1  # The commit stands; an older head is still correct.

    def limit(self, bytes_max: int) -> None:
        """Limit the size of the file; a write beyond it fails as on a full disk."""
        (page_bytes,) = self._database.execute("PRAGMA page_size").fetchone()
        self._database.execute(f"PRAGMA max_page_count={max(1, bytes_max // page_bytes)}")

    def complaint(self) -> str:
        return ""

    def figures(self) -> dict[str, int]:
        return {"head_failures": self._head_failure_count}

    def interrupt(self) -> None:
        """Do nothing: reading a file does not wait."""

    def close(self) -> None:
        """Merge the log into the file and close it."""
        self._database.close()
        self._head.close()

    def _compare_with_head(self, last: JournalRow) -> None:
        try:
            self._head.compare(last)
        except StorageFailed as error:
            if not self._may_be_older:
                raise
            log.warning("older_journal_taken reason=%r", error.args[0])
            self._head.reset(last)

    def _open(self) -> tuple[sqlite3.Connection, JournalHead]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # SQLite gives the files beside the database the same mode.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            database = sqlite3.connect(
                self._path, isolation_level=None, check_same_thread=False, timeout=1.0
            )
            try:
                self._prepare(database)
                return database, JournalHead(self._path)
            except BaseException:
                database.close()
                raise
        except (sqlite3.Error, OSError) as error:
            raise StorageFailed(
                f"journal {self} cannot be opened: {error}",
                hint="does another broker use it, and may this user write there?",
            ) from error

    def _prepare(self, database: sqlite3.Connection) -> None:
        database.execute("PRAGMA locking_mode=EXCLUSIVE")
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        (schema,) = database.execute("PRAGMA user_version").fetchone()
        (application_id,) = database.execute("PRAGMA application_id").fetchone()
        (tables,) = database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if schema == 0 and tables == 0:
            _create(database)
            return
        if application_id != APPLICATION_ID:
            raise StorageFailed(f"{self} is a database, but not a broker's journal")
        check_schema(schema, journal=str(self))
        self._schema = schema


class JournalHead:
    """File beside the journal that records its last row; it is never ahead of the journal."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._path = journal.with_name(journal.name + ".head")
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)

    def write(self, last: JournalRow) -> None:
        """Write the head without sync: a power cut may leave an older head, which is still
        correct."""
        head = _HEAD.pack(last.number, last.checksum)
        os.pwrite(self._file, head + _head_checksum(head), 0)

    def reset(self, last: JournalRow) -> None:
        """Write and sync the head: an older one would refer to rows that are gone."""
        try:
            self.write(last)
            os.fsync(self._file)
        except OSError as error:
            raise StorageFailed(f"{self._path} cannot be written: {error}") from error

    def compare(self, last: JournalRow) -> None:
        """Raise `StorageFailed` if the journal ends before the head does."""
        found = os.pread(self._file, _HEAD.size + _HEAD_CHECKSUM_BYTES, 0)
        head, check = found[: _HEAD.size], found[_HEAD.size :]
        if len(head) < _HEAD.size or check != _head_checksum(head):
            return  # New, or torn by a power cut: there is nothing to compare with.
        number, checksum = _HEAD.unpack(head)
        if number > last.number:
            raise self._damaged(f"rows {last.number + 1} to {number} are missing")
        if number == last.number and last != BEGINNING and checksum != last.checksum:
            raise self._damaged(f"row {number} is not the one that was written")

    def _damaged(self, what: str) -> StorageFailed:
        hint = (
            f"{self._path} knows of a later end. Restore the newest copy; if this is it, or the "
            "journal is to begin anew, start the broker with --begin-at-term above its last term"
        )
        return damaged(str(self._journal), what, hint=hint)

    def close(self) -> None:
        os.close(self._file)


def _create(database: sqlite3.Connection) -> None:
    database.execute("BEGIN IMMEDIATE")
    database.execute(
        "CREATE TABLE operations "
        "(number INTEGER PRIMARY KEY, operation BLOB NOT NULL, checksum BLOB NOT NULL)"
    )
    database.execute(f"PRAGMA application_id={APPLICATION_ID}")
    _raise_schema(database)
    database.execute("COMMIT")


def _raise_schema(database: sqlite3.Connection) -> None:
    """Raise the schema with the first rows of this release: older releases cannot read them."""
    database.execute(f"PRAGMA user_version={SCHEMA}")


def _insert(database: sqlite3.Connection, rows: Sequence[JournalRow]) -> None:
    """Insert rows, many in one statement.

    Each statement releases the interpreter lock and waits for it again, beside an event loop that
    is busy for milliseconds; one statement per row would take most of a commit's time.
    """
    at = 0
    for size, statement in _INSERTS:
        while len(rows) - at >= size:
            values = [value for row in rows[at : at + size] for value in row]
            database.execute(statement, values)
            at += size


def _commit(database: sqlite3.Connection) -> None:
    """Commit; raise `CommitUnknown` unless it is known that nothing was committed.

    If the log cannot be synced, all of it may still be there after a crash. If it cannot be
    written, as on a full disk or beyond a file size limit, its end is missing, and only the end
    commits it.
    """
    try:
        database.execute("COMMIT")
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0)
        if code & _PRIMARY_CODE in _UNWRITTEN or code == sqlite3.SQLITE_IOERR_WRITE:
            raise
        raise CommitUnknown(f"the journal may have been written, or not: {error}") from error


def _head_checksum(head: bytes) -> bytes:
    return blake2b(head, digest_size=_HEAD_CHECKSUM_BYTES).digest()
