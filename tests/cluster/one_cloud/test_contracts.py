"""Contracts with events under them: what is granted, changed and ended is what flows."""

from __future__ import annotations

import time
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from gridstat.endpoint.options import qos
from gridstat.model.errors import GridStatError, RedundancyNotSatisfiable
from gridstat.model.qos import BASELINE_MODE
from gridstat.model.status import BuiltinType, Field, FieldKind, RecordType
from lab.declared_delay import DELAY_MS
from tests.cluster.eventually import eventually
from tests.cluster.one_cloud.cloud import EAST, WEST
from tests.cluster.one_cloud.streams import Stream, slots_of

if TYPE_CHECKING:
    from gridstat.endpoint.subscriber import Subscription
    from tests.cluster.one_cloud.cloud import Cloud

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
FLOAT64 = BuiltinType.FLOAT64
KEEP = 65_536
RANKED = 20
"""Streams of each priority; together their burst takes the channel some 30 ms."""
HALF_S_NS = 500_000_000
LONG_RECORD = RecordType(
    "long", tuple(Field(f"part_{number}", FieldKind.FLOAT64) for number in range(12))
)
RECORD = {f"part_{number}": 1.0 for number in range(12)}
REPORT_S, REPORTS_ALIKE = 1.0, 3
"""Interval of a router's reports, and the number of equal ones that make a steady count."""


