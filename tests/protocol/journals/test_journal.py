"""The journal, wherever its rows are kept: order and groups, snapshots, ends and failures."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from gridstat.broker.records.journal import SLOW_NS, Journal
from gridstat.broker.records.operations import SNAPSHOT_MARK
from gridstat.model.errors import StorageFailed
from tests.protocol.journals.places import load, opened, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gridstat.broker.records.journal_rows import JournalRow
    from tests.protocol.journals.places import Place


def test_operations_come_back_in_their_order(place: Place) -> None:
    write(place, (b"a", b"b"), (b"c",))
    write(place, (b"d",))
    assert load(place) == [b"a", b"b", b"c", b"d"]


def test_an_empty_journal_loads_as_nothing(place: Place) -> None:
    assert load(place) == []


def test_a_snapshot_replaces_all_that_was_before_it(place: Place) -> None:
    write(place, (b"a",), (b"b",), (SNAPSHOT_MARK, b"ab"), (b"c",))
    assert load(place) == [SNAPSHOT_MARK, b"ab", b"c"]


@pytest.mark.parametrize("count", [1, 127, 128, 129, 300])
def test_any_number_of_operations_comes_back_whole(place: Place, count: int) -> None:
    operations = tuple(b"%d" % number for number in range(count))
    write(place, operations, (b"last",))
    assert load(place) == [*operations, b"last"]


def test_a_snapshot_among_what_waits_together_replaces_what_stood_before_it(place: Place) -> None:
    journal = opened(place)
    groups = [(b"a",), (b"b", b"c"), (SNAPSHOT_MARK, b"abc"), (b"d",), (b"e",)]

    async def persist_all() -> None:
        await asyncio.gather(
            *(journal.persist(token, group) for token, group in enumerate(groups, start=1))
        )

    asyncio.run(persist_all())
    rows = journal.figures()["rows"]
    journal.close()
    assert load(place) == [SNAPSHOT_MARK, b"abc", b"d", b"e"]
    assert rows == 4


def test_all_that_a_round_of_the_loop_persists_is_one_commit(place: Place) -> None:
    journal = opened(place)

    async def persist_all() -> None:
        await asyncio.gather(*[journal.persist(token, (b"x",)) for token in range(1, 101)])

    asyncio.run(persist_all())
    figures = journal.figures()
    journal.close()
    assert (figures["commits"], figures["operations"]) == (1, 100)


def test_what_was_asked_for_right_before_the_end_is_written(place: Place) -> None:
    journal = opened(place)

    async def persist_and_end() -> None:
        journal.persist(1, (b"last",))
        journal.close()

    asyncio.run(persist_and_end())
    assert load(place) == [b"last"]


def test_what_waits_together_is_committed_together(place: Place) -> None:
    journal = opened(place)

    async def persist_many() -> None:
        tasks = [journal.persist(token, (b"%d" % token,)) for token in range(1, 501)]
        await asyncio.gather(*tasks)

    asyncio.run(persist_many())
    figures = journal.figures()
    journal.close()
    assert figures["operations"] == 500
    assert figures["commits"] < 100
    assert figures["fsync_ms_p50"] > 0
    assert load(place) == [b"%d" % token for token in range(1, 501)]


def test_a_closed_journal_takes_nothing_more(place: Place) -> None:
    journal = opened(place)
    journal.close()

    async def persist() -> None:
        await journal.persist(1, (b"a",))

    with pytest.raises(StorageFailed, match="closed"):
        asyncio.run(persist())


def test_what_was_queued_is_written_before_it_closes(place: Place) -> None:
    journal = opened(place)

    async def leave() -> None:
        task = asyncio.ensure_future(journal.persist(1, (b"a",)))
        await asyncio.sleep(0)  # The task has begun, and waits for the thread.
        journal.close()
        await task

    asyncio.run(leave())
    assert load(place) == [b"a"]


def test_a_thread_that_fails_ends_the_process_and_lets_nobody_wait(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    deaths: list[str] = []
    journal = opened(place, died=lambda: deaths.append("died"))
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


def test_a_disk_that_stands_still_is_complained_of_until_it_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ns = [0]
    store = place.store()
    journal = Journal(store, clock_ns=lambda: now_ns[0])
    assert journal.claim() == 0
    journal.load()
    is_writing, goes_on = threading.Event(), threading.Event()
    write_at_once = store.write

    def write_late(rows: Sequence[JournalRow], *, is_whole: bool) -> None:
        is_writing.set()
        goes_on.wait()
        write_at_once(rows, is_whole=is_whole)

    monkeypatch.setattr(store, "write", write_late)

    async def persist() -> list[str]:
        written = journal.persist(1, (b"a",))
        await asyncio.to_thread(is_writing.wait)
        complaints = [journal.complaint()]
        now_ns[0] = 3 * SLOW_NS // 2
        complaints.append(journal.complaint())
        goes_on.set()
        await written
        return [*complaints, journal.complaint()]

    try:
        complaints = asyncio.run(persist())
    finally:
        goes_on.set()
        journal.close()
    assert complaints == ["", "the journal has not answered for 3 s", ""]
