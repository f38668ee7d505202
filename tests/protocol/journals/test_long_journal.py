"""A long journal in a database: it is read, and replaced, in pages that each take a short time."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest

from gridstat.broker.records import postgres_store
from gridstat.broker.records.operations import SNAPSHOT_MARK
from gridstat.model.errors import StorageFailed
from tests.protocol.journals.holders import holder
from tests.protocol.journals.places import do, load, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.protocol.journals.places import DatabasePlace

PAGE_ROWS = 4
BRIEF_S = 4.0
DELETE_S = 0.2
ROWS = 40
"""Number of rows whose deletion takes twice the time of a lease."""


@pytest.fixture(autouse=True)
def _short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_store, "ROWS_PER_PAGE", PAGE_ROWS)


@contextmanager
def slow_to_delete(place: DatabasePlace) -> Iterator[None]:
    """Make the deletion of each row of this broker slow."""
    name = place.broker.replace("-", "_")
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute(
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS "
            f"'BEGIN PERFORM pg_sleep({DELETE_S}); RETURN OLD; END'"
        )
        connection.execute(
            f"CREATE TRIGGER {name} BEFORE DELETE ON gridstat_operations FOR EACH ROW "
            f"WHEN (OLD.broker = '{place.broker}') EXECUTE FUNCTION {name}()"
        )
        try:
            yield
        finally:
            connection.execute(f"DROP FUNCTION {name} CASCADE")


@pytest.mark.feature("S0-123")
def test_a_snapshot_that_replaces_much_does_not_end_its_holder(shared: DatabasePlace) -> None:
    brief = replace(shared, lease_s=BRIEF_S)
    with holder(brief) as found:
        found.persist(*(b"%d" % number for number in range(ROWS)))

        async def compact() -> None:
            await found.journal.persist(1, (SNAPSHOT_MARK, b"all"))

        with slow_to_delete(brief):
            asyncio.run(compact())
        found.persist(b"after")
        assert (found.losses, found.deaths) == ([], [])
    assert load(brief) == [SNAPSHOT_MARK, b"all", b"after"]


def test_each_page_of_a_journal_has_the_time_of_a_lease(
    shared: DatabasePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    operations = [b"%d" % number for number in range(3 * PAGE_ROWS)]
    write(shared, tuple(operations))
    asked: list[str] = []
    with holder(shared) as found, holder(shared) as second:
        monkeypatch.setattr(
            second.store._lease, "journal_request_sent", lambda: asked.append("asked")
        )
        assert second.journal.load() == operations
        assert len(asked) == 1 + len(operations) / PAGE_ROWS
        found.persist(b"more")
        assert second.journal.load() == [b"more"]


@pytest.mark.parametrize("count", [PAGE_ROWS - 1, PAGE_ROWS, PAGE_ROWS + 1])
def test_pages_begin_where_the_journal_does(shared: DatabasePlace, count: int) -> None:
    """A snapshot leaves a gap before it, of any size."""
    after = [b"%d" % number for number in range(count)]
    write(shared, tuple(b"%d" % number for number in range(5 * PAGE_ROWS)))
    write(shared, (SNAPSHOT_MARK, b"all"), tuple(after))
    assert load(shared) == [SNAPSHOT_MARK, b"all", *after]


@pytest.mark.parametrize("number", [PAGE_ROWS, PAGE_ROWS + 1, 2 * PAGE_ROWS])
def test_a_row_that_is_missing_at_the_edge_of_a_page_is_named(
    shared: DatabasePlace, number: int
) -> None:
    write(shared, tuple(b"%d" % number for number in range(3 * PAGE_ROWS)))
    do(shared, f"DELETE FROM gridstat_operations WHERE number = {number} AND broker = %s")
    with pytest.raises(StorageFailed, match=f"row {number} is missing"):
        load(shared)
