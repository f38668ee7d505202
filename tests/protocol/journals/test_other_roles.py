"""Other roles of the same server, which may name their sessions as they like."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg
import pytest

from gridstat.broker.records import postgres_database
from gridstat.broker.records.postgres_database import end_sessions, session_name
from tests.protocol.journals.holders import holder
from tests.protocol.journals.places import expire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg import Connection

    from tests.protocol.journals.places import DatabasePlace

REFUSE = (
    "CREATE FUNCTION refuse(session text) RETURNS void LANGUAGE plpgsql AS "
    "'BEGIN RAISE insufficient_privilege; END'"
)


@contextmanager
def refusing(place: DatabasePlace, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The server lets us end no session, not even our own."""
    with psycopg.connect(place.url, autocommit=True) as administrator:
        administrator.execute(REFUSE)
        monkeypatch.setattr(postgres_database, "_END_SESSIONS", "SELECT refuse(%s)")
        try:
            yield
        finally:
            administrator.execute("DROP FUNCTION refuse")


@contextmanager
def nosy(place: DatabasePlace, session: str) -> Iterator[Connection]:
    """A session of another role that calls itself so."""
    role = f"nosy_{uuid4().hex[:8]}"
    with psycopg.connect(place.url, autocommit=True) as administrator:
        administrator.execute(f"CREATE ROLE {role} LOGIN")
        try:
            url = place.url.replace("gridstat@", f"{role}@")
            with psycopg.connect(url, autocommit=True, application_name=session) as connection:
                yield connection
        finally:
            administrator.execute(f"DROP ROLE {role}")


@pytest.mark.feature("S0-123")
def test_a_session_of_another_role_is_left_alone_whatever_its_name(shared: DatabasePlace) -> None:
    with holder(shared) as old, holder(shared) as new:
        old.persist(b"a")
        with nosy(shared, session_name(old.where.holder, "x")) as other:
            expire(shared)
            assert new.journal.claim() == 0
            assert other.execute("SELECT 1").fetchone() == (1,)
        assert new.journal.load() == [b"a"]
        new.persist(b"b")


@pytest.mark.feature("S0-123")
def test_a_server_that_lets_no_session_be_ended_keeps_nobody_from_taking_over(
    shared: DatabasePlace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with holder(shared) as old, holder(shared) as new:
        old.persist(b"a")
        expire(shared)
        with refusing(shared, monkeypatch):
            assert new.journal.claim() == 0
            assert "sessions_not_ended" in caplog.text
        assert new.journal.load() == [b"a"]
        new.persist(b"b")


def test_our_own_sessions_are_ended(shared: DatabasePlace) -> None:
    with holder(shared) as found:
        left = found.store._connection
        with psycopg.connect(shared.url, autocommit=True) as another:
            end_sessions(another, found.where.holder, "journal")
        with pytest.raises(psycopg.OperationalError):
            left.execute("SELECT 1")
