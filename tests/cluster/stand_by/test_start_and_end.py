"""Two brokers alone, with a lease that outlasts the tests: who waits for what, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab.stand_by import BROKERS, CLOUD, DoubledCloud
from tests.cluster.eventually import eventually
from tests.cluster.stand_by.databases import own_database
from tests.cluster.stand_by.silence import silence, unread_journals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.postgres import DatabaseServer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
ENDLESS_S = 3_600
FIRST, SECOND = BROKERS


@pytest.fixture(scope="module")
def url(database_server: DatabaseServer) -> str:
    """Return a separate database, in which no other process waits for the lease."""
    return own_database(database_server, "alone")


@pytest.fixture(scope="module")
def brokers(
    _nothing_is_left_behind: None, url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DoubledCloud]:
    """Return the daemons of the brokers, not started yet."""
    folder = tmp_path_factory.mktemp("alone")
    with DoubledCloud(folder, url, lease_s=ENDLESS_S) as made:
        yield made


def start(brokers: DoubledCloud, name: str) -> None:
    if not brokers.daemons[name].is_running:
        brokers.daemons[name].start()
    brokers.await_state(name)


def test_a_broker_that_starts_before_its_database_waits_for_it(
    brokers: DoubledCloud, database_server: DatabaseServer
) -> None:
    first = brokers.daemons[FIRST]
    database_server.stop()
    try:
        first.start()
        eventually(
            lambda: None if "waits for its database" in first.output else first.output or "silent"
        )
    finally:
        database_server.start()
    brokers.await_state(FIRST)
    assert brokers.is_ready(FIRST)


def test_who_stands_by_can_be_stopped_while_the_database_does_not_answer(
    brokers: DoubledCloud, url: str
) -> None:
    start(brokers, FIRST)
    start(brokers, SECOND)
    assert brokers.standing_by == SECOND
    with unread_journals(url):
        assert brokers.daemons[SECOND].stop() == 0


def test_who_is_in_charge_can_be_stopped_while_its_journal_does_not_answer(
    brokers: DoubledCloud, url: str
) -> None:
    start(brokers, FIRST)
    with silence(url, CLOUD, of_who_is_in_charge=True):
        assert brokers.daemons[FIRST].stop() == 0


@pytest.mark.feature("S0-123")
def test_a_broker_that_leaves_hands_over_long_before_its_lease_ends(brokers: DoubledCloud) -> None:
    start(brokers, FIRST)
    start(brokers, SECOND)
    assert (brokers.in_charge, brokers.standing_by) == (FIRST, SECOND)
    assert brokers.daemons[FIRST].stop() == 0
    eventually(lambda: None if brokers.is_ready(SECOND) else "nobody is in charge")
