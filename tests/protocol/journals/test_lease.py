"""The lease on a journal in a database: who holds it, how it ends, and by whose clock."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest

from gridstat.broker.records.journal_lease import Lease, UnchangedTime
from tests.cluster.eventually import eventually
from tests.protocol.journals.holders import holder
from tests.protocol.journals.places import (
    EXPIRES,
    DatabasePlace,
    do,
    expire,
    load,
    renewed,
    write,
)

if TYPE_CHECKING:
    from lab.postgres import DatabaseServer


def test_who_comes_second_is_told_how_long_to_wait(shared: DatabasePlace) -> None:
    with holder(shared), holder(shared) as second:
        assert 0 < second.journal.claim() <= shared.lease_s


def test_who_leaves_lets_the_next_one_in_at_once_and_tenures_grow(shared: DatabasePlace) -> None:
    tenures = []
    for _ in range(3):
        with holder(shared) as found:
            tenures.append(found.journal.figures()["tenure"])
    assert tenures == [1, 2, 3]


def test_who_leaves_gives_its_lease_back_though_its_journal_s_connection_is_broken(
    shared: DatabasePlace,
) -> None:
    with holder(shared) as found:
        found.store._connection.close()
    with holder(shared) as another:
        assert another.journal.figures()["tenure"] == 2


def test_who_asks_again_for_what_it_holds_need_not_wait(shared: DatabasePlace) -> None:
    """Claim again, as a process does whose connection broke right after its claim."""
    with holder(shared) as found:
        assert found.journal.claim() == 0
        assert found.journal.figures()["tenure"] == 1


def test_a_lease_is_renewed_while_its_holder_lives(shared: DatabasePlace) -> None:
    brief = replace(shared, lease_s=4.0)
    with holder(brief) as first, holder(brief) as second:
        renewed(brief)
        assert second.journal.claim() > 0
        assert first.losses == []


@pytest.mark.feature("S0-123")
def test_a_dead_holder_s_lease_ends_though_the_database_s_clock_has_gone_back(
    shared: DatabasePlace,
) -> None:
    write(shared, (b"a",))
    later = f"{EXPIRES} clock_timestamp() + interval '1 hour', lease_s = 3 WHERE broker = %s"
    do(shared, later)
    with holder(replace(shared, lease_s=3.0)) as found:
        assert found.journal.figures()["tenure"] == 0, "a lease that was just seen is honoured"
        eventually(lambda: "it waits for the clock" if found.journal.claim() else None)
        assert found.journal.load() == [b"a"]


class Still:
    """Clock by which every observed value has been unchanged for some time."""

    def __init__(self, unchanged_s: float) -> None:
        self._lasting_s = unchanged_s

    def unchanged_s(self, seen: object, now_s: float) -> float:
        return self._lasting_s


@pytest.mark.parametrize(("still_leases", "is_taken"), [(0.5, False), (1.5, False), (2.5, True)])
def test_a_holder_of_a_longer_lease_is_honoured_for_the_time_of_its_own(
    shared: DatabasePlace, monkeypatch: pytest.MonkeyPatch, still_leases: float, is_taken: bool
) -> None:
    with holder(shared) as first, holder(replace(shared, lease_s=5.0)) as second:
        monkeypatch.setattr(second.store._lease, "_unchanged", Still(still_leases * shared.lease_s))
        assert (second.journal.claim() == 0) is is_taken
        if not is_taken:
            first.persist(b"a")


def test_tables_of_an_earlier_release_are_taken_over_with_what_they_hold(
    database_server: DatabaseServer,
) -> None:
    with psycopg.connect(database_server.url(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE earlier")
    place = DatabasePlace(database_server.url().replace("/postgres?", "/earlier?"))
    write(place, (b"a",))
    with psycopg.connect(place.url, autocommit=True) as connection:
        connection.execute("ALTER TABLE gridstat_brokers DROP COLUMN lease_s")
    with holder(place) as first, holder(place) as second:
        assert second.journal.claim() > 0
        first.persist(b"b")
    assert load(place) == [b"a", b"b"]
    assert do(place, "SELECT lease_s FROM gridstat_brokers WHERE broker = %s") == [(place.lease_s,)]


def test_a_lease_that_moves_stands_still_for_no_time() -> None:
    stillness = UnchangedTime()
    lasting = [stillness.unchanged_s(seen, float(now)) for now, seen in enumerate("aabbb")]
    assert lasting == [0, 1, 0, 1, 2]


def test_a_lease_that_is_renewed_while_it_is_being_taken_stays_its_holder_s(
    shared: DatabasePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holder(shared) as first, holder(shared) as second:
        expire(shared)

        def renew(*_: object) -> None:
            do(shared, f"{EXPIRES} clock_timestamp() + interval '1 minute' WHERE broker = %s")

        monkeypatch.setattr("gridstat.broker.records.journal_lease.end_sessions", renew)
        assert second.journal.claim() > 0
        first.persist(b"a")


def test_a_lease_that_cannot_be_kept_for_whatever_reason_is_lost(
    shared: DatabasePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fail as where the system has no thread left to look up the database's name."""

    async def without_threads(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Lease, "_connect", without_threads)
    with holder(shared) as found:
        eventually(lambda: None if found.losses else "it still thinks it is in charge")
    assert found.losses == ["""the lease cannot be kept: RuntimeError("can't start new thread")"""]
