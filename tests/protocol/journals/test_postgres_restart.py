"""A database that stops, dies and comes back under a journal: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gridstat.model.errors import LinkDown, StorageFailed
from tests.cluster.eventually import eventually
from tests.holdings import nothing_left_behind
from tests.protocol.journals.holders import holder
from tests.protocol.journals.places import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.postgres import DatabaseServer
    from tests.protocol.journals.places import DatabasePlace

SETTLE_S = 5.0


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(database_server: DatabaseServer) -> Iterator[None]:
    """Check for leaks, except the server that a test has started in place of another."""
    with nothing_left_behind(
        "test", within_s=SETTLE_S, but=lambda: frozenset({str(database_server.pid)})
    ):
        yield


def test_a_holder_that_cannot_renew_stops_by_its_own_clock(
    shared: DatabasePlace, database_server: DatabaseServer
) -> None:
    brief = replace(shared, lease_s=2.0)
    with holder(brief) as found:
        database_server.stop()
        try:
            eventually(lambda: None if found.losses else "it still thinks it is in charge")
        finally:
            database_server.start()
        assert "another may be in charge" in found.losses[0]


def test_a_database_that_is_away_is_no_damage_to_who_stands_by(
    shared: DatabasePlace, database_server: DatabaseServer
) -> None:
    with holder(shared) as first, holder(shared) as second:
        first.persist(b"a")
        database_server.stop()
        try:
            with pytest.raises(LinkDown, match="cannot be reached"):
                second.journal.load()
        finally:
            database_server.start()
        assert second.journal.load() == [b"a"]


def test_who_starts_while_the_database_is_away_hears_that_it_can_wait(
    shared: DatabasePlace, database_server: DatabaseServer
) -> None:
    database_server.stop()
    try:
        with pytest.raises(LinkDown, match="cannot be reached"):
            shared.store()
    finally:
        database_server.start()
    shared.store().close()


def test_who_starts_while_the_database_only_reads_hears_that_it_can_wait(
    shared: DatabasePlace,
) -> None:
    """Connect to a read-only database, as a copy is that has not taken over yet."""
    copy = replace(shared, url=f"{shared.url}&options=-cdefault_transaction_read_only%3Don")
    with pytest.raises(LinkDown, match="read-only"):
        copy.store()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_restart_of_the_database_only_takes_its_time(
    shared: DatabasePlace, database_server: DatabaseServer, end: str
) -> None:
    with holder(shared) as found:
        found.persist(b"a")
        getattr(database_server, end)()

        async def persist_meanwhile() -> None:
            durable = found.journal.persist(1, (b"b",))
            await asyncio.to_thread(database_server.start)
            await durable

        asyncio.run(persist_meanwhile())
        assert found.losses == []
        eventually(lambda: found.journal.complaint() or None)
    assert load(shared) == [b"a", b"b"]


def test_who_leaves_after_a_restart_that_it_has_not_noticed_gives_its_lease_back(
    shared: DatabasePlace, database_server: DatabaseServer
) -> None:
    with holder(shared) as found:
        found.persist(b"a")
        database_server.stop()
        database_server.start()
    with holder(shared) as another:
        assert another.journal.figures()["tenure"] == 2


def test_who_leaves_while_the_database_is_away_does_not_wait_for_it(
    shared: DatabasePlace, database_server: DatabaseServer
) -> None:
    with holder(shared) as found:
        database_server.stop()
    try:
        assert found.losses == []
    finally:
        database_server.start()


def test_nobody_hears_of_what_cannot_be_settled_in_time(
    shared: DatabasePlace, database_server: DatabaseServer
) -> None:
    with holder(replace(shared, lease_s=3.0)) as found:
        found.persist(b"a")
        database_server.stop()
        try:
            with pytest.raises(StorageFailed):
                found.persist(b"b")
        finally:
            database_server.start()
        assert found.deaths == ["died"]
        assert found.losses != []
