"""Rows of a journal, chained by checksums, and the head that tells whether its end is missing.

SQLite takes a damaged end of its write-ahead log for the end of the log. The head, a small file
written after each commit, remembers how far the journal reached, so that such a loss is seen too.

offset | size | field of the head, big-endian
     0 |    8 | number of the last row
     8 |   16 | checksum of the last row
    24 |    8 | checksum of the head itself
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from gridstat.model.errors import StorageFailed

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from pathlib import Path

SCHEMA: Final = 2
"""Of what this release writes: 2 has moves that retire apart. It reads all before it too."""
CHECKSUM_BYTES: Final = 16
APPLICATION_ID: Final = 0x67726964
_INSERTS: Final = tuple(
    (size, f"INSERT INTO operations VALUES {', '.join(['(?, ?, ?)'] * size)}")
    for size in (128, 64, 32, 16, 8, 4, 2, 1)
)
_HEAD: Final = struct.Struct(">Q16s")
_HEAD_CHECKSUM_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class JournalRow:
    """One operation; its checksum covers it, its number and every row before it."""

    number: int
    operation: bytes
    checksum: bytes


def chained(checksum: bytes, number: int, operation: bytes) -> bytes:
    """The checksum of a row that follows the row of `checksum`; b"" begins a journal."""
    digest = blake2b(checksum, digest_size=CHECKSUM_BYTES)
    digest.update(number.to_bytes(8, "big"))
    digest.update(operation)
    return digest.digest()


def check_schema(database: sqlite3.Connection, path: Path) -> int:
    """The file's schema, 0 if it is new; raises unless it is that or a journal that we can read."""
    (schema,) = database.execute("PRAGMA user_version").fetchone()
    (application_id,) = database.execute("PRAGMA application_id").fetchone()
    (tables,) = database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if schema == 0 and tables == 0:
        return 0
    if application_id != APPLICATION_ID:
        raise StorageFailed(f"{path} is a database, but not a broker's journal")
    if schema > SCHEMA:
        raise StorageFailed(
            f"journal {path} is of schema {schema}, and this release reads up to {SCHEMA}",
            hint="start the release that wrote it, or a newer one",
        )
    return int(schema)


def create_schema(database: sqlite3.Connection) -> None:
    database.execute("BEGIN IMMEDIATE")
    database.execute(
        "CREATE TABLE operations "
        "(number INTEGER PRIMARY KEY, operation BLOB NOT NULL, checksum BLOB NOT NULL)"
    )
    database.execute(f"PRAGMA application_id={APPLICATION_ID}")
    raise_schema(database)
    database.execute("COMMIT")


def raise_schema(database: sqlite3.Connection) -> None:
    """With the first rows of this release, in one transaction: an older one reads them no more."""
    database.execute(f"PRAGMA user_version={SCHEMA}")


def insert_rows(database: sqlite3.Connection, rows: Sequence[tuple[int, bytes, bytes]]) -> None:
    """Write rows of number, operation and checksum; many of them in one statement.

    Each statement lets go of the interpreter and then waits for it, beside an event loop that is
    busy for milliseconds, so a statement for each row would be most of a commit's time.
    """
    at = 0
    for size, statement in _INSERTS:
        while len(rows) - at >= size:
            values = [value for row in rows[at : at + size] for value in row]
            database.execute(statement, values)
            at += size


def read_rows(database: sqlite3.Connection, path: Path) -> list[JournalRow]:
    """All rows in order; raises `StorageFailed`, naming the first that is not as it was written."""
    rows: list[JournalRow] = []
    checksum = b""
    for number, operation, stored in database.execute(
        "SELECT number, operation, checksum FROM operations ORDER BY number"
    ):
        if rows and number != rows[-1].number + 1:
            raise _damaged(path, f"row {rows[-1].number + 1} is missing")
        is_sound = number > 0 and isinstance(operation, bytes)
        if not is_sound or stored != (checksum := chained(checksum, number, operation)):
            raise _damaged(path, f"row {number} is not as it was written")
        rows.append(JournalRow(number, operation, checksum))
    return rows


class JournalHead:
    """A file beside the journal that always lags behind it, if at all."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        path = journal.with_name(journal.name + ".head")
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def write(self, number: int, checksum: bytes) -> None:
        """Not synced: a power cut may leave an older head, which still tells no lie."""
        head = _HEAD.pack(number, checksum)
        os.pwrite(self._file, head + _check(head), 0)

    def compare(self, number: int, checksum: bytes) -> None:
        """Raise `StorageFailed` if the journal ends before the head does."""
        found = os.pread(self._file, _HEAD.size + _HEAD_CHECKSUM_BYTES, 0)
        head, check = found[: _HEAD.size], found[_HEAD.size :]
        if len(head) < _HEAD.size or check != _check(head):
            return  # New, or torn by a power cut: the journal speaks for itself.
        head_number, head_checksum = _HEAD.unpack(head)
        if head_number > number:
            raise _damaged(self._journal, f"rows {number + 1} to {head_number} are missing")
        if head_number == number and number and head_checksum != checksum:
            raise _damaged(self._journal, f"row {number} is not the one that was written")

    def close(self) -> None:
        os.close(self._file)


def _check(head: bytes) -> bytes:
    return blake2b(head, digest_size=_HEAD_CHECKSUM_BYTES).digest()


def _damaged(path: Path, what: str) -> StorageFailed:
    return StorageFailed(
        f"journal {path} is damaged: {what}",
        hint="restore it from a copy; routers go on forwarding meanwhile. With an empty journal "
        "all end-points have to register anew",
    )
