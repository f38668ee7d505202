"""Two planes: commands never disturb events, and end-points have no session with a broker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from gridstat.endpoint.options import qos
from gridstat.model.errors import ChannelFull
from gridstat.model.status import BuiltinType
from lab.declared_delay import DELAY_MS
from tests.cluster.eventually import eventually
from tests.cluster.one_cloud.cloud import EAST, WEST, connections_to
from tests.cluster.one_cloud.streams import Stream, slots_of

if TYPE_CHECKING:
    from gridstat.endpoint.violation import Violation
    from tests.cluster.one_cloud.cloud import Cloud

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
FLOAT64 = BuiltinType.FLOAT64
NS_PER_S = 1_000_000_000


@pytest.mark.feature("S0-1", "S0-51", "S0-53", "S3-90")
def test_a_storm_of_commands_and_refusals_costs_an_admitted_stream_nothing(cloud: Cloud) -> None:
    publisher = cloud.connect("c1/storm/pmu", WEST)
    subscriber = cloud.connect("c1/storm/desk", EAST)
    noise = cloud.connect("c1/storm/noise", EAST)
    stream = publisher.publish("value", FLOAT64, rate=60, delay_ms=DELAY_MS)
    loud = publisher.publish("loud", FLOAT64, rate=10_000)
    violations: list[Violation] = []
    taken = subscriber.subscribe(
        stream.name,
        qos=qos(latency_ms=5_000, redundancy=2),
        keep_events=65_536,
        on_violation=violations.append,
    )
    promised = _paths_of(cloud, stream.name, "c1/storm/desk")
    with Stream(stream) as sending:
        eventually(lambda: sending.complaint_below(30))
        for _ in range(60):
            noise.subscribe(stream.name, qos=qos(rate=1)).unsubscribe()
            with pytest.raises(ChannelFull):
                noise.subscribe(loud.name, qos=qos(latency_ms=2_000))
        before = len(sending.sent)
        eventually(lambda: sending.complaint_below(before + 60))
    got: list[int] = []

    def missing() -> str | None:
        got.extend(slots_of(taken))
        lost = set(sending.sent) - set(got)
        return f"{len(lost)} of {len(sending.sent)} slots lost" if lost else None

    eventually(missing)
    assert got == sorted(set(got)), "each slot once, in order"
    ledger = taken.ledger()
    assert (ledger.delivered, ledger.duplicate > 0) == (len(got), True)
    assert ledger.late == 0
    assert not {each.slot for each in violations} & set(sending.sent)
    assert _paths_of(cloud, stream.name, "c1/storm/desk") == promised


def _paths_of(cloud: Cloud, name: str, subscriber: str) -> list[tuple[list[str], int]]:
    """Return the routers and the predicted latency of every path of one contract."""
    return [
        (path["routers"], path["latency_us"])
        for facts in cloud.explain(name)["subscriptions"]
        if facts["subscriber"] == subscriber
        for path in facts["paths"]
    ]


@pytest.mark.feature("S0-53")
def test_a_refused_request_changes_no_router(cloud: Cloud) -> None:
    publisher = cloud.connect("c1/still/pmu", WEST)
    subscriber = cloud.connect("c1/still/desk", EAST)
    stream = publisher.publish("value", FLOAT64, rate=60)
    loud = publisher.publish("loud", FLOAT64, rate=10_000)
    subscriber.subscribe(stream.name, qos=qos(latency_ms=5_000, redundancy=2))
    eventually(cloud.complaint)
    before = _confirmed(cloud)
    for _ in range(10):
        with pytest.raises(ChannelFull):
            subscriber.subscribe(loud.name, qos=qos(latency_ms=2_000))
    assert _confirmed(cloud) == before


@pytest.mark.feature("S3-105")
def test_an_event_beyond_the_declared_period_is_dropped_and_the_operator_is_told(
    cloud: Cloud,
) -> None:
    publisher = cloud.connect("c1/hurried/pmu", WEST)
    subscriber = cloud.connect("c1/hurried/desk", EAST)
    stream = publisher.publish("value", FLOAT64, rate=1, delay_ms=10_000)
    wanted = qos(redundancy=2, latency_ms=60_000)
    taken = subscriber.subscribe(stream.name, qos=wanted, keep_events=64)
    before = _policed(cloud)
    second_ns = time.time_ns() // NS_PER_S * NS_PER_S
    for value in range(5):
        assert stream.send(float(value), created_ns=second_ns + value)
    eventually(lambda: _unpoliced(cloud, before, 4))
    got: list[int] = []

    def missing() -> str | None:
        got.extend(slots_of(taken))
        return None if got else "nothing has come"

    eventually(missing)
    assert got == [0], "the first of its slot, and no other"


@pytest.mark.feature("S0-7")
def test_an_end_point_has_no_connection_to_the_broker(cloud: Cloud) -> None:
    connection = cloud.connect("c1/alone/pmu", WEST)
    connection.publish("value", FLOAT64, rate=1)
    for edge in WEST:
        assert len(connections_to(cloud.access.edges[edge][1])) >= 1
    assert connections_to(cloud.access.broker[1]) == []


@pytest.mark.feature("S3-90")
def test_slots_that_were_never_sent_are_counted_as_lost_exactly(cloud: Cloud) -> None:
    publisher = cloud.connect("c1/gaps/pmu", WEST)
    subscriber = cloud.connect("c1/gaps/desk", EAST)
    stream = publisher.publish("value", FLOAT64, rate=60, delay_ms=DELAY_MS)
    taken = subscriber.subscribe(stream.name, qos=qos(latency_ms=3_600_000), keep_events=1_024)
    with Stream(stream) as sending:
        eventually(lambda: sending.complaint_below(60))
    eventually(lambda: _short_of(taken.ledger().delivered, len(sending.sent)))
    skipped = sending.sent[-1] - sending.sent[0] + 1 - len(sending.sent)
    with Stream(stream) as again:
        eventually(lambda: again.complaint_below(30))
    eventually(lambda: _short_of(taken.ledger().delivered, len(sending.sent) + len(again.sent)))
    between = again.sent[0] - sending.sent[-1] - 1
    holes = again.sent[-1] - again.sent[0] + 1 - len(again.sent)
    assert taken.ledger().lost == 0  # Within an hour they might still come.
    taken.unsubscribe()
    assert taken.ledger().lost == skipped + between + holes


def _short_of(count: int, wanted: int) -> str | None:
    return None if count >= wanted else f"{count} of {wanted} delivered"


@pytest.mark.feature("S0-150")
def test_a_subscriber_publishes_what_it_computes_and_others_subscribe_to_that(
    cloud: Cloud,
) -> None:
    source = cloud.connect("c1/raw/pmu", WEST)
    middle = cloud.connect("c1/computed/doubler", EAST)
    reader = cloud.connect("c1/computed/desk", WEST)
    raw = source.publish("value", FLOAT64, rate=30, delay_ms=DELAY_MS)
    doubled = middle.publish("twice", FLOAT64, rate=30, delay_ms=DELAY_MS)
    middle.subscribe(
        raw.name,
        qos=qos(redundancy=2),
        on_event=lambda event: doubled.send(2 * event.value, created_ns=event.created_ns),
    )
    final = reader.subscribe(doubled.name, qos=qos(redundancy=2), keep_events=1_024)
    with Stream(raw) as sending:
        eventually(lambda: sending.complaint_below(60))
    got: list[int] = []

    def missing() -> str | None:
        got.extend(slots_of(final))
        lost = {2 * slot for slot in sending.sent} - set(got)
        return f"{len(lost)} lost" if lost else None

    eventually(missing)


def _confirmed(cloud: Cloud) -> dict[str, str]:
    """The digests of the tables that routers have confirmed."""
    return {each["name"]: each["confirmed_digest"] for each in cloud.survey()["routers"]}


def _policed(cloud: Cloud) -> dict[str, int]:
    """Return the events that the publisher's edges have policed, from the operator's survey."""
    return {
        each["name"]: each["counters"].get("policed_slot", 0)
        for each in cloud.survey()["routers"]
        if each["name"] in WEST
    }


def _unpoliced(cloud: Cloud, before: dict[str, int], wanted: int) -> str | None:
    found = {name: count - before[name] for name, count in _policed(cloud).items()}
    return None if found == dict.fromkeys(WEST, wanted) else f"dropped: {found}"
