"""Publishers and subscribers on a real cloud, by the public API alone."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

import gridstat
from gridstat.model.errors import (
    CertificateRefused,
    EndPointExists,
    GroupMismatch,
    IntervalNotSatisfiable,
    LatencyNotSatisfiable,
    LinkDown,
    NoSuchRouter,
    NoSuchVariable,
    NotAuthorised,
    TypeMismatch,
    VariableExists,
)
from lab.declared_delay import DELAY_MS
from lab.grid_files import NAME_SERVICE_PORT
from lab.grid_plan import BROKER
from tests.cluster.attached import await_edges
from tests.cluster.end_points.feeding import feeding
from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gridstat.endpoint.connection import Connection
    from tests.cluster.end_points.local_cloud import LocalCloud

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]
RATE = 50


@pytest.fixture
def reader(cloud: LocalCloud) -> Iterator[Connection]:
    with cloud.connect("c1/reader") as made:
        yield made


def at_least(count: int, found: list[Any]) -> None:
    eventually(lambda: None if len(found) >= count else f"{len(found)} of {count}")


@pytest.mark.feature("S0-23", "S0-36", "S0-37", "S0-40", "S1-5", "S1-6")
def test_what_is_published_arrives_with_its_stamp(pmu: Connection, reader: Connection) -> None:
    voltage = pmu.publish("voltage", gridstat.FLOAT64, rate=RATE, delay_ms=DELAY_MS)
    events: list[gridstat.Delivery] = []
    delays: list[float] = []
    pulled = reader.subscribe(voltage.name, qos=gridstat.qos(latency_ms=1_500))
    reader.subscribe(voltage.name, on_event=events.append)
    reader.subscribe(voltage.name, on_event=lambda _event, delay_us: delays.append(delay_us))
    with feeding(voltage, RATE) as said:
        at_least(20, events)
        at_least(20, delays)
    came = list(events)
    values = [event.value for event in came if isinstance(event.value, float)]
    assert len(values) == len(came)
    assert values == sorted(values)
    stamps = [event.created_ns for event in came]
    assert all(stamp_ns * RATE % 1_000_000_000 < RATE for stamp_ns in stamps)
    eventually(lambda: None if pulled.value == len(said) - 1 else f"{pulled.value} is the newest")
    assert pulled.latency_us == (pulled.received_ns - pulled.created_ns) / 1_000


class DistanceFromFive:
    """A derived value as a user may write one."""

    def declared(self, _value_type: gridstat.model.status.ValueType) -> gridstat.DerivedValue:
        return gridstat.DerivedValue("from_five", gridstat.FLOAT64)

    def begin(self) -> Callable[[int, Any], float]:
        return lambda _created_ns, value: abs(value - 5.0)


@pytest.mark.feature("S0-30", "S0-31", "S0-32", "S0-33")
def test_derived_values_equal_what_is_computed_here(pmu: Connection, reader: Connection) -> None:
    voltage = pmu.publish(
        "voltage",
        gridstat.FLOAT64,
        rate=RATE,
        derived=[
            gridstat.MovingAverage(4),
            gridstat.Maximum(3),
            gridstat.Minimum(3),
            DistanceFromFive(),
        ],
    )
    events: list[gridstat.Delivery] = []
    found = reader.subscribe(
        voltage.name, derived=["average_4", "maximum_3", "from_five"], on_event=events.append
    )
    assert not found.register_derived("average_9")
    assert not found.register_derived("minimum_3", gridstat.BOOL)
    with feeding(voltage, RATE, lambda n: float(n * 7 % 11)):
        at_least(20, events)
    for event in events:
        numbers = [float(n * 7 % 11) for n in range(event.sequence + 1)]
        assert event.value == numbers[-1]
        assert event.derived == {
            "average_4": pytest.approx(np.mean(numbers[-4:])),
            "maximum_3": max(numbers[-3:]),
            "from_five": abs(numbers[-1] - 5.0),
        }


@pytest.mark.feature("S0-38", "S0-39", "S0-126")
def test_a_publisher_that_stops_is_noticed_and_bridged(pmu: Connection, reader: Connection) -> None:
    voltage = pmu.publish("voltage", gridstat.FLOAT64, rate=RATE)
    violations: list[gridstat.Violation] = []
    quality = gridstat.qos(rate=10, latency_ms=500)
    reader.subscribe(voltage.name, qos=quality, on_violation=violations.append)
    bridged = reader.subscribe(
        voltage.name, qos=quality, extrapolate=gridstat.Polynomial(order=1, points=3)
    )
    with feeding(voltage, RATE):
        eventually(lambda: None if bridged.value is not None else "nothing came")
    at_least(3, violations)
    slots = [violation.slot for violation in violations]
    assert len(set(slots)) == len(slots)
    eventually(lambda: None if bridged.is_extrapolated else "not bridged")
    assert bridged.ledger().extrapolated >= 1


@pytest.mark.feature("S0-42", "S0-43", "S0-44", "S0-45", "S0-46")
def test_a_group_shows_whole_sets_and_leaves_nothing_at_the_broker(
    cloud: LocalCloud, pmu: Connection, reader: Connection
) -> None:
    fast = pmu.publish("fast", gridstat.FLOAT64, rate=50)
    slow = pmu.publish("slow", gridstat.FLOAT64, rate=10)
    group = reader.group("both", interval=gridstat.Period(1, 5), latency_ms=2_000, history=3)
    group.add(fast.name)
    with feeding(fast, 50), feeding(slow, 10):
        eventually(lambda: None if group.completed >= 2 else "no set of one")
        group.add(slow.name)
        eventually(
            lambda: None if len((group.latest() or _empty()).deliveries) == 2 else "no set of two"
        )
    for found in group.latest(3):
        stamps = [each.created_ns for each in found.deliveries.values()]
        assert max(stamps) - min(stamps) < 1_000_000
    with pytest.raises(GroupMismatch):
        reader.group("both", interval=gridstat.Period(1, 5), latency_ms=100)
    group.close()
    assert _subscriptions(cloud, "c1/reader") == []


@pytest.mark.feature("S0-29", "S0-34", "S0-41", "S3-39")
def test_withdrawing_and_leaving_leave_nothing_behind(cloud: LocalCloud, pmu: Connection) -> None:
    voltage = pmu.publish("voltage", gridstat.FLOAT64, rate=RATE)
    current = pmu.publish("current", gridstat.FLOAT64, rate=RATE)
    with cloud.connect("c1/leaver") as leaver:
        found = leaver.subscribe(voltage.name)
        leaver.subscribe(current.name)
        assert len(_subscriptions(cloud, "c1/leaver")) == 2
        voltage.unpublish()
        eventually(lambda: None if found.error_code else "not told")
        assert found.take_error_code() == NoSuchVariable.code
        assert found.error_code == 0
        assert len(_subscriptions(cloud, "c1/leaver")) == 1

    def left() -> str | None:
        facts = cloud.survey()
        holders = {each["subscriber"] for each in facts["subscriptions"]}
        known = holders | {each["name"] for each in facts["end_points"]}
        return f"the broker knows {known}" if "c1/leaver" in known else None

    eventually(left)


@pytest.mark.feature("S0-150")
def test_a_subscriber_publishes_what_it_computes(
    cloud: LocalCloud, pmu: Connection, reader: Connection
) -> None:
    voltage = pmu.publish("voltage", gridstat.FLOAT64, rate=RATE)
    with cloud.connect("c1/doubler") as doubler:
        doubled = doubler.publish("double", gridstat.FLOAT64, rate=RATE)

        def double(event: gridstat.Delivery) -> None:
            assert isinstance(event.value, float)
            doubled.send(2 * event.value, created_ns=event.created_ns)

        events: list[gridstat.Delivery] = []
        originals: dict[int, object] = {}
        reader.subscribe(
            voltage.name, on_event=lambda event: originals.update({event.created_ns: event.value})
        )
        doubler.subscribe(voltage.name, on_event=double)
        reader.subscribe(doubled.name, on_event=events.append)
        with feeding(voltage, RATE):
            at_least(10, events)
    compared = [event for event in events if event.created_ns in originals]
    assert len(compared) >= 5
    expected = [2 * cast("float", originals[event.created_ns]) for event in compared]
    assert [event.value for event in compared] == expected


@pytest.mark.feature("S0-20")
def test_a_value_of_the_user_s_own_type_arrives_as_it_was_published(
    pmu: Connection, reader: Connection
) -> None:
    kinds = gridstat.FieldKind
    fields = (gridstat.Field("magnitude", kinds.FLOAT64), gridstat.Field("is_valid", kinds.BOOL))
    phasor = pmu.publish("phasor", gridstat.RecordType("phasor", fields), rate=RATE)
    events: list[gridstat.Delivery] = []
    reader.subscribe(phasor.name, on_event=events.append)

    def value(number: int) -> dict[str, Any]:
        return {"magnitude": number / 4, "is_valid": number % 2 == 0}

    with feeding(phasor, RATE, value):
        at_least(10, events)
    assert [event.value for event in events] == [value(event.sequence) for event in events]


@pytest.mark.feature("S0-27")
def test_alerts_overtake_and_are_bounded(pmu: Connection, reader: Connection) -> None:
    sag = pmu.publish_alert("line-sag", gridstat.BOOL, interval_s_min=30)
    events: list[gridstat.Delivery] = []
    reader.subscribe(sag.name, on_event=events.append)
    assert sag.send(True)
    assert not sag.send(False)
    at_least(1, events)
    assert [event.value for event in events] == [True]


def test_a_pattern_catches_what_is_published_later(pmu: Connection, reader: Connection) -> None:
    first = pmu.publish("voltage", gridstat.FLOAT64, rate=RATE)
    caught: list[gridstat.Subscription] = []
    pattern = reader.subscribe_pattern("c1/north/*/voltage", caught.append)
    at_least(1, caught)
    with feeding(first, RATE):
        eventually(lambda: None if caught[0].value is not None else "no value")
    first.unpublish()
    eventually(lambda: None if pattern.matches == () else "still caught")
    pmu.publish("voltage", gridstat.INT64, rate=1)
    at_least(2, caught)
    assert {each.name for each in reader.find("c1/north/**")} == {first.name}


def test_a_pattern_without_a_match_waits_for_one(
    pmu: Connection, reader: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    pattern = reader.subscribe_pattern("c1/north/*/voltage")
    eventually(lambda: None if "no_match_yet" in caplog.text else "nothing was said")
    assert pattern.matched == 0
    pmu.publish("voltage", gridstat.FLOAT64, rate=RATE)
    eventually(lambda: None if pattern.matched == 1 else repr(pattern))


def test_numpy_numbers_go_through_a_cloud_and_events_say_their_name(
    pmu: Connection, reader: Connection
) -> None:
    rate: Any = np.float64(RATE)
    some: Any = np.int64(8)
    phase = pmu.publish("phase", gridstat.FLOAT64, rate=rate, phase_ns=some)
    quality = gridstat.qos(rate=rate, latency_ms=some * 100, priority=some // 4)
    events: list[gridstat.Delivery] = []
    reader.subscribe(phase.name, qos=quality, keep_events=some, on_event=events.append)
    stamps: list[Any] = []

    def complaint() -> str | None:
        stamps.append(np.int64(time.time_ns()))
        phase.send(cast("Any", np.float32(1.5)), created_ns=stamps[-1])
        return None if events else "nothing came"

    eventually(complaint)
    assert (events[0].name, events[0].value) == (phase.name, 1.5)
    assert events[0].created_ns in stamps
    with pytest.raises(gridstat.Misuse, match="no option 'redundancy'"):
        reader.subscribe(phase.name, redundancy=2)  # type: ignore[call-arg]
    assert len(reader.find(phase.name, limit=some)) == 1


def test_many_values_go_in_few_datagrams(pmu: Connection, reader: Connection) -> None:
    loads = pmu.publish_many([f"feeder-{n}/load" for n in range(40)], gridstat.FLOAT64, rate=10)
    found = reader.subscribe_many([load.name for load in loads])
    said: list[int] = []

    def complaint() -> str | None:
        said.append(pmu.send_many(loads, np.arange(40.0)))
        missing = [each.name for each in found if each.value is None]
        return f"missing: {missing}" if missing else None

    eventually(complaint)
    assert [each.value for each in found] == list(np.arange(40.0))
    assert said[0] == 40


def test_asking_later_does_not_wait_and_tells_each_name_its_answer(
    pmu: Connection, reader: Connection
) -> None:
    voltage = pmu.publish("voltage", gridstat.FLOAT64, rate=RATE)
    waiting = [reader.subscribe_later([voltage.name, "c1/nobody/knows"]) for _ in range(3)]
    for each in waiting:
        granted, refused = each.result(timeout=20)
        assert isinstance(granted, gridstat.Subscription)
        assert granted.name == voltage.name
        assert isinstance(refused, gridstat.Refused)
    with pytest.raises(gridstat.Misuse, match="1001"):
        reader.subscribe_later([voltage.name] * 1_001)


def test_batches_and_streams_hold_the_same_events(pmu: Connection, reader: Connection) -> None:
    voltage = pmu.publish("voltage", gridstat.FLOAT64, rate=RATE)
    found = reader.subscribe(voltage.name, keep_events=10_000)
    streamed: list[gridstat.Delivery] = []

    async def follow() -> None:
        async for event in found.events():
            streamed.append(event)
            if len(streamed) == 10:
                return

    with feeding(voltage, RATE):
        asyncio.run(follow())
        batch = found.read(timeout_s=10)
        table = found.read_arrow(timeout_s=10)
    stamps = {event.created_ns for event in streamed}
    assert stamps <= set(batch["created_ns"].tolist())
    assert table.num_rows >= 1
    assert table.schema.field("value").type == "double"


def test_a_coroutine_connects_without_blocking(cloud: LocalCloud) -> None:
    cloud.certify("c1/async")

    async def work() -> list[gridstat.StatusVariable]:
        places = [cloud.edge("e0")]
        grid = await gridstat.connect_async(
            places, "c1/async", certificates=cloud.certificates, timeout_s=30
        )
        async with grid:
            await grid.run(grid.publish, "x", gridstat.BOOL, rate=1)
            return await grid.run(grid.find, "c1/async/**")

    assert [each.name for each in asyncio.run(work())] == ["c1/async/x"]


@pytest.mark.feature("S0-10")
def test_edges_are_found_by_name_or_by_address(cloud: LocalCloud) -> None:
    cloud.certify("c1/finder")
    service = f"{cloud.hosts[BROKER]}:{NAME_SERVICE_PORT}"
    with gridstat.connect(
        ["c1/e0", cloud.edge("e1")],
        "c1/finder",
        certificates=cloud.certificates,
        name_service=[f"{cloud.hosts[BROKER]}:1", service],
        timeout_s=30,
    ) as grid:
        await_edges(grid, 2)
        assert grid.edges == ("c1/e0", "c1/e1")
    with pytest.raises(NoSuchRouter):
        gridstat.connect(
            "c1/e9", "c1/finder", certificates=cloud.certificates, name_service=service
        )
    with pytest.raises(gridstat.Misuse, match="has no address"):
        gridstat.connect("c1/e0", "c1/finder", certificates=cloud.certificates)


@pytest.mark.feature("S3-90")
def test_nothing_is_lost_below_capacity_and_the_broker_hears_of_it(
    cloud: LocalCloud, pmu: Connection, reader: Connection
) -> None:
    voltage = pmu.publish("voltage", gridstat.FLOAT64, rate=RATE, delay_ms=DELAY_MS)
    with feeding(voltage, RATE) as said:
        found = reader.subscribe(voltage.name, qos=gridstat.qos(redundancy=2, latency_ms=30_000))
        eventually(lambda: None if found.ledger().delivered >= 100 else str(found.ledger()))
        eventually(lambda: None if found.ledger().duplicate >= 50 else str(found.ledger()))
        assert sum(each["lost"] for each in reader.sources().values()) == 0

        def reported() -> str | None:
            (facts,) = _subscriptions(cloud, "c1/reader")
            told = facts.get("ledger") or {}
            return None if told.get("delivered", 0) >= 50 else f"the broker knows {told}"

        eventually(reported)
    assert all(said)

    def uncounted() -> str | None:
        ledger = found.ledger()
        is_whole = sum(ledger.copies) == ledger.delivered + ledger.duplicate
        return None if is_whole else f"not each copy is counted once: {ledger}"

    eventually(uncounted)
    found.unsubscribe()  # What has not come by now is lost, however patient the contract.
    ledger = found.ledger()
    assert (ledger.lost, ledger.expected) == (0, ledger.delivered)


@pytest.mark.parametrize(
    ("wishes", "error"),
    [
        ({"value_type": gridstat.BOOL}, TypeMismatch),
        ({"qos": gridstat.qos(latency_ms=0.001)}, LatencyNotSatisfiable),
        ({"qos": gridstat.qos(rate=10_000)}, IntervalNotSatisfiable),
    ],
)
def test_the_cloud_refuses_by_class_with_a_hint(
    pmu: Connection, reader: Connection, wishes: Any, error: type[gridstat.Refused]
) -> None:
    voltage = pmu.publish("voltage", gridstat.FLOAT64, rate=RATE)
    with pytest.raises(error) as refused:
        reader.subscribe(voltage.name, **wishes)
    assert refused.value.hint


def test_names_that_are_taken_or_unknown_are_refused(pmu: Connection) -> None:
    pmu.publish("voltage", gridstat.FLOAT64, rate=RATE)
    with pytest.raises(VariableExists):
        pmu.publish("voltage", gridstat.FLOAT64, rate=RATE)
    with pytest.raises(NoSuchVariable):
        pmu.subscribe("c1/nobody/knows")


def test_a_second_process_of_the_same_name_is_refused(cloud: LocalCloud, pmu: Connection) -> None:
    assert pmu.is_connected
    with pytest.raises(EndPointExists):
        cloud.connect("c1/north/pmu-1")


def test_an_edge_that_is_somebody_else_is_refused(cloud: LocalCloud) -> None:
    cloud.certify("c1/lost")
    wrong = cloud.edge("e0").replace("c1/e0@", "c1/e1@")
    with pytest.raises(NotAuthorised, match="the peer is router/c1/e0"):
        gridstat.connect(wrong, "c1/lost", certificates=cloud.certificates)


def test_a_missing_certificate_or_edge_says_what_is_missing(
    cloud: LocalCloud, tmp_path: Path
) -> None:
    with pytest.raises(CertificateRefused):
        gridstat.connect(cloud.edge("e0"), "c1/nobody", certificates=tmp_path)
    cloud.certify("c1/lost")
    nowhere = f"c1/e9@{cloud.hosts['e0']}:9"
    with pytest.raises(LinkDown, match="c1/e9"):
        gridstat.connect(nowhere, "c1/lost", certificates=cloud.certificates, timeout_s=1)


def test_a_closed_connection_refuses_and_leaves_no_thread(cloud: LocalCloud) -> None:
    before = threading.active_count()
    grid = cloud.connect("c1/brief")
    voltage = grid.publish("voltage", gridstat.FLOAT64, rate=1)
    grid.close()
    grid.close()
    assert threading.active_count() == before
    assert not grid.is_connected
    with pytest.raises(gridstat.Misuse):
        voltage.send(1.0)
    with pytest.raises(gridstat.Misuse):
        grid.subscribe("c1/x/y")


def _empty() -> gridstat.GroupSet:
    return gridstat.GroupSet(0, {})


def _subscriptions(cloud: LocalCloud, subscriber: str) -> list[dict[str, Any]]:
    return [each for each in cloud.survey()["subscriptions"] if each["subscriber"] == subscriber]
