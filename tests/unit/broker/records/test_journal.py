"""The journal: order and groups; damage, a full disk and a second broker are found and named."""

from __future__ import annotations

import asyncio
import errno
import shutil
import sqlite3
from typing import TYPE_CHECKING

import pytest

from gridstat.broker.records import journal_rows
from gridstat.broker.records.journal import Journal
from gridstat.broker.records.journal_rows import SCHEMA
from gridstat.broker.records.operations import SNAPSHOT_MARK, Retired, encode
from gridstat.model.errors import StorageFailed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "broker" / "journal.db"


def write(path: Path, *groups: tuple[bytes, ...]) -> None:
    """Make groups of operations durable, one after another, and leave."""
    journal = Journal(path)
    journal.load()

    async def persist_all() -> None:
        for token, operations in enumerate(groups, start=1):
            await journal.persist(token, operations)

    asyncio.run(persist_all())
    journal.close()


def load(path: Path) -> list[bytes]:
    journal = Journal(path)
    try:
        return journal.load()
    finally:
        journal.close()


def test_operations_come_back_in_their_order(path: Path) -> None:
    write(path, (b"a", b"b"), (b"c",))
    write(path, (b"d",))
    assert load(path) == [b"a", b"b", b"c", b"d"]


def test_an_empty_journal_loads_as_nothing(path: Path) -> None:
    assert load(path) == []


def test_a_snapshot_replaces_all_that_was_before_it(path: Path) -> None:
    write(path, (b"a",), (b"b",), (SNAPSHOT_MARK, b"ab"), (b"c",))
    assert load(path) == [SNAPSHOT_MARK, b"ab", b"c"]


@pytest.mark.parametrize("count", [1, 127, 128, 129, 300])
def test_any_number_of_operations_comes_back_whole(path: Path, count: int) -> None:
    operations = tuple(b"%d" % number for number in range(count))
    write(path, operations, (b"last",))
    assert load(path) == [*operations, b"last"]


def test_a_snapshot_among_what_waits_together_replaces_what_stood_before_it(path: Path) -> None:
    journal = Journal(path)
    groups = [(b"a",), (b"b", b"c"), (SNAPSHOT_MARK, b"abc"), (b"d",), (b"e",)]

    async def persist_all() -> None:
        await asyncio.gather(
            *(journal.persist(token, group) for token, group in enumerate(groups, start=1))
        )

    asyncio.run(persist_all())
    rows = journal.figures()["rows"]
    journal.close()
    assert load(path) == [SNAPSHOT_MARK, b"abc", b"d", b"e"]
    assert rows == 4


def test_all_that_a_round_of_the_loop_persists_is_one_commit(path: Path) -> None:
    journal = Journal(path)

    async def persist_all() -> None:
        await asyncio.gather(*[journal.persist(token, (b"x",)) for token in range(1, 101)])

    asyncio.run(persist_all())
    figures = journal.figures()
    journal.close()
    assert (figures["commits"], figures["operations"]) == (1, 100)


def test_what_was_asked_for_right_before_the_end_is_written(path: Path) -> None:
    journal = Journal(path)

    async def persist_and_end() -> None:
        journal.persist(1, (b"last",))
        journal.close()

    asyncio.run(persist_and_end())
    assert load(path) == [b"last"]


def test_what_waits_together_is_committed_together(path: Path) -> None:
    journal = Journal(path)

    async def persist_many() -> None:
        tasks = [journal.persist(token, (b"%d" % token,)) for token in range(1, 501)]
        await asyncio.gather(*tasks)

    asyncio.run(persist_many())
    figures = journal.figures()
    journal.close()
    assert figures["operations"] == 500
    assert figures["commits"] < 100
    assert figures["fsync_ms_p50"] > 0
    assert load(path) == [b"%d" % token for token in range(1, 501)]


def test_it_is_durable_in_full_and_written_ahead(path: Path) -> None:
    write(path, (b"a",))
    journal = Journal(path)
    (mode,) = journal._database.execute("PRAGMA journal_mode").fetchone()
    (synchronous,) = journal._database.execute("PRAGMA synchronous").fetchone()
    journal.close()
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
    journal = Journal(path)
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
    assert schema(path) == SCHEMA == 2
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
    with pytest.raises(StorageFailed, match="schema 2, and this release reads up to 1") as refused:
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
    first = Journal(path)
    first.load()
    with pytest.raises(StorageFailed, match="locked"):
        Journal(path)
    first.close()


def test_a_full_disk_fails_the_write_and_the_epoch_and_a_new_epoch_goes_on(path: Path) -> None:
    journal = Journal(path)
    journal.load()
    new_epoch = 1 << 32

    async def fill() -> list[object]:
        await journal.persist(1, (b"first",))
        journal.limit(40_000)
        tasks = [
            journal.persist(2, (b"x" * 100_000,)),
            journal.persist(3, (b"small",)),
        ]
        failed = await asyncio.gather(*tasks, return_exceptions=True)
        journal.limit(2**40)
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


def test_a_closed_journal_takes_nothing_more(path: Path) -> None:
    journal = Journal(path)
    journal.close()

    async def persist() -> None:
        await journal.persist(1, (b"a",))

    with pytest.raises(StorageFailed, match="closed"):
        asyncio.run(persist())


def test_what_was_queued_is_written_before_it_closes(path: Path) -> None:
    journal = Journal(path)

    async def leave() -> None:
        task = asyncio.ensure_future(journal.persist(1, (b"a",)))
        await asyncio.sleep(0)  # The task has begun, and waits for the thread.
        journal.close()
        await task

    asyncio.run(leave())
    assert load(path) == [b"a"]


def test_a_head_that_cannot_be_written_is_counted_and_the_commit_stands(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    journal = Journal(path)
    journal.load()
    monkeypatch.setattr(journal._head, "write", full)

    async def persist_two() -> None:
        for token in (1, 2):
            await asyncio.wait_for(journal.persist(token, (b"a",)), 5)

    asyncio.run(persist_two())
    journal.close()
    assert journal.figures()["head_failures"] == 2
    assert load(path) == [b"a", b"a"]


def test_a_thread_that_fails_ends_the_process_and_lets_nobody_wait(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    deaths: list[str] = []
    journal = Journal(path, died=lambda: deaths.append("died"))
    journal.load()
    monkeypatch.setattr(journal, "_commit", broken)

    async def persist_one() -> None:
        with pytest.raises(StorageFailed):
            await asyncio.wait_for(journal.persist(1, (b"a",)), 5)
        with pytest.raises(StorageFailed, match="closed"):
            await asyncio.wait_for(journal.persist(2, (b"b",)), 5)

    asyncio.run(persist_one())
    journal.close()
    assert deaths == ["died"]
