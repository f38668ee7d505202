"""Rows of a journal, chained by checksums, and the interface of every store of rows."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from gridstat.broker.records.operations import SNAPSHOT_MARK
from gridstat.model.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SCHEMA: Final = 4
"""Schema that this release writes; it also reads all earlier ones.

Schema 2 added `Retired`, schema 3 the operations of brokers in a tree, schema 4 access rules.
"""
CHECKSUM_BYTES: Final = 16
_RESTORE: Final = (
    "restore it from a copy; routers go on forwarding meanwhile. With an empty journal all "
    "end-points have to register again"
)


class JournalRow(NamedTuple):
    """One operation; the checksum covers the operation, its number and every row before it."""

    number: int
    operation: bytes
    checksum: bytes


BEGINNING: Final = JournalRow(0, b"", b"")
"""Position before the first row of a journal."""


class CommitUnknown(Exception):  # noqa: N818
    """Error of a commit that may or may not be durable, so that no answer may be sent."""


class Store(Protocol):
    """Store of the rows of one journal, for one thread at a time; its text names it."""

    def claim(self) -> float:
        """Try to become the only writer; return 0 on success, else the seconds to wait."""
        ...

    def read(self, after: JournalRow) -> list[JournalRow]:
        """Return the valid rows after the given one, or those of a later snapshot.

        Raises `StorageFailed` on damage, and `LinkDown` if the store is out of reach.
        """
        ...

    def write(self, rows: Sequence[JournalRow], *, is_whole: bool) -> None:
        """Make rows durable, all or (with `StorageFailed`) none; with `is_whole` in place of all
        rows.

        Raises `CommitUnknown` if it may be either; only a new process, which reads the store, can
        tell.
        """
        ...

    def complaint(self) -> str:
        """Return a problem of the store for people; empty if there is none."""
        ...

    def figures(self) -> Mapping[str, int]: ...

    def interrupt(self) -> None:
        """Make a `claim` or `read` in another thread raise `LinkDown` soon; none will follow.

        May be called from any thread.
        """
        ...

    def close(self) -> None: ...


def chained(checksum: bytes, number: int, operation: bytes) -> bytes:
    """Return the checksum of a row after the row of `checksum`; b"" begins a journal."""
    digest = blake2b(checksum, digest_size=CHECKSUM_BYTES)
    digest.update(number.to_bytes(8, "big"))
    digest.update(operation)
    return digest.digest()


def checked_rows(
    found: Iterable[tuple[int, bytes, bytes]], after: JournalRow, *, journal: str
) -> list[JournalRow]:
    """Return the rows; raise `StorageFailed` with the first that is not as it was written.

    A journal begins at any number, and again with each snapshot.
    """
    rows: list[JournalRow] = []
    last = after
    for number, operation, stored in found:
        if not rows and operation == SNAPSHOT_MARK:
            last = BEGINNING
        if last != BEGINNING and number != last.number + 1:
            raise damaged(journal, f"row {last.number + 1} is missing")
        is_sound = number > 0 and isinstance(operation, bytes)
        if not is_sound or stored != chained(last.checksum, number, operation):
            raise damaged(journal, f"row {number} is not as it was written")
        last = JournalRow(number, operation, stored)
        rows.append(last)
    return rows


def check_schema(schema: int, *, journal: str) -> None:
    """Raise `StorageFailed` unless this release reads the schema."""
    if schema > SCHEMA:
        raise StorageFailed(
            f"journal {journal} is of schema {schema}, and this release reads up to {SCHEMA}",
            hint="start the release that wrote it, or a newer one",
        )


def damaged(journal: str, what: str, *, hint: str = _RESTORE) -> StorageFailed:
    return StorageFailed(f"journal {journal} is damaged: {what}", hint=hint)
