"""A database that says nothing at all: no answer comes, and no connection breaks."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gridstat.broker.records.journal_lease import NEVER_S
from gridstat.broker.records.postgres_database import PostgresDatabase
from gridstat.model.errors import LinkDown, StorageFailed
from tests.cluster.eventually import eventually
from tests.protocol.journals.holders import holder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.protocol.journals.holders import Holder
    from tests.protocol.journals.places import DatabasePlace

BRIEF_S = 4.0


@contextmanager
def silence(found: Holder) -> Iterator[None]:
    """The server process of this journal is stopped, and goes on after the block."""
    server = found.store._connection.info.backend_pid
    os.kill(server, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server, signal.SIGCONT)


@pytest.mark.feature("S0-123")
def test_a_holder_whose_journal_does_not_answer_ends_though_its_lease_is_renewed(
    shared: DatabasePlace,
) -> None:
    brief = replace(shared, lease_s=BRIEF_S)
    with holder(brief) as found, holder(brief) as second:
        found.persist(b"a")
        with silence(found):
            with pytest.raises(StorageFailed):
                found.persist(b"b")
            assert found.losses != []
            assert found.deaths == ["died"]
            eventually(lambda: "the lease is held" if second.journal.claim() else None)
        assert second.journal.load() == [b"a"]


@pytest.mark.parametrize(
    ("ask", "failure"),
    [(lambda h: h.persist(b"b"), StorageFailed), (lambda h: h.journal.load(), OSError)],
)
def test_a_holder_ends_also_where_its_journal_s_thread_never_comes_back(
    shared: DatabasePlace,
    monkeypatch: pytest.MonkeyPatch,
    ask: Callable[[Holder], object],
    failure: type[Exception],
) -> None:
    """Block the thread, as a look-up of the database's name may do."""
    is_over = threading.Event()

    def hang(*_: object) -> None:
        is_over.wait()
        raise OSError("it is over")

    with holder(replace(shared, lease_s=BRIEF_S)) as found:
        found.persist(b"a")
        found.store._connection.close()
        monkeypatch.setattr(PostgresDatabase, "connect", hang)
        with ThreadPoolExecutor(1) as other:
            asked = other.submit(ask, found)
            try:
                eventually(lambda: None if found.losses else "it still thinks it is in charge")
            finally:
                is_over.set()
            with pytest.raises(failure):
                asked.result()
    assert found.losses == ["the journal does not answer"]


def test_a_journal_that_is_not_asked_owes_no_answer(shared: DatabasePlace) -> None:
    with holder(shared) as found:
        found.persist(b"a")
        found.journal.load()
        assert found.store._lease._waiting_since_s == NEVER_S


@pytest.mark.parametrize("ask", [lambda h: h.journal.claim(), lambda h: h.journal.load()])
def test_who_stands_by_gives_up_a_connection_that_does_not_answer_and_makes_another(
    shared: DatabasePlace, ask: Callable[[Holder], object]
) -> None:
    with holder(shared) as first, holder(replace(shared, lease_s=BRIEF_S)) as second:
        first.persist(b"a")
        with silence(second):
            with pytest.raises(LinkDown, match="has not answered for"):
                ask(second)
            assert second.journal.claim() > 0
            assert second.journal.load() == [b"a"]


@pytest.mark.parametrize("ask", [lambda h: h.journal.claim(), lambda h: h.journal.load()])
def test_who_stands_by_can_be_interrupted_while_the_database_does_not_answer(
    shared: DatabasePlace, ask: Callable[[Holder], object]
) -> None:
    """Long before the time of a lease."""
    with (
        ThreadPoolExecutor(1) as other,
        holder(shared),
        holder(shared) as second,
        silence(second),
    ):
        asked = other.submit(ask, second)
        second.journal.interrupt()
        with pytest.raises(LinkDown, match="was interrupted"):
            asked.result()


def test_a_journal_that_does_not_answer_can_be_closed(shared: DatabasePlace) -> None:
    with ThreadPoolExecutor(1) as other, ExitStack() as silent:
        with holder(replace(shared, lease_s=BRIEF_S)) as found:
            found.persist(b"a")
            silent.enter_context(silence(found))
            written = other.submit(found.persist, b"b")
            eventually(lambda: None if is_asked(found) else "nothing is written")
        with pytest.raises(StorageFailed):
            written.result()
    assert found.losses != []


def is_asked(found: Holder) -> bool:
    return found.store._lease._waiting_since_s != NEVER_S


def test_a_connection_whose_other_end_is_gone_is_looked_after() -> None:
    words = PostgresDatabase("postgresql://host/database", "c1", lease_s=3.0).connection_options(
        "journal"
    )
    kept = {key: value for key, value in words.items() if key.startswith("keepalives")}
    assert kept == {"keepalives_idle": 1, "keepalives_interval": 1, "keepalives_count": 3}
