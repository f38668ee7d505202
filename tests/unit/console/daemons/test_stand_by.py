"""Start of a broker as the one in charge: at once, after waiting, or not at all."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gridstat.broker.records.journal import Journal
from gridstat.broker.records.journal_rows import BEGINNING, JournalRow, chained
from gridstat.broker.records.operations import SNAPSHOT_MARK
from gridstat.console.daemons.stand_by import in_charge, journal_plan, open_journal
from gridstat.model.errors import ConfigurationError, LinkDown, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

HELD_S = 0.001
INTERRUPTED_WITHIN_S = 60.0
URL = "postgresql://gridstat@192.0.2.9/gridstat"


class SharedRows:
    """Content of a database, and for how many more questions another holds its lease."""

    def __init__(self, *operations: bytes, is_held_for: int = 0) -> None:
        self.rows: list[JournalRow] = []
        self.is_held_for = is_held_for
        self.asked = 0
        self.opened = 0
        self.is_away_at: set[int] = set()
        self.unopened_at: set[int] = set()
        self.tries = 0
        self.interrupted = threading.Event()
        self.add(*operations)

    def add(self, *operations: bytes) -> None:
        last = self.rows[-1] if self.rows else BEGINNING
        for operation in operations:
            checksum = b"" if operation == SNAPSHOT_MARK else last.checksum
            number = last.number + 1
            last = JournalRow(number, operation, chained(checksum, number, operation))
            self.rows.append(last)

    def compact(self, *operations: bytes) -> None:
        count = len(self.rows)
        self.add(SNAPSHOT_MARK, *operations)
        del self.rows[:count]


class SharedStore:
    """One process's view of it."""

    def __init__(self, shared: SharedRows, story: dict[int, bytes | None]) -> None:
        self._shared = shared
        self._story = story
        shared.tries += 1
        if shared.tries in shared.unopened_at:
            raise LinkDown("the database is away")
        shared.opened += 1

    def __str__(self) -> str:
        return "shared"

    def claim(self) -> float:
        shared = self._shared
        shared.asked += 1
        if shared.asked in shared.is_away_at:
            raise LinkDown("the database is away")
        written = self._story.get(shared.asked, b"")
        if written is None:
            shared.compact(b"all")
        elif written:
            shared.add(written)
        return HELD_S if shared.asked <= shared.is_held_for else 0.0

    def read(self, after: JournalRow) -> list[JournalRow]:
        return [row for row in self._shared.rows if row.number > after.number]

    def write(self, rows: Sequence[JournalRow], *, is_whole: bool) -> None:
        raise StorageFailed("nobody writes here")

    def complaint(self) -> str:
        return ""

    def figures(self) -> dict[str, int]:
        return {}

    def interrupt(self) -> None:
        self._shared.interrupted.set()

    def close(self) -> None:
        self._shared.opened -= 1


