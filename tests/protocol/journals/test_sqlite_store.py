"""A journal in a file: damage, a full disk, old schemas, a second broker: found, and named."""

from __future__ import annotations

import asyncio
import errno
import shutil
import sqlite3
from typing import TYPE_CHECKING, Any, cast

import pytest

from gridstat.broker.records import journal_rows
from gridstat.broker.records.journal import Journal
from gridstat.broker.records.journal_rows import SCHEMA
from gridstat.broker.records.operations import Retired, encode
from gridstat.broker.records.sqlite_store import SqliteStore
from gridstat.model.errors import StorageFailed
from tests.protocol.journals import places

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "broker" / "journal.db"


def write(path: Path, *groups: tuple[bytes, ...]) -> None:
    places.write(places.FilePlace(path), *groups)


def load(path: Path) -> list[bytes]:
    return places.load(places.FilePlace(path))


def test_it_is_durable_in_full_and_written_ahead(path: Path) -> None:
    write(path, (b"a",))
    store = SqliteStore(path)
    (mode,) = store._database.execute("PRAGMA journal_mode").fetchone()
    (synchronous,) = store._database.execute("PRAGMA synchronous").fetchone()
    store.close()
    assert (mode, synchronous) == ("wal", 2)


def test_a_flipped_bit_is_found_and_its_row_named(path: Path) -> None:
    write(path, *((b"operation %d" % number,) for number in range(20)))
    with sqlite3.connect(path) as database:
        (operation,) = database.execute(
            "SELECT operation FROM operations WHERE number = 7"
        ).fetchone()
        flipped = bytes([operation[0] ^ 1]) + operation[1:]
        database.execute("UPDATE operations SET operation = ? WHERE number = 7", (flipped,))
    database.close()
    with pytest.raises(StorageFailed, match="row 7 is not as it was written"):
        load(path)


@pytest.mark.parametrize(
    ("number", "words"), [(7, "row 7 is missing"), (20, "rows 20 to 20 are missing")]
)
def test_a_missing_row_is_found_also_at_the_end(path: Path, number: int, words: str) -> None:
    write(path, *((b"operation %d" % number,) for number in range(20)))
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM operations WHERE number = ?", (number,))
    database.close()
    with pytest.raises(StorageFailed, match=words):
        load(path)


def test_every_flipped_bit_of_the_file_is_harmless_or_found(path: Path, tmp_path: Path) -> None:
    operations = [b"operation %d" % number for number in range(30)]
    write(path, *((operation,) for operation in operations))
    whole = path.read_bytes()
    copy = tmp_path / "copy" / "journal.db"
    copy.parent.mkdir()
    found = 0
    for at in range(0, len(whole), 13):
        copy.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        shutil.copy(f"{path}.head", f"{copy}.head")
        try:
            assert load(copy) == operations
        except StorageFailed:
            found += 1
    assert found > 0


def test_a_lost_end_of_the_write_ahead_log_is_found(path: Path, tmp_path: Path) -> None:
    store = SqliteStore(path)
    journal = Journal(store)
    copy = tmp_path / "copy" / "journal.db"
    copy.parent.mkdir()

    async def persist_some() -> None:
        for token in range(1, 20):
            await journal.persist(token, (b"%d" % token,))

    asyncio.run(persist_some())
    for end in ("", "-wal", ".head"):
        shutil.copy(f"{path}{end}", f"{copy}{end}")
    journal.close()
    log = copy.with_name("journal.db-wal")
    log.write_bytes(log.read_bytes()[:-5_000])
    with pytest.raises(StorageFailed, match="are missing"):
        load(copy)


def test_a_journal_of_a_newer_schema_is_refused(path: Path) -> None:
    write(path, (b"a",))
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version=99")
    database.close()
    with pytest.raises(StorageFailed, match="schema 99"):
        load(path)


def schema(path: Path) -> int:
    with sqlite3.connect(path) as database:
        (found,) = database.execute("PRAGMA user_version").fetchone()
    database.close()
    return int(found)


def test_a_journal_of_an_older_schema_is_read_and_becomes_ours_with_the_first_row(
    path: Path,
) -> None:
    write(path, (b"a",))
    assert schema(path) == SCHEMA > 1
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version=1")
    database.close()

    assert load(path) == [b"a"]
    assert schema(path) == 1  # The older release may still go back to it.
    write(path, (b"b",))
    assert schema(path) == SCHEMA
    assert load(path) == [b"a", b"b"]


def test_a_downgraded_broker_says_that_a_newer_release_wrote_the_journal(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, (encode(Retired(subscription_id=1, generation=1)),))
    monkeypatch.setattr(journal_rows, "SCHEMA", 1)
    with pytest.raises(
        StorageFailed, match=f"schema {SCHEMA}, and this release reads up to 1"
    ) as refused:
        load(path)
    assert "start the release that wrote it" in refused.value.hint


