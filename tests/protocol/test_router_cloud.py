"""Managed routers under a stub of a broker: the same behaviour in memory and over UDP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gridstat.model.identifiers import VariableId
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, EventFlag, StatusVariable
from gridstat.net.codec.event import decode_event
from gridstat.net.command.endpoint_messages import Answer, GrantedOutcome, Outcomes, Submit
from gridstat.net.command.frames import encode_body
from gridstat.net.command.machine import Connected, Received
from gridstat.net.command.router_messages import (
    BackPressureChanged,
    ChangeTable,
    ChannelStateChanged,
    PathOrder,
    ReportCounters,
    Return,
    SourceOrder,
    VariableOrder,
)
from gridstat.net.command.session_messages import Hello
from tests.protocol.grids import PUBLISHER, assert_reconciled, event
from tests.protocol.router_carriers import MemoryCarrier, UdpCarrier
from tests.protocol.router_cloud import (
    BROKER,
    PROBES,
    RouterCloud,
    channel_to,
    slot_after,
    stamp_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

TEN_MS = Period(1, 100)
VOLTAGE, ANGLE = 1, 2
WEST_EAST, EAST_SUBSCRIBER = 10, 20
FIRST, SECOND = 65_536, 131_072
DESK = "endpoint/c1/desk"


@pytest.fixture(params=["memory", "udp"])
def cloud(request: pytest.FixtureRequest) -> Iterator[RouterCloud]:
    is_memory = request.param == "memory"
    cloud = RouterCloud(MemoryCarrier() if is_memory else UdpCarrier(), in_memory=is_memory)
    yield cloud
    cloud.close()


@pytest.fixture
def memory_cloud() -> Iterator[RouterCloud]:
    cloud = RouterCloud(MemoryCarrier(), in_memory=True)
    yield cloud
    cloud.close()


def change(**orders: Any) -> ChangeTable:
    return ChangeTable(term=1, number=0, **orders)


def variable(variable_id: int, *, source: int = 0) -> VariableOrder:
    return VariableOrder(variable_id=variable_id, period=TEN_MS, source=source)


def path(path_id: int, variable_id: int, channel_id: int, *, every: int = 1) -> PathOrder:
    return PathOrder(path_id=path_id, variable_id=variable_id, channel_id=channel_id, every=every)


def build_line(cloud: RouterCloud) -> None:
    """Publisher → west → east → subscriber, with the voltage subscribed."""
    cloud.add("c1/west", "c1/east")
    cloud.settle()
    way = channel_to(WEST_EAST, cloud.address("c1/east"), to="c1/east", **PROBES)
    end = channel_to(EAST_SUBSCRIBER, cloud.carrier.subscriber(), to="c1/desk")
    both = (variable(VOLTAGE, source=PUBLISHER), variable(ANGLE, source=PUBLISHER))
    cloud.order(
        "c1/west",
        change(
            channels=(way,),
            sources=(SourceOrder(channel_id=PUBLISHER, sender="c1/pmu", is_publisher=True),),
            variables=both,
            paths=(path(FIRST, VOLTAGE, WEST_EAST),),
        ),
    )
    cloud.order(
        "c1/east",
        change(
            channels=(end,),
            sources=(SourceOrder(channel_id=WEST_EAST, sender="c1/west", silent_ms_max=100),),
            variables=(variable(VOLTAGE), variable(ANGLE)),
            paths=(path(FIRST, VOLTAGE, EAST_SUBSCRIBER),),
        ),
    )
    cloud.settle()


class Run:
    """Publishes one slot after another and notes what arrives, by variable."""

    def __init__(self, cloud: RouterCloud) -> None:
        self._cloud = cloud
        self._next = slot_after(cloud.carrier.now_ns())
        self.published: list[int] = []
        self._slots: dict[int, list[int]] = {VOLTAGE: [], ANGLE: []}

    def publish(self, slots: int, *, variable_ids: tuple[int, ...] = (VOLTAGE, ANGLE)) -> None:
        for _ in range(slots):
            slot, self._next = self._next, self._next + 1
            self.published.append(slot)
            stamps = (event(variable_id, stamp_of(slot)) for variable_id in variable_ids)
            self._cloud.publish("c1/west", PUBLISHER, *stamps)
            self.collect()

    def collect(self) -> None:
        self._cloud.turn()
        for variable_id, created_ns in self._cloud.arrived():
            self._slots[variable_id].append(created_ns * 100 // 1_000_000_000)

    def arrived(self, variable_id: int, *, count: int = 0, until: int = 0) -> list[int]:
        """The slots that came, once there are so many of them and the one that is waited for."""

        def complaint() -> str | None:
            self.collect()
            slots = self._slots[variable_id]
            is_there = len(slots) >= count and (not until or until in slots)
            return None if is_there else f"{len(slots)} of {count} came, slot {until} is waited for"

        self._cloud.wait(complaint)
        return sorted(self._slots[variable_id])


@pytest.mark.feature("S3-17", "S3-55", "S0-8", "S0-12")
def test_a_stub_broker_builds_a_line_and_events_flow(cloud: RouterCloud) -> None:
    build_line(cloud)
    run = Run(cloud)
    run.publish(50)
    assert run.arrived(VOLTAGE, count=50) == run.published
    for name, router in cloud.routers.items():
        assert router.agent.table.paths == cloud.broker.wanted[name].paths
        assert router.agent.table.digest == cloud.broker.wanted[name].digest
        assert router.core.rows() == len(cloud.broker.wanted[name].variables)


@pytest.mark.feature("S1-7")
def test_an_unsubscribed_publication_is_dropped_at_the_publishers_edge(cloud: RouterCloud) -> None:
    build_line(cloud)
    run = Run(cloud)
    run.publish(20, variable_ids=(ANGLE,))
    run.publish(20, variable_ids=(VOLTAGE,))
    run.arrived(VOLTAGE, count=20)
    west, east = cloud.routers["c1/west"].router, cloud.routers["c1/east"].router

    def complaint() -> str | None:
        """A core counts after it has sent, so the event may be here before its count is."""
        counted = (
            west.channel_counters()[WEST_EAST]["sent"],
            west.counters()["not_due"],
            east.counters()["in"],
        )
        return None if counted == (20, 20, 20) else f"sent, not due, in: {counted}"

    cloud.wait(complaint)


@pytest.mark.feature("S3-40")
def test_paths_come_and_go_without_loss_on_another_variable(cloud: RouterCloud) -> None:
    build_line(cloud)
    run = Run(cloud)
    run.publish(10)
    cloud.order("c1/east", change(paths=(path(SECOND, ANGLE, EAST_SUBSCRIBER, every=2),)))
    cloud.order("c1/west", change(paths=(path(SECOND, ANGLE, WEST_EAST, every=2),)))
    run.publish(10)
    cloud.settle()
    from_here = len(run.published)
    run.publish(20)
    expected = [slot for slot in run.published[from_here:] if slot % 2 == 0]
    angle = run.arrived(ANGLE, until=expected[-1])
    assert angle[-len(expected) :] == expected
    cloud.order("c1/west", change(torn_down=(SECOND,), dropped=(ANGLE,)))
    run.publish(10)
    cloud.settle()
    run.publish(10)
    assert run.arrived(VOLTAGE, count=60) == run.published
    assert len(run.arrived(ANGLE, count=0)) < 25


@pytest.mark.feature("S0-115")
def test_routers_go_on_without_their_broker_and_catch_up_when_it_is_back(
    cloud: RouterCloud,
) -> None:
    build_line(cloud)
    run = Run(cloud)
    for name in cloud.routers:
        cloud.disconnect(name)
    run.publish(30)
    assert run.arrived(VOLTAGE, count=30) == run.published
    cloud.order("c1/east", change(paths=(path(SECOND, ANGLE, EAST_SUBSCRIBER),)))
    cloud.order("c1/west", change(paths=(path(SECOND, ANGLE, WEST_EAST),)))
    for name in cloud.routers:
        cloud.connect(name)
    cloud.settle()
    assert [report.is_first_time for report in cloud.broker.reports["c1/west"]] == [True, False]
    from_here = len(run.published)
    run.publish(30)
    assert run.arrived(ANGLE, count=30) == run.published[from_here:]
    assert run.arrived(VOLTAGE, count=60) == run.published


@pytest.mark.feature("S0-117", "S0-113")
def test_a_router_that_died_is_missed_by_its_neighbour_and_rebuilt_when_it_is_back(
    cloud: RouterCloud,
) -> None:
    build_line(cloud)
    cloud.wait(lambda: missing(cloud, ChannelStateChanged(channel_id=WEST_EAST, is_up=True)))
    cloud.crash("c1/west")
    cloud.wait(lambda: None if last_state(cloud) is False else "nobody misses west")
    cloud.add("c1/west")
    cloud.settle()
    assert cloud.broker.reports["c1/west"][-1].is_first_time
    cloud.wait(lambda: None if last_state(cloud) else "west is not heard again")
    run = Run(cloud)
    run.publish(20)
    assert run.arrived(VOLTAGE, count=20) == run.published


def states(cloud: RouterCloud) -> list[ChannelStateChanged]:
    heard = cloud.broker.heard.get("c1/east", [])
    return [message for message in heard if isinstance(message, ChannelStateChanged)]


def last_state(cloud: RouterCloud) -> bool | None:
    found = states(cloud)
    return found[-1].is_up if found else None


def missing(cloud: RouterCloud, wanted: ChannelStateChanged) -> str | None:
    return None if wanted in states(cloud) else f"{wanted} was not said"


@pytest.mark.feature("S0-113", "S0-114")
def test_a_cut_channel_is_told_within_its_bound_and_resumes_by_itself(
    memory_cloud: RouterCloud,
) -> None:
    cloud = memory_cloud
    assert isinstance(cloud.carrier, MemoryCarrier)
    build_line(cloud)
    cloud.wait(lambda: missing(cloud, ChannelStateChanged(channel_id=WEST_EAST, is_up=True)))
    run = Run(cloud)
    run.publish(10)
    before_ns = cloud.carrier.now_ns()
    cloud.carrier.cut.add(WEST_EAST)
    run.publish(10)
    cloud.wait(lambda: None if last_state(cloud) is False else "nothing was noticed")
    assert 100 <= states(cloud)[-1].silent_ms <= 130
    assert cloud.carrier.now_ns() - before_ns <= 130_000_000
    cloud.carrier.cut.clear()
    cloud.wait(lambda: None if last_state(cloud) else "the return was not noticed")
    run.publish(10)
    arrived = run.arrived(VOLTAGE, count=20)
    assert arrived == run.published[:10] + run.published[20:]
    assert [state.is_up for state in states(cloud)] == [True, False, True]


@pytest.mark.feature("S0-130")
def test_a_congested_channel_says_so_and_says_when_it_is_over(memory_cloud: RouterCloud) -> None:
    cloud = memory_cloud
    build_line(cloud)
    narrow = channel_to(
        EAST_SUBSCRIBER,
        cloud.carrier.subscriber(),
        bandwidth_bytes_per_s=10_000,
        queue_events_max=20,
    )
    cloud.order("c1/east", change(channels=(narrow,)))
    cloud.settle()
    run = Run(cloud)
    run.publish(40, variable_ids=(VOLTAGE,))

    def pressures() -> list[bool]:
        heard = cloud.broker.heard.get("c1/east", [])
        return [each.is_on for each in heard if isinstance(each, BackPressureChanged)]

    cloud.wait(lambda: None if pressures() == [True, False] else f"said so far: {pressures()}")
    counters = cloud.routers["c1/east"].router.channel_counters()[EAST_SUBSCRIBER]
    assert counters["queue_full"] > 0
    assert counters["due"] == counters["sent"] + counters["queue_full"] + counters["queued"]


@pytest.mark.feature("S3-41")
def test_channels_build_a_ring_and_its_removal_stops_traffic(memory_cloud: RouterCloud) -> None:
    """Build a ring: west reaches the subscriber by two ways; each router passes one copy on."""
    cloud = memory_cloud
    names = ("c1/west", "c1/north", "c1/south", "c1/east")
    cloud.add(*names)
    cloud.settle()
    ways = [
        ("c1/west", "c1/north", 31),
        ("c1/north", "c1/east", 32),
        ("c1/west", "c1/south", 33),
        ("c1/south", "c1/east", 34),
        ("c1/east", "c1/west", 35),
    ]
    for name in names:
        cloud.order(name, change(variables=(variable(VOLTAGE),)))
    for from_router, to_router, channel_id in ways:
        cloud.order(
            from_router,
            change(
                channels=(channel_to(channel_id, cloud.address(to_router), to=to_router),),
                paths=(path(FIRST + channel_id, VOLTAGE, channel_id),),
            ),
        )
        source = SourceOrder(channel_id=channel_id, sender=from_router)
        cloud.order(to_router, change(sources=(source,)))
    pmu = SourceOrder(channel_id=PUBLISHER, sender="c1/pmu")
    cloud.order("c1/west", change(sources=(pmu,)))
    end = channel_to(EAST_SUBSCRIBER, cloud.carrier.subscriber())
    cloud.order("c1/east", change(channels=(end,), paths=(path(FIRST, VOLTAGE, 20),)))
    cloud.settle()
    run = Run(cloud)
    run.publish(10, variable_ids=(VOLTAGE,))
    assert run.arrived(VOLTAGE, count=10) == run.published
    cloud.order("c1/west", change(torn_down=(FIRST + 31,), closed_channels=(31,)))
    cloud.settle()
    run.publish(10, variable_ids=(VOLTAGE,))
    assert run.arrived(VOLTAGE, count=20) == run.published
    cloud.order("c1/south", change(torn_down=(FIRST + 34,), closed_channels=(34,)))
    cloud.settle()
    run.publish(10, variable_ids=(VOLTAGE,))
    assert run.arrived(VOLTAGE, count=20) == run.published[:20]
    for router in cloud.routers.values():
        assert_reconciled(router.core, router.router.channel_counters())


def test_a_late_subscriber_is_handed_the_newest_event_at_once(cloud: RouterCloud) -> None:
    build_line(cloud)
    keeping = VariableOrder(variable_id=VOLTAGE, period=TEN_MS, keeps_newest=True)
    cloud.order("c1/east", change(variables=(keeping,)))
    cloud.settle()
    run = Run(cloud)
    run.publish(5)
    run.arrived(VOLTAGE, count=5)
    east = cloud.routers["c1/east"]
    east.tell(Connected(DESK, Hello(role="endpoint", name="c1/desk", instance="first")))
    east.tell(Received(DESK, Submit(request_id=1, body=b"", signature=b"")))
    name, kind = "c1/pmu/voltage", BuiltinType.INT64
    granted = [
        GrantedOutcome(
            subscription_id=number,
            variable=StatusVariable(VariableId(number), name, kind, TEN_MS),
        )
        for number in (VOLTAGE, ANGLE)
    ]
    body = encode_body(Outcomes(outcomes=tuple(granted)))
    east.tell(Received(BROKER, Return(term=1, endpoint="c1/desk", request_id=1, body=body)))
    [(_, answer)] = east.to_end_points
    assert isinstance(answer, Answer)
    [newest] = [decode_event(raw) for raw in answer.newest]
    assert newest.variable_id == VOLTAGE
    assert newest.created_ns == stamp_of(run.published[-1])
    assert EventFlag.CACHED in newest.flags


def test_counters_of_core_channels_and_sources_reach_the_broker(memory_cloud: RouterCloud) -> None:
    cloud = memory_cloud
    build_line(cloud)
    run = Run(cloud)
    run.publish(5)

    def report() -> ReportCounters | None:
        heard = cloud.broker.heard.get("c1/east", [])
        reports = [each for each in heard if isinstance(each, ReportCounters)]
        return reports[-1] if reports else None

    cloud.wait(lambda: None if report() else "no counters")
    found = report()
    assert found is not None
    assert found.router["in"] == 5
    assert found.channels[EAST_SUBSCRIBER]["sent"] == 5
    assert found.sources[WEST_EAST]["datagrams"] >= 5