class Candidate:
    """Keeps what it was led through."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.parts: list[list[bytes]] = []

    @property
    def broker(self) -> Candidate:
        return self

    def restore(self, written: Sequence[bytes]) -> None:
        self.parts.append(list(written))

    async def close(self) -> None:
        self.journal.close()


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gridstat.console.daemons.stand_by.AGAIN_AFTER_S", HELD_S)


def stand_by(
    shared: SharedRows, story: dict[int, bytes | None] | None = None, *, stop_after: int = 0
) -> tuple[Candidate | None, list[str]]:
    """Return who is in charge in the end, and the reasons to wait; "" is for another in charge."""
    waits: list[str] = []

    async def standing() -> Candidate | None:
        stopping = asyncio.Event()

        def make() -> Candidate:
            return Candidate(Journal(SharedStore(shared, story or {})))

        def told(reason: str) -> None:
            waits.append(reason)
            if len(waits) == stop_after:
                stopping.set()

        return await in_charge(make, stopping, waits=told)

    found = asyncio.run(standing())
    if found is not None:
        found.journal.close()
    return found, waits


def test_who_is_alone_is_in_charge_at_once_with_the_whole_journal() -> None:
    found, waits = stand_by(SharedRows(b"a", b"b"))
    assert found is not None
    assert (found.parts, waits) == ([[b"a", b"b"]], [])


def test_who_waits_follows_the_journal_and_says_so_once() -> None:
    found, waits = stand_by(SharedRows(b"a", is_held_for=4), {2: b"b", 4: b"c", 5: b"d"})
    assert found is not None
    assert (found.parts, waits) == ([[b"a"], [b"b"], [b"c"], [b"d"]], [""])


@pytest.mark.parametrize("at", [3, 5])
def test_a_snapshot_makes_it_begin_anew(at: int) -> None:
    shared = SharedRows(b"a", b"b", is_held_for=4)
    found, waits = stand_by(shared, {at: None})
    assert found is not None
    assert (found.parts, waits) == ([[SNAPSHOT_MARK, b"all"]], [""])
    assert shared.opened == 0


def test_a_journal_that_begins_with_a_snapshot_is_read_as_it_is() -> None:
    shared = SharedRows(b"a")
    shared.compact(b"all")
    found, _ = stand_by(shared)
    assert found is not None
    assert found.parts == [[SNAPSHOT_MARK, b"all"]]


def test_a_database_that_is_away_is_waited_for_and_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shared = SharedRows(b"a", is_held_for=6)
    shared.is_away_at = {2, 3}
    found, waits = stand_by(shared, {4: b"b"})
    assert found is not None
    assert (found.parts, waits) == ([[b"a"], [b"b"]], [""])
    assert caplog.text.count("standing_by_blindly") == 1


def test_who_starts_before_its_database_waits_for_it_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shared = SharedRows(b"a", is_held_for=1)
    shared.unopened_at = {1, 2, 3}
    found, waits = stand_by(shared)
    assert found is not None
    assert (found.parts, waits) == ([[b"a"]], ["the database is away", ""])
    assert caplog.text.count("standing_by_blindly") == 1


def test_a_database_that_goes_away_while_it_begins_anew_is_waited_for() -> None:
    shared = SharedRows(b"a", is_held_for=4)
    shared.unopened_at = {2}
    found, waits = stand_by(shared, {3: None})
    assert found is not None
    assert (found.parts, waits) == ([[SNAPSHOT_MARK, b"all"]], [""])


def test_who_waits_for_its_database_can_be_stopped() -> None:
    shared = SharedRows(b"a")
    shared.unopened_at = set(range(1_000_000))
    assert stand_by(shared, stop_after=1) == (None, ["the database is away"])


@pytest.mark.feature("S0-123")
def test_who_cannot_read_the_journal_does_not_take_its_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def away(*_: object) -> list[JournalRow]:
        raise LinkDown("long answers are lost")

    monkeypatch.setattr(SharedStore, "read", away)
    shared = SharedRows(b"a")
    assert stand_by(shared, stop_after=1) == (None, ["long answers are lost"])
    assert (shared.asked, shared.opened) == (0, 0)


@pytest.mark.feature("S0-123")
def test_who_cannot_read_what_it_has_claimed_gives_it_back_before_it_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = SharedStore.read
    shared = SharedRows(b"a")
    claims_at_start: list[int] = []

    def away_after_claim(store: SharedStore, after: JournalRow) -> list[JournalRow]:
        if shared.asked == 1 and shared.tries == 1:
            raise LinkDown("the database is away")
        claims_at_start.append(shared.asked)
        return read(store, after)

    monkeypatch.setattr(SharedStore, "read", away_after_claim)
    found, waits = stand_by(shared)
    assert found is not None
    assert (found.parts, waits) == ([[b"a"]], ["the database is away"])
    assert shared.tries == 2, "the first one was left, and its lease with it"
    assert claims_at_start == [0, 1, 2], "the second one reads before it claims, too"


def test_who_is_stopped_while_it_waits_leaves_nothing_open() -> None:
    shared = SharedRows(b"a", is_held_for=1_000_000)
    found, _ = stand_by(shared, stop_after=1)
    assert found is None
    assert shared.opened == 0


@pytest.mark.parametrize("question", ["claim", "read"])
def test_who_is_stopped_while_the_database_does_not_answer_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, question: str
) -> None:
    shared = SharedRows(b"a")
    waits: list[str] = []

    async def standing() -> Candidate | None:
        stopping, loop = asyncio.Event(), asyncio.get_running_loop()

        def hang(*_: object) -> None:
            loop.call_soon_threadsafe(stopping.set)
            assert shared.interrupted.wait(INTERRUPTED_WITHIN_S), "it waits for the database"
            raise LinkDown("the database is away")

        monkeypatch.setattr(SharedStore, question, hang)
        return await in_charge(
            lambda: Candidate(Journal(SharedStore(shared, {}))), stopping, waits=waits.append
        )

    assert asyncio.run(standing()) is None
    assert shared.opened == 0
    assert (waits, caplog.text) == ([], ""), "a database that is not waited for is not away"


def test_who_is_stopped_while_its_journal_is_being_opened_does_not_wait_for_that() -> None:
    shared = SharedRows(b"a")
    answers = threading.Event()
    made_by: list[threading.Thread] = []

    async def standing() -> Candidate | None:
        stopping, loop = asyncio.Event(), asyncio.get_running_loop()

        def make() -> Candidate:
            made_by.append(threading.current_thread())
            loop.call_soon_threadsafe(stopping.set)
            answers.wait(INTERRUPTED_WITHIN_S / 4)
            return Candidate(Journal(SharedStore(shared, {})))

        found = await in_charge(make, stopping, waits=print)
        assert shared.tries == 0, "it has waited for the database"
        return found

    try:
        assert asyncio.run(standing()) is None
    finally:
        answers.set()
        made_by[0].join()
    assert (shared.tries, shared.opened) == (1, 0), "what comes too late is not left open"


def test_what_keeps_a_broker_from_being_made_ends_it() -> None:
    def make() -> Candidate:
        raise ConfigurationError("no such certificate")

    async def standing() -> None:
        await in_charge(make, asyncio.Event(), waits=print)

    with pytest.raises(ConfigurationError, match="no such certificate"):
        asyncio.run(standing())


def test_a_damaged_journal_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(*_: object) -> list[JournalRow]:
        raise StorageFailed("row 1 is not as it was written")

    monkeypatch.setattr(SharedStore, "read", damaged)
    shared = SharedRows(b"a")
    with pytest.raises(StorageFailed):
        stand_by(shared)
    assert shared.opened == 0


def test_a_journal_is_a_file_beside_the_broker_s_own_or_a_database() -> None:
    file = Path("/etc/gridstat/c1.toml")
    for name in ("j.sqlite", "journals/c1 of postgres.db", "./postgres.db", "/var/c1/a:b.db"):
        assert journal_plan(file, name, broker="c1", lease_s=2).place == file.parent / name
    assert journal_plan(file, URL, broker="c1", lease_s=2).place == URL


@pytest.mark.parametrize(
    "text",
    [
        "postgressql://gridstat:secret@192.0.2.9/gridstat",
        "Postgresql://gridstat:secret@192.0.2.9/gridstat",
        "postgresql+psycopg://gridstat:secret@192.0.2.9/gridstat",
        " postgresql://gridstat:secret@192.0.2.9/gridstat",
        "host=192.0.2.9 dbname=gridstat password=secret",
        "postgresql:/gridstat:secret@192.0.2.9/gridstat",
        "postgresql//gridstat@192.0.2.9/gridstat",
        " postgresql:gridstat@192.0.2.9/gridstat",
        "Postgresql//192.0.2.9/gridstat",
        "pg:/192.0.2.9/secret",
        "//gridstat:secret@192.0.2.9/gridstat",
    ],
)
def test_a_database_that_is_misspelled_is_not_taken_for_a_file(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"c1\.toml: journal: neither a file") as refused:
        journal_plan(Path("c1.toml"), text, broker="c1", lease_s=2)
    assert "secret" not in str(refused.value)


def test_a_database_without_its_driver_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "gridstat.broker.records.postgres_store", None)
    plan = journal_plan(Path("c1.toml"), URL, broker="c1", lease_s=2)
    with pytest.raises(ConfigurationError, match="not installed") as refused:
        open_journal(plan)
    assert "gridstat[postgres]" in refused.value.hint
