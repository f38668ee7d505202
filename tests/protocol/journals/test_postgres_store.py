"""A journal in a database: one writer at a time, fenced; a broken connection loses nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from gridstat.broker.records.operations import SNAPSHOT_MARK
from gridstat.broker.records.postgres_database import PostgresDatabase
from gridstat.model.errors import ConfigurationError, StorageFailed
from tests.protocol.journals.holders import Interrupted, holder
from tests.protocol.journals.places import (
    DatabasePlace,
    do,
    expire,
    load,
    opened,
    renewed,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.postgres import DatabaseServer


# Who may write.


def test_one_database_serves_many_brokers(shared: DatabasePlace) -> None:
    other = replace(shared, broker=shared.broker + "-other")
    with holder(shared) as one, holder(other) as two:
        one.persist(b"of one")
        two.persist(b"of two")
    assert (load(shared), load(other)) == ([b"of one"], [b"of two"])


@pytest.mark.feature("S0-123")
def test_who_has_lost_the_lease_writes_nothing_more(shared: DatabasePlace) -> None:
    with holder(shared) as old, holder(shared) as new:
        old.persist(b"a")
        expire(shared)
        assert new.journal.claim() == 0
        new.journal.load()
        with pytest.raises(StorageFailed, match="another broker is in charge"):
            old.persist(b"too late")
        new.persist(b"b")
        with pytest.raises(StorageFailed):
            old.persist(b"far too late")
        assert old.losses[0] == "another broker writes the journal"
        assert new.losses == []
    assert load(shared) == [b"a", b"b"]


@pytest.mark.feature("S0-123")
@pytest.mark.parametrize("has_new_written", [False, True])
def test_a_lease_that_is_lost_in_the_middle_of_a_batch_lets_none_of_it_through(
    shared: DatabasePlace, monkeypatch: pytest.MonkeyPatch, has_new_written: bool
) -> None:
    with holder(shared) as old, holder(shared) as new:
        old.persist(b"a")

        def take_over() -> None:
            expire(shared)
            assert new.journal.claim() == 0
            new.journal.load()
            if has_new_written:
                new.persist(b"b")

        monkeypatch.setattr(old.store, "_lease", Interrupted(old, take_over))
        with pytest.raises(StorageFailed, match="another broker is in charge"):
            old.persist(b"never")
        assert old.losses == ["another broker writes the journal"]
    assert load(shared) == ([b"a", b"b"] if has_new_written else [b"a"])


@pytest.mark.feature("S0-123")
def test_the_fence_holds_where_the_old_holder_s_connection_lives_on(
    shared: DatabasePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holder(shared) as old:
        old.persist(b"a")

        def take_over() -> None:
            do(shared, "UPDATE gridstat_brokers SET tenure = tenure + 1 WHERE broker = %s")

        monkeypatch.setattr(old.store, "_lease", Interrupted(old, take_over))
        with pytest.raises(StorageFailed, match="another broker is in charge"):
            old.persist(b"never")
        assert old.losses == ["another broker writes the journal"]
        assert old.journal.figures()["reconnects"] == 0
    assert load(shared) == [b"a"]


def test_a_long_transaction_does_not_keep_the_lease_from_being_renewed(
    shared: DatabasePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    brief = replace(shared, lease_s=4.0)
    with holder(brief) as found:
        monkeypatch.setattr(found.store, "_lease", Interrupted(found, lambda: renewed(brief)))
        found.persist(b"a")
    assert load(brief) == [b"a"]


@pytest.mark.feature("S0-123")
def test_a_stopped_holder_s_locks_do_not_hold_up_who_takes_over(shared: DatabasePlace) -> None:
    with holder(shared) as old, holder(shared) as new:
        old.persist(b"a")
        expire(shared)
        # As if it had been stopped right before its COMMIT.
        for statement in ("BEGIN", "UPDATE gridstat_brokers SET number = 7 WHERE broker = %s"):
            words = (shared.broker,) if "%s" in statement else ()
            old.store._connection.execute(statement, words)
        assert new.journal.claim() == 0
        assert new.journal.load() == [b"a"]
        new.persist(b"b")
    assert load(shared) == [b"a", b"b"]


# Following.


def test_who_stands_by_reads_on_from_where_it_was(shared: DatabasePlace) -> None:
    with holder(shared) as first, holder(shared) as second:
        first.persist(b"a", b"b")
        assert second.journal.load() == [b"a", b"b"]
        assert second.journal.load() == []
        first.persist(b"c")
        assert second.journal.load() == [b"c"]
        expire(shared)
        assert second.journal.claim() == 0
        assert second.journal.load() == []
        second.persist(b"d")
    assert load(shared) == [b"a", b"b", b"c", b"d"]


def test_who_stands_by_sees_that_a_snapshot_has_replaced_what_it_read(
    shared: DatabasePlace,
) -> None:
    with holder(shared) as first, holder(shared) as second:
        first.persist(b"a", b"b")
        assert second.journal.load() == [b"a", b"b"]

        async def compact() -> None:
            await first.journal.persist(1, (SNAPSHOT_MARK, b"ab"))
            await first.journal.persist(1, (b"c",))

        asyncio.run(compact())
        assert second.journal.load() == [SNAPSHOT_MARK, b"ab", b"c"]
        assert second.journal.figures()["rows"] == 3


# Connections that break.


def test_a_server_process_that_is_killed_loses_nothing(shared: DatabasePlace) -> None:
    operations = [b"%d" % number for number in range(30)]
    with holder(shared) as found:
        for number, operation in enumerate(operations):
            if number in {3, 17}:
                os.kill(found.store._connection.info.backend_pid, signal.SIGKILL)
            found.persist(operation)
        assert found.journal.figures()["reconnects"] >= 2
        assert found.journal.figures()["failures"] == 0
    assert load(shared) == operations


@pytest.mark.parametrize("was_committed", [False, True])
def test_what_was_broken_off_is_written_once(
    shared: DatabasePlace, monkeypatch: pytest.MonkeyPatch, was_committed: bool
) -> None:
    with holder(shared) as found:
        found.persist(b"a")
        inside = found.store._write

        def broken_off(*words: Any, **more: Any) -> None:
            monkeypatch.setattr(found.store, "_write", inside)
            if was_committed:
                inside(*words, **more)
            found.store._connection.close()
            raise psycopg.OperationalError("the connection is lost")

        monkeypatch.setattr(found.store, "_write", broken_off)
        found.persist(b"b")
        found.persist(b"c")
    assert load(shared) == [b"a", b"b", b"c"]


def test_a_server_that_refuses_to_write_fails_the_epoch(shared: DatabasePlace) -> None:
    with holder(shared) as found:
        found.persist(b"a")
        with refusing(shared, "no room"), pytest.raises(StorageFailed, match="no_room"):
            found.persist(b"no room")
        assert "cannot be written" in found.journal.complaint()
        with pytest.raises(StorageFailed, match="an earlier operation"):
            found.persist(b"b")
        assert found.losses == []

        async def go_on() -> None:
            await found.journal.persist(1 << 32, (b"c",))

        asyncio.run(go_on())
        assert found.journal.complaint() == ""
    assert load(shared) == [b"a", b"c"]


@contextmanager
def refusing(place: DatabasePlace, operation: str) -> Iterator[None]:
    """The server refuses one operation, as it would on a full disk."""
    change = "ALTER TABLE gridstat_operations"
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute(f"{change} ADD CONSTRAINT no_room CHECK (operation <> '{operation}')")
        try:
            yield
        finally:
            connection.execute(f"{change} DROP CONSTRAINT no_room")


# What is found at the start.


def test_commits_are_synchronous(shared: DatabasePlace) -> None:
    with holder(shared) as found:
        shown = found.store._connection.execute("SHOW synchronous_commit").fetchone()
    assert shown == ("on",)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (
            "UPDATE gridstat_operations SET operation = 'x' WHERE number = 2 AND broker = %s",
            "row 2",
        ),
        ("DELETE FROM gridstat_operations WHERE number = 2 AND broker = %s", "row 2 is missing"),
        ("DELETE FROM gridstat_operations WHERE number = 3 AND broker = %s", "rows 3 to 3 are"),
        ("DELETE FROM gridstat_operations WHERE broker = %s", "rows 1 to 3 are missing"),
        ("UPDATE gridstat_brokers SET checksum = 'x' WHERE broker = %s", "row 3 is not the one"),
        ("UPDATE gridstat_brokers SET schema = 99 WHERE broker = %s", "schema 99"),
    ],
)
def test_damage_is_found_and_named(shared: DatabasePlace, harm: str, words: str) -> None:
    write(shared, (b"a", b"b"), (b"c",))
    do(shared, harm)
    with pytest.raises(StorageFailed, match=words):
        load(shared)


def test_brokers_that_start_at_once_create_the_tables_once(
    database_server: DatabaseServer,
) -> None:
    with psycopg.connect(database_server.url(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE new")
    url = database_server.url().replace("/postgres?", "/new?")
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(lambda n: DatabasePlace(url, f"b{n}").store(), range(4)))
    for store in stores:
        store.close()
    opened(DatabasePlace(url, "b0")).close()


def test_a_text_that_is_no_url_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not a PostgreSQL URL"):
        DatabasePlace("postgresql://host/database?no_such_word=1").store()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://gridstat:se%cret@host/gridstat",
        "postgresql://gridstat:secret@[::1]x/gridstat",
        "postgresql://gridstat:se/cret@192.0.2.9/gridstat",
        "postgresql://gridstat:1234/secret@192.0.2.9/gridstat",
        "postgresql://gridstat:1234/secret@192.0.2.9",
        "postgresql://gridstat:/secret@192.0.2.9/gridstat",
        "postgresql://gridstat:se@cret@192.0.2.9/gridstat",
        "postgresql://gridstat:secret/?host=192.0.2.9",
        "postgresql://gridstat:12,secret/12@192.0.2.9/gridstat",
    ],
)
def test_a_url_that_cannot_be_read_is_not_repeated_with_its_password(url: str) -> None:
    with pytest.raises(ConfigurationError, match="not a PostgreSQL URL") as refused:
        DatabasePlace(url).store()
    assert "cret" not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://gridstat:se%2Fcr%40et@192.0.2.9:5432/gridstat",
        "postgresql://gridstat@192.0.2.8:5432,192.0.2.9:5433/gridstat",
        "postgresql://gridstat@192.0.2.8,[2001:db8::9]/gridstat?sslmode=verify-full",
        "postgresql://gridstat@/gridstat?host=/run/postgresql",
        "postgresql://",
    ],
)
def test_a_url_that_can_be_read_is_taken(url: str) -> None:
    PostgresDatabase(url, "c1").check()


def test_a_database_that_is_not_there_is_named_without_its_password(
    database_server: DatabaseServer,
) -> None:
    url = (
        database_server.url().replace("gridstat@", "gridstat:secret@").replace("/postgres?", "/x?")
    )
    with pytest.raises(StorageFailed, match="in database x at") as refused:
        DatabasePlace(url).store()
    assert "secret" not in str(refused.value)
