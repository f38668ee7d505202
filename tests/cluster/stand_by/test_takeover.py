"""A broker dies, sleeps or leaves, and the one that stands by takes over; no event is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.broker.records.journal_lease import EXIT_LEASE_LOST
from gridstat.endpoint.options import qos
from gridstat.model.status import BuiltinType
from lab.declared_delay import DELAY_MS
from lab.stand_by import CLOUD
from tests.cluster.eventually import eventually
from tests.cluster.one_cloud.streams import Stream
from tests.cluster.stand_by.asking import Asking
from tests.cluster.stand_by.silence import silence
from tests.cluster.two_clouds.test_contracts import missing

if TYPE_CHECKING:
    from gridstat.endpoint.subscriber import Subscription
    from lab.postgres import DatabaseServer
    from lab.stand_by import DoubledCloud

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
FLOAT64 = BuiltinType.FLOAT64
WEST, EAST = f"{CLOUD}/e0", f"{CLOUD}/e1"
RATE = 60


class Watched:
    """A stream over two disjoint paths, of which nothing may be lost and nothing come twice."""

    def __init__(self, cloud: DoubledCloud, word: str) -> None:
        self.publisher = cloud.connect(f"{CLOUD}/{word}/pmu", WEST)
        self.subscriber = cloud.connect(f"{CLOUD}/{word}/desk", EAST)
        self.variable = self.publisher.publish("value", FLOAT64, rate=RATE, delay_ms=DELAY_MS)
        self.taken: Subscription = self.subscriber.subscribe(
            self.variable.name,
            qos=qos(latency_ms=10_000, redundancy=2),
            keep_events=65_536,
        )
        self.sending = Stream(self.variable)

    def assert_nothing_lost(self) -> None:
        got: list[int] = []
        eventually(lambda: missing(self.taken, got, self.sending.sent))
        assert got == sorted(set(got)), "each slot once, in order"
        assert self.taken.ledger().delivered == len(got)


def term_of(cloud: DoubledCloud) -> int:
    return int(cloud.survey()["term"])


@pytest.mark.feature("S0-123")
def test_a_killed_broker_is_replaced_and_all_that_it_granted_stands(cloud: DoubledCloud) -> None:
    watched = Watched(cloud, "killed")
    names = [
        watched.publisher.publish(f"extra-{number}", FLOAT64, rate=1).name for number in range(400)
    ]
    old, new, term = cloud.in_charge, cloud.standing_by, term_of(cloud)
    with watched.sending, Asking(watched.subscriber, names) as asking:
        eventually(lambda: asking.complaint_below(20))
        cloud.daemons[old].kill()
        before = len(asking.granted)
        eventually(lambda: None if cloud.is_ready(new) else f"{new} is not in charge")
        eventually(lambda: asking.complaint_below(before + 20))
        sent = len(watched.sending.sent)
        eventually(lambda: watched.sending.complaint_below(sent + RATE))
    eventually(cloud.complaint)
    watched.assert_nothing_lost()
    held = {
        facts["name"]: [one["subscription_id"] for one in facts["subscriptions"]]
        for facts in cloud.explain(asking.granted)
    }
    assert held == {name: [number] for name, number in asking.granted.items()}
    assert asking.refused == []
    assert term_of(cloud) > term


@pytest.mark.feature("S0-123")
def test_a_broker_that_slept_ends_itself_and_the_other_one_stays_in_charge(
    cloud: DoubledCloud,
) -> None:
    watched = Watched(cloud, "slept")
    old, new, term = cloud.in_charge, cloud.standing_by, term_of(cloud)
    sleeper = cloud.daemons[old]
    with watched.sending:
        sleeper.pause()
        eventually(lambda: None if cloud.is_ready(new) else f"{new} is not in charge")
        eventually(cloud.complaint)
        later = watched.subscriber.subscribe(watched.variable.name, qos=qos(every=2))
        sleeper.resume()
        eventually(lambda: f"{old} lives on" if sleeper.is_running else None)
        sent = len(watched.sending.sent)
        eventually(lambda: watched.sending.complaint_below(sent + RATE))
    assert sleeper.stop() == EXIT_LEASE_LOST
    assert "lease_lost" in sleeper.errors
    watched.assert_nothing_lost()
    assert not later.is_over
    eventually(cloud.complaint)
    assert term_of(cloud) == term + 1, "nobody has begun a term in between"


@pytest.mark.feature("S0-123")
def test_a_broker_whose_journal_does_not_answer_ends_itself_and_is_replaced(
    cloud: DoubledCloud, database_server: DatabaseServer
) -> None:
    """Stop the journal's connection; the lease is renewed over another one all the while."""
    watched = Watched(cloud, "silent")
    old, new, term = cloud.in_charge, cloud.standing_by, term_of(cloud)
    silent = cloud.daemons[old]
    with watched.sending, silence(database_server.url(), CLOUD, of_who_is_in_charge=True):
        watched.subscriber.subscribe(watched.variable.name, qos=qos(every=2))
        eventually(lambda: f"{old} lives on" if silent.is_running else None)
        eventually(lambda: None if cloud.is_ready(new) else f"{new} is not in charge")
    assert silent.stop() == EXIT_LEASE_LOST
    assert "lease_lost" in silent.errors
    eventually(cloud.complaint)
    watched.assert_nothing_lost()
    assert term_of(cloud) == term + 1


def test_nothing_is_lost_when_a_broker_leaves(cloud: DoubledCloud) -> None:
    watched = Watched(cloud, "left")
    old, new = cloud.in_charge, cloud.standing_by
    with watched.sending:
        assert cloud.daemons[old].stop() == 0
        eventually(lambda: None if cloud.is_ready(new) else f"{new} is not in charge")
        eventually(cloud.complaint)
        watched.subscriber.subscribe(watched.variable.name, qos=qos(every=2))
    watched.assert_nothing_lost()


def test_who_stands_by_can_be_stopped_without_anybody_noticing(cloud: DoubledCloud) -> None:
    old, idle, term = cloud.in_charge, cloud.standing_by, term_of(cloud)
    assert cloud.daemons[idle].stop() == 0
    assert cloud.is_ready(old)
    assert term_of(cloud) == term