class Taken:
    """All slots that a subscription has got, over several looks."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self.slots: list[int] = []

    def complaint_without(self, wanted: set[int]) -> str | None:
        self.slots.extend(slots_of(self._subscription))
        missing = wanted - set(self.slots)
        return f"{len(missing)} of {len(wanted)} slots have not come" if missing else None


def due(sent: list[int], *, every: int) -> set[int]:
    return {slot for slot in sent if slot % every == 0}


@pytest.mark.feature("S3-32", "S3-36", "S3-38")
def test_an_ended_subscription_stops_and_the_other_goes_on(cloud: Cloud) -> None:
    publisher = cloud.connect("c1/ending/pmu", WEST)
    first, second = (cloud.connect(f"c1/ending/desk-{number}", EAST) for number in (1, 2))
    stream = publisher.publish("value", FLOAT64, rate=60, delay_ms=DELAY_MS)
    ended = first.subscribe(stream.name, keep_events=KEEP)
    lasting = Taken(second.subscribe(stream.name, keep_events=KEEP))
    with Stream(stream) as sending:
        eventually(lambda: sending.complaint_below(30))
        early = Taken(ended)
        eventually(lambda: early.complaint_without(set(sending.sent[:30])))
        ended.unsubscribe()
        last = len(sending.sent)
        eventually(lambda: sending.complaint_below(last + 60))
    eventually(lambda: lasting.complaint_without(set(sending.sent)))
    assert lasting.slots == sorted(set(lasting.slots)), "each slot once, in order"
    # No contract at the first subscriber's edge needs it any more.
    assert len(set(early.slots) - set(sending.sent[:last])) == 0
    with pytest.raises(GridStatError):
        ended.change(qos(every=2))


@pytest.mark.feature("S3-34")
def test_events_of_an_unpublished_variable_are_dropped_and_others_continue(cloud: Cloud) -> None:
    publisher = cloud.connect("c1/gone/pmu", WEST)
    subscriber = cloud.connect("c1/gone/desk", EAST)
    kept, dropped = publisher.publish_many(["kept", "dropped"], FLOAT64, rate=60, delay_ms=DELAY_MS)
    lasting = Taken(subscriber.subscribe(kept.name, keep_events=KEEP))
    ended = subscriber.subscribe(dropped.name, keep_events=KEEP)
    with Stream(kept) as sending:
        eventually(lambda: sending.complaint_below(10))
        dropped.unpublish()
        assert not dropped.is_published
        with pytest.raises(GridStatError):
            dropped.send(1.0)
        last = len(sending.sent)
        eventually(lambda: sending.complaint_below(last + 60))
    eventually(lambda: lasting.complaint_without(set(sending.sent)))
    assert slots_of(ended) == []
    eventually(lambda: None if ended.error_code else "the end is not told")


@pytest.mark.feature("S0-54", "S3-37")
def test_what_is_granted_between_desired_and_worst_is_told_and_flows(cloud: Cloud) -> None:
    publisher = cloud.connect("c1/between/pmu", WEST)
    subscriber = cloud.connect("c1/between/desk", EAST)
    stream = publisher.publish("value", FLOAT64, rate=60, delay_ms=DELAY_MS)
    with pytest.raises(RedundancyNotSatisfiable):
        subscriber.subscribe(stream.name, qos=qos(redundancy=3))
    asked = qos(every=3, redundancy=3, redundancy_worst=2, latency_ms=1_500, priority=2)
    subscription = subscriber.subscribe(stream.name, qos=asked, keep_events=KEEP)
    granted = subscription.contract.granted[BASELINE_MODE]
    assert (granted.every, granted.redundancy, granted.priority) == (3, 2, 2)
    assert granted.latency_us == 1_500_000
    (told,) = cloud.explain(stream.name)["subscriptions"]
    assert len(told["paths"]) == 2
    taken = Taken(subscription)
    with Stream(stream) as sending:
        eventually(lambda: sending.complaint_below(60))
    eventually(lambda: taken.complaint_without(due(sending.sent, every=3)))
    assert set(taken.slots) == due(sending.sent, every=3)


@pytest.mark.feature("S0-75")
def test_priority_and_interval_of_a_living_stream_change_without_a_gap(cloud: Cloud) -> None:
    publisher = cloud.connect("c1/changing/pmu", WEST)
    subscriber = cloud.connect("c1/changing/desk", EAST)
    stream = publisher.publish("value", FLOAT64, rate=60, delay_ms=DELAY_MS)
    subscription = subscriber.subscribe(
        stream.name, qos=qos(every=2, redundancy=2, priority=5), keep_events=KEEP
    )
    number = subscription.contract.subscription_id
    taken = Taken(subscription)
    with Stream(stream) as sending:
        eventually(lambda: sending.complaint_below(30))
        for every, asked in (
            (2, qos(every=2, redundancy=2, priority=1)),
            (1, qos(redundancy=2, priority=1)),
            (2, qos(every=2, redundancy=2)),
        ):
            subscription.change(asked)
            before = len(sending.sent)
            eventually(partial(sending.complaint_below, before + 30))
            wanted = due(sending.sent[before + 1 : before + 30], every=every)
            eventually(partial(taken.complaint_without, wanted))
    eventually(lambda: taken.complaint_without(due(sending.sent, every=2)))
    assert subscription.contract.subscription_id == number, "the same contract all the time"
    assert len(taken.slots) == len(set(taken.slots))
    odd = [slot for slot in taken.slots if slot % 2]
    assert len(odd) >= 14, "from the answer on, for 30 slots"
    assert all(later - earlier == 2 for earlier, later in pairwise(sorted(odd)))


@pytest.mark.feature("S0-74")
def test_a_changed_priority_changes_the_order_on_a_paced_channel_under_the_same_contracts(
    cloud: Cloud,
) -> None:
    """Each burst takes a paced channel many milliseconds, and ends with the preferred streams."""
    publisher = cloud.connect("c1/ranked/pmu", WEST[:1])
    subscriber = cloud.connect("c1/ranked/desk", EAST[:1])
    names = [[f"{side}-{number}" for number in range(RANKED)] for side in ("left", "right")]
    streams = [publisher.publish_many(each, LONG_RECORD, rate=2) for each in names]
    contracts = [
        subscriber.subscribe_many(
            [stream.name for stream in side], qos=qos(priority=priority), keep_events=KEEP
        )
        for side, priority in zip(streams, (2, 5), strict=True)
    ]
    numbers = [[each.contract.subscription_id for each in side] for side in contracts]

    def arrivals(*, last: int) -> list[list[int]]:
        """Return the arrival times of a burst, by side; each pair ends with one of side `last`."""
        created_ns = slot_ahead() * HALF_S_NS
        for pair in zip(streams[1 - last], streams[last], strict=True):
            for stream in pair:
                assert stream.send(RECORD, created_ns=created_ns)
        found: list[list[int]] = [[], []]

        def complaint() -> str | None:
            for side, each in zip(found, contracts, strict=True):
                for contract in each:
                    side.extend(contract.read()["received_ns"].tolist())
            counts = [len(side) for side in found]
            return None if counts == [RANKED] * 2 else f"{counts} of {RANKED} each have come"

        eventually(complaint)
        return found

    left, right = arrivals(last=0)
    assert max(left) < max(right), "priority 2 overtakes priority 5"
    assert sum(left) < sum(right)
    for side, priority in zip(contracts, (5, 2), strict=True):
        for contract in side:
            contract.change(qos(priority=priority))
    await_next_half_second()
    left, right = arrivals(last=1)
    assert max(right) < max(left), "and the other way round once the priorities are changed"
    assert sum(right) < sum(left)
    after = [[each.contract.subscription_id for each in side] for side in contracts]
    assert after == numbers, "no contract was made anew"


def await_next_half_second() -> None:
    """A variable at two events a second has room for its next one."""
    began = slot_ahead()
    eventually(lambda: None if slot_ahead() > began else "the same slot")


def slot_ahead() -> int:
    """Return a slot of half a second, 250 to 750 ms ahead.

    A stamp may be two periods ahead of the first router, but only 100 ms behind it.
    """
    return (time.time_ns() + 750_000_000) // HALF_S_NS


@pytest.mark.feature("S0-137")
@pytest.mark.feature("S0-64", "S0-66", "S3-6")
def test_a_channel_carries_exactly_the_union_that_it_is_charged_for(cloud: Cloud) -> None:
    publisher = cloud.connect("c1/union/pmu", WEST[:1])
    stream = publisher.publish("value", FLOAT64, rate=60, delay_ms=DELAY_MS)
    desks = [cloud.connect(f"c1/union/desk-{every}", EAST[:1]) for every in (2, 3)]
    for desk, every in zip(desks, (2, 3), strict=True):
        desk.subscribe(stream.name, qos=qos(every=every))
    charged = cloud.explain(stream.name)["channels"]
    assert {each["label"]: each["variable_events_per_s"] for each in charged} == {
        "c1/e0→c1/i0": {BASELINE_MODE: 40},
        "c1/i0→c1/e2": {BASELINE_MODE: 40},
    }
    before = steady_count_on(cloud, "c1/e0→c1/i0")
    with Stream(stream) as sending:
        eventually(lambda: sending.complaint_below(60))
    union = due(sending.sent, every=2) | due(sending.sent, every=3)
    eventually(lambda: complaint_of_count(cloud, "c1/e0→c1/i0", before + len(union)))


@pytest.mark.feature("S0-127")
def test_a_router_added_at_run_time_carries_the_second_path_and_is_removed_after_it(
    cloud: Cloud,
) -> None:
    publisher = cloud.connect("c1/added/pmu", WEST[:1])
    subscriber = cloud.connect("c1/added/desk", EAST[:1])
    stream = publisher.publish("value", FLOAT64, rate=60, delay_ms=DELAY_MS)
    with pytest.raises(RedundancyNotSatisfiable):
        subscriber.subscribe(stream.name, qos=qos(redundancy=2))
    ways = [("c1/e0", "c1/i2"), ("c1/i2", "c1/e2")]
    cloud.command("add-router", "c1/i2")
    for way in ways:
        cloud.command("add-channel", *way)
    with cloud.further_router("i2"):
        eventually(cloud.complaint, within_s=60.0)
        subscription = subscriber.subscribe(stream.name, qos=qos(redundancy=2), keep_events=KEEP)
        (told,) = cloud.explain(stream.name)["subscriptions"]
        assert sorted(path["routers"][1] for path in told["paths"]) == ["c1/i0", "c1/i2"]
        with pytest.raises(AssertionError, match="i2"):
            cloud.command("remove-router", "c1/i2")
        taken = Taken(subscription)
        with Stream(stream) as sending:
            eventually(lambda: sending.complaint_below(60))
        eventually(lambda: taken.complaint_without(set(sending.sent)))
        eventually(lambda: complaint_of_count(cloud, "c1/i2→c1/e2", len(sending.sent)))
        subscription.unsubscribe()
        for way in ways:
            cloud.command("remove-channel", *way)
        cloud.command("remove-router", "c1/i2")
    eventually(cloud.complaint, within_s=60.0)


def complaint_of_count(cloud: Cloud, label: str, wanted: int) -> str | None:
    """Routers report what they count every now and then."""
    sent = sent_on(cloud, label)
    return None if sent == wanted else f"{sent} events on {label}, {wanted} wanted"


def steady_count_on(cloud: Cloud, label: str) -> int:
    """Return the events that a channel has sent, once the reports of earlier streams are in."""
    counts = [-1]
    while counts[-1:] * REPORTS_ALIKE != counts[-REPORTS_ALIKE:]:
        time.sleep(REPORT_S)
        counts.append(sent_on(cloud, label))
    return counts[-1]


def sent_on(cloud: Cloud, label: str) -> int:
    (found,) = (each for each in cloud.survey()["channels"] if each["label"] == label)
    return int(found["counters"].get("sent", 0))


@pytest.mark.feature("S0-24")
def test_a_publisher_leaves_and_comes_back_and_knows_whether_it_is_connected(
    cloud: Cloud,
) -> None:
    subscriber = cloud.connect("c1/coming/desk", EAST)
    first = cloud.connect("c1/coming/pmu", WEST)
    name = first.publish("value", FLOAT64, rate=60).name
    taken = Taken(subscriber.subscribe(name, keep_events=KEEP))
    states = [first.is_connected]
    first.close()
    states.append(first.is_connected)
    with pytest.raises(GridStatError):
        first.publish("other", FLOAT64, rate=60)
    second = cloud.connect("c1/coming/pmu", WEST)
    assert [*states, second.is_connected] == [True, False, True]
    again = second.publish("value", FLOAT64, rate=60, delay_ms=DELAY_MS)
    taken = Taken(subscriber.subscribe(name, keep_events=KEEP))
    with Stream(again) as sending:
        eventually(lambda: sending.complaint_below(30))
    eventually(lambda: taken.complaint_without(set(sending.sent)))
