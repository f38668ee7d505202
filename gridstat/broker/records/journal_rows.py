"""Rows of a journal, chained by checksums, and what every place to keep them in can do."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from gridstat.broker.records.operations import SNAPSHOT_MARK
from gridstat.model.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SCHEMA: Final = 3
"""Of what this release writes: 2 has moves that retire apart, 3 what brokers of a tree write. It
reads all before it too."""
CHECKSUM_BYTES: Final = 16
_RESTORE: Final = (
    "restore it from a copy; routers go on forwarding meanwhile. With an empty journal all "
    "end-points have to register anew"
)


class JournalRow(NamedTuple):
    """One operation; its checksum covers it, its number and every row before it."""

    number: int
    operation: bytes
    checksum: bytes


BEGINNING: Final = JournalRow(0, b"", b"")
"""Before the first row of a journal."""


class Unsettled(Exception):  # noqa: N818
    """Whether something is durable cannot be found out; nobody may be told anything."""


class Store(Protocol):
    """Where the rows of one journal are kept; for one thread at a time. Its text names it."""

    def claim(self) -> float:
        """Try to become the only writer: 0 for success, else after how long to try again, in s."""
        ...

    def read(self, after: JournalRow) -> list[JournalRow]:
        """The sound rows that follow one; those of a later snapshot, where there is one.

        Raises `StorageFailed` on damage, and `LinkDown` where the store is out of reach.
        """
        ...

    def write(self, rows: Sequence[JournalRow], *, is_whole: bool) -> None:
        """Make them durable, all or, with `StorageFailed`, none; in place of all if `is_whole`.

        `Unsettled` if it may be either; only a new process, which reads, can tell.
        """
        ...

    def complaint(self) -> str:
        """What people should know of this store now; empty if nothing."""
        ...

    def figures(self) -> Mapping[str, int]: ...

    def interrupt(self) -> None:
        """Nobody will claim or read any more; who does at this moment hears `LinkDown` soon.

        From any thread.
        """
        ...

    def close(self) -> None: ...


def chained(checksum: bytes, number: int, operation: bytes) -> bytes:
    """The checksum of a row that follows the row of `checksum`; b"" begins a journal."""
    digest = blake2b(checksum, digest_size=CHECKSUM_BYTES)
    digest.update(number.to_bytes(8, "big"))
    digest.update(operation)
    return digest.digest()


def checked_rows(
    found: Iterable[tuple[int, bytes, bytes]], after: JournalRow, *, journal: str
) -> list[JournalRow]:
    """The same rows; raises `StorageFailed`, naming the first that is not as it was written.

    A journal begins at any number; it begins anew with each snapshot.
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
    """Raise `StorageFailed` unless this release reads it."""
    if schema > SCHEMA:
        raise StorageFailed(
            f"journal {journal} is of schema {schema}, and this release reads up to {SCHEMA}",
            hint="start the release that wrote it, or a newer one",
        )


def damaged(journal: str, what: str, *, hint: str = _RESTORE) -> StorageFailed:
    return StorageFailed(f"journal {journal} is damaged: {what}", hint=hint)