def test_another_database_is_not_taken_for_a_journal(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE something (a)")
    database.close()
    with pytest.raises(StorageFailed, match="not a broker's journal"):
        load(path)


def test_a_file_that_is_no_database_is_named(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(StorageFailed, match=r"journal\.db"):
        load(path)


def test_a_second_broker_cannot_open_the_same_journal(path: Path) -> None:
    first = SqliteStore(path)
    with pytest.raises(StorageFailed, match="locked"):
        SqliteStore(path)
    first.close()


def test_a_full_disk_fails_the_write_and_the_epoch_and_a_new_epoch_goes_on(path: Path) -> None:
    store = SqliteStore(path)
    journal = Journal(store)
    journal.load()
    new_epoch = 1 << 32

    async def fill() -> list[object]:
        await journal.persist(1, (b"first",))
        store.limit(40_000)
        tasks = [
            journal.persist(2, (b"x" * 100_000,)),
            journal.persist(3, (b"small",)),
        ]
        failed = await asyncio.gather(*tasks, return_exceptions=True)
        store.limit(2**40)
        later = await asyncio.gather(journal.persist(4, (b"too early",)), return_exceptions=True)
        await journal.persist(new_epoch + 1, (b"after",))
        return [*failed, *later]

    outcomes = asyncio.run(fill())
    figures = journal.figures()
    journal.close()
    assert [type(outcome) for outcome in outcomes] == [StorageFailed] * 3
    assert "full" in str(outcomes[0])
    assert figures["failures"] == 1
    assert load(path) == [b"first", b"after"]


def test_a_head_that_cannot_be_written_is_counted_and_the_commit_stands(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = SqliteStore(path)
    journal = Journal(store)
    journal.load()
    monkeypatch.setattr(store._head, "write", full)

    async def persist_two() -> None:
        for token in (1, 2):
            await asyncio.wait_for(journal.persist(token, (b"a",)), 5)

    asyncio.run(persist_two())
    journal.close()
    assert journal.figures()["head_failures"] == 2
    assert load(path) == [b"a", b"a"]


class Committing:
    """A database whose commit says that it failed, whether it did or not."""

    def __init__(self, inner: sqlite3.Connection, code: int, *, is_written: bool) -> None:
        self._inner = inner
        self._code = code
        self._is_written = is_written

    def execute(self, statement: str, *words: Any) -> Any:
        if statement != "COMMIT":
            return self._inner.execute(statement, *words)
        self._inner.execute("COMMIT" if self._is_written else "ROLLBACK")
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = self._code
        raise error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR])
def test_nobody_hears_that_a_commit_has_failed_which_may_be_there_after_a_crash(
    path: Path, code: int
) -> None:
    deaths: list[str] = []
    store = SqliteStore(path)
    journal = Journal(store, died=lambda: deaths.append("died"))
    journal.load()
    store._database = cast("Any", Committing(store._database, code, is_written=True))
    with pytest.raises(StorageFailed, match="its thread has failed"):
        asyncio.run(persist_one(journal))
    journal.close()
    assert deaths == ["died"]
    assert load(path) == [b"a"]


@pytest.mark.parametrize(
    "code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_IOERR_WRITE]
)
def test_a_commit_that_found_no_room_is_told_and_the_journal_goes_on(path: Path, code: int) -> None:
    deaths: list[str] = []
    store = SqliteStore(path)
    journal = Journal(store, died=lambda: deaths.append("died"))
    journal.load()
    inner = store._database
    store._database = cast("Any", Committing(inner, code, is_written=False))
    with pytest.raises(StorageFailed, match="disk I/O error"):
        asyncio.run(persist_one(journal))
    store._database = inner
    asyncio.run(persist_one(journal, token=1 << 32))
    journal.close()
    assert deaths == []
    assert load(path) == [b"a"]


async def persist_one(journal: Journal, token: int = 1) -> None:
    await asyncio.wait_for(journal.persist(token, (b"a",)), 5)


def older(path: Path) -> list[bytes]:
    """Load the journal as a broker does that has received a new term."""
    journal = Journal(SqliteStore(path, may_be_older=True))
    try:
        return journal.load()
    finally:
        journal.close()


@pytest.mark.parametrize("is_gone", [False, True])
def test_an_older_copy_is_taken_where_somebody_says_so_and_from_then_on(
    path: Path, is_gone: bool
) -> None:
    write(path, (b"a",))
    copy = path.read_bytes()
    write(path, (b"b",), (b"c",))
    path.unlink()
    if not is_gone:
        path.write_bytes(copy)
    with pytest.raises(StorageFailed, match="to 3 are missing") as refused:
        load(path)
    assert "journal.db.head" in refused.value.hint
    assert "--begin-at-term" in refused.value.hint
    kept = [] if is_gone else [b"a"]
    assert older(path) == kept
    assert load(path) == kept
    write(path, (b"d",))
    assert load(path) == [*kept, b"d"]


def test_a_copy_that_went_on_otherwise_is_taken_where_somebody_says_so(path: Path) -> None:
    write(path, (b"a",))
    head = path.with_name("journal.db.head")
    other = head.read_bytes()
    path.unlink()
    head.unlink()
    write(path, (b"b",))
    head.write_bytes(other)
    with pytest.raises(StorageFailed, match="row 1 is not the one"):
        load(path)
    assert older(path) == [b"b"]
    assert load(path) == [b"b"]


def test_rows_that_are_damaged_are_not_taken_whatever_somebody_says(path: Path) -> None:
    write(path, (b"a",), (b"b",), (b"c",))
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM operations WHERE number = 2")
    database.close()
    with pytest.raises(StorageFailed, match="row 2 is missing"):
        older(path)


def test_a_head_that_cannot_be_opened_is_named_and_leaves_nothing_open(path: Path) -> None:
    head = path.with_name("journal.db.head")
    head.mkdir(parents=True)
    with pytest.raises(StorageFailed, match=r"cannot be opened.*journal\.db\.head"):
        SqliteStore(path)
    head.rmdir()
    write(path, (b"a",))
