"""Commits whose answer was lost: their outcome is asked until it is known, and never guessed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import errors

from gridstat.broker.records import postgres_store
from gridstat.model.errors import StorageFailed
from tests.protocol.journals.holders import Interrupted, holder
from tests.protocol.journals.places import do, load

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.protocol.journals.holders import Holder
    from tests.protocol.journals.places import DatabasePlace

STRANGE = (
    "-clock_timeout=7 -cstatement_timeout=7000 "
    r"-cdefault_transaction_isolation=repeatable\ read"
)
"""Settings that another role, database or URL may have."""
SETTINGS = (
    "SELECT name, setting FROM pg_settings WHERE name IN "
    "('lock_timeout', 'statement_timeout', 'default_transaction_isolation')"
)


def strange(place: DatabasePlace) -> DatabasePlace:
    options = STRANGE.replace(" ", "%20").replace("=", "%3D").replace("\\", "%5C")
    return replace(place, url=f"{place.url}&options={options}")


def lose_answer(found: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commit the next write, and break its connection before the answer."""
    inside = found.store._write

    def broken_off(*words: Any, **more: Any) -> None:
        monkeypatch.setattr(found.store, "_write", inside)
        inside(*words, **more)
        found.store._connection.close()
        raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(found.store, "_write", broken_off)


def refused(error: psycopg.Error, *, times: int, then: Callable[..., Any]) -> Callable[..., Any]:
    left = [error] * times

    def refuse(*words: Any) -> Any:
        if left:
            raise left.pop()
        return then(*words)

    return refuse


@pytest.mark.parametrize(
    "error",
    [
        errors.LockNotAvailable(),
        errors.InsufficientPrivilege(),
        errors.DiskFull(),
        errors.IoError(),
    ],
)
@pytest.mark.parametrize("question", ["end_sessions", "_is_written"])
def test_a_server_that_refuses_to_tell_what_it_has_committed_is_asked_again(
    shared: DatabasePlace,
    monkeypatch: pytest.MonkeyPatch,
    error: psycopg.Error,
    question: str,
) -> None:
    with holder(shared) as found:
        found.persist(b"a")
        lose_answer(found, monkeypatch)
        asked: Any = found.store if question == "_is_written" else postgres_store
        answer = getattr(asked, question)
        monkeypatch.setattr(asked, question, refused(error, times=2, then=answer))
        found.persist(b"b")
        found.persist(b"c")
        assert found.journal.figures()["failures"] == 0
    assert load(shared) == [b"a", b"b", b"c"]


def test_nobody_hears_that_a_write_has_failed_that_may_not_have(
    shared: DatabasePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holder(replace(shared, lease_s=3.0)) as found:
        found.persist(b"a")
        lose_answer(found, monkeypatch)
        denied = refused(errors.InsufficientPrivilege("no"), times=1_000, then=print)
        monkeypatch.setattr(found.store, "_is_written", denied)
        with pytest.raises(StorageFailed, match="its thread has failed"):
            found.persist(b"b")
        assert found.deaths == ["died"]
        assert found.losses != []
    assert load(shared) == [b"a", b"b"]


@pytest.mark.feature("S0-123")
@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE gridstat_brokers SET number = number - 1 WHERE broker = %s",
        "UPDATE gridstat_brokers SET checksum = 'x' WHERE broker = %s",
        "INSERT INTO gridstat_operations VALUES (%s, 2, 'x', 'x')",
        "DELETE FROM gridstat_brokers WHERE broker = %s",
    ],
)
def test_a_journal_that_does_not_end_where_it_was_left_is_not_written_any_more(
    shared: DatabasePlace, harm: str
) -> None:
    with holder(shared) as found:
        found.persist(b"a")
        do(shared, harm)
        with pytest.raises(StorageFailed, match="another broker is in charge"):
            found.persist(b"b")
        assert found.losses[0] == "another broker writes the journal"
    rows = do(
        shared, "SELECT number FROM gridstat_operations WHERE operation = 'b' AND broker = %s"
    )
    assert rows == []


def test_settings_that_would_fail_a_commit_do_not_hold_for_ours(shared: DatabasePlace) -> None:
    found = strange(shared).store()
    ours: dict[str, str] = dict(found._connection.execute(SETTINGS).fetchall())
    assert asyncio.run(settings_of_lease(strange(shared))) == ours
    found.close()
    assert ours == {
        "lock_timeout": str(round(shared.lease_s * 1_000)),
        "statement_timeout": "0",
        "default_transaction_isolation": "read committed",
    }


async def settings_of_lease(place: DatabasePlace) -> dict[str, str]:
    store = place.store()
    connection = await store._lease._connect()
    found = await (await connection.execute(SETTINGS)).fetchall()
    await connection.close()
    store.close()
    return dict(found)


def test_a_renewal_in_the_middle_of_a_commit_does_not_fail_it(
    shared: DatabasePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holder(strange(shared)) as found:

        def renew() -> None:
            do(shared, "UPDATE gridstat_brokers SET expires = expires WHERE broker = %s")

        monkeypatch.setattr(found.store, "_lease", Interrupted(found, renew))
        found.persist(b"a")
    assert load(shared) == [b"a"]
