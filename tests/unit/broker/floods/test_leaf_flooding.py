"""Limited flooding of one cloud: admitted, durable, per mode, and the parent's word wins."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gridstat.broker.floods import leaf_flooding
from gridstat.model.cloud import EventChannel, Router
from gridstat.model.errors import (
    ChannelFull,
    LayoutError,
    NoSuchVariable,
    QuotaReached,
    Refused,
    RouterFull,
    StillInUse,
    StorageFailed,
)
from gridstat.model.identifiers import ChannelId, VariableId
from gridstat.model.qos import QosRequest
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, StatusVariable
from gridstat.net.command.endpoint_messages import (
    ChangePublication,
    PublicationRequest,
    Publish,
    RefusedOutcome,
)
from gridstat.net.command.machine import Connected, Received
from gridstat.net.command.messages import AddChannel, AddRouter, Hello
from gridstat.net.command.operator_messages import (
    RemoveChannel,
    RemoveFlooding,
    RemoveRouter,
    SetFlooding,
)
from gridstat.net.command.router_messages import FloodOrder
from tests.unit.broker.floods.flooded_cloud import (
    ENOUGH,
    charges,
    cloud_of,
    everywhere,
    flood,
    floods_at,
    no,
    operate,
    stop,
    variable_of,
)
from tests.unit.broker.stand_ins import CENTRE, PMU, VOLTAGE, FakeRouter, subscribe

if TYPE_CHECKING:
    from tests.unit.broker.conversation import Conversation


@pytest.fixture
def cloud() -> Conversation:
    return cloud_of()


def test_every_router_of_the_cloud_floods_in_the_given_modes_and_only_then(
    cloud: Conversation,
) -> None:
    answer = flood(cloud, 2, 3)
    assert [term["mode"] for term in answer.facts["modes"]] == [2, 3]
    assert answer.facts["unconfirmed"] == []
    assert floods_at(cloud) == everywhere(cloud, FloodOrder(level=0, modes=0b1100))
    assert all(
        order.floods
        for router in cloud.routers.values()
        for order in router.table.channels.values()
        if order.to in cloud.routers
    )
    stop(cloud, 2)
    assert floods_at(cloud) == everywhere(cloud, FloodOrder(level=0, modes=0b1000))
    stop(cloud, 3)
    assert floods_at(cloud) == {
        name: () if name in {"c1/e0", "c1/e1"} else None for name in cloud.routers
    }
    assert cloud.broker.floods.variables == {}


def test_a_divisor_is_ordered_and_charged_as_one(cloud: Conversation) -> None:
    """S0-139: filtered flooding costs its share of the rate."""
    flood(cloud)
    whole = charges(cloud)[1]
    stop(cloud)
    flood(cloud, every=4)
    assert floods_at(cloud) == everywhere(cloud, FloodOrder(level=0, every=4))
    fourth = charges(cloud)[1]
    assert isinstance(whole, tuple)
    assert isinstance(fourth, tuple)
    assert whole[0] == 4 * fourth[0] > 0


def test_flooding_is_refused_with_the_channel_that_is_full_and_leaves_no_trace() -> None:
    cloud = cloud_of(bandwidth_bytes_per_s=4_000)  # 60 events a second take 4,080, probes 40.
    before, journal = charges(cloud), list(cloud.journal)
    refused = no(flood(cloud))
    assert refused.code == ChannelFull.code
    assert refused.bottleneck.startswith("channel c1/")
    assert refused.shortfall == "120 bytes/s"
    assert (charges(cloud), cloud.journal) == (before, journal)
    assert flood(cloud, every=2).refused is None


def test_flooding_takes_the_room_that_later_subscriptions_do_not_get() -> None:
    cloud = cloud_of(bandwidth_bytes_per_s=5_000)
    other = "c1/north/pmu/current"
    cloud.publish(other, "c1/e0")
    flood(cloud)
    (outcome,) = cloud.ask(CENTRE, "c1/e2", subscribe(other))
    assert isinstance(outcome, RefusedOutcome)
    assert outcome.code == ChannelFull.code
    stop(cloud)
    cloud.subscribe(CENTRE, "c1/e2", other)


def test_what_flooding_took_is_given_back_exactly(cloud: Conversation) -> None:
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(every=3, redundancy=2))
    before = charges(cloud)
    flood(cloud, 2, every=2)
    flood(cloud, every=5)
    assert charges(cloud) != before
    stop(cloud)
    assert charges(cloud) == before


def test_paths_of_subscribers_stay_as_they_are_while_flooding_comes_and_goes(
    cloud: Conversation,
) -> None:
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(every=3, redundancy=2))
    before = {name: cloud.path_orders(name) for name in cloud.routers}
    changes = {name: len(router.changes) for name, router in cloud.routers.items()}
    flood(cloud)
    stop(cloud)
    assert {name: cloud.path_orders(name) for name in cloud.routers} == before
    for name, router in cloud.routers.items():
        for change in router.changes[changes[name] :]:
            assert not (change.torn_down)
            assert not (change.paths)
            assert not (change.channels)


def test_a_new_router_and_a_new_channel_carry_what_floods(cloud: Conversation) -> None:
    flood(cloud)
    new = Router("c1/i9")
    cloud.routers[new.name] = FakeRouter(new.name, 12_000)
    operate(cloud, AddRouter(request_id=4, router=new))
    channel = EventChannel(ChannelId(0), "c1/e0", new.name, bandwidth_bytes_per_s=ENOUGH)
    answer = operate(cloud, AddChannel(request_id=5, channel=channel))
    cloud.connect(new.name)
    cloud.settle()
    assert floods_at(cloud) == everywhere(cloud, FloodOrder(level=0))
    carriage = cloud.broker.reservations.resources.channel(answer.facts["channel_id"])
    assert variable_of(cloud).variable_id in carriage.streams
    stop(cloud)
    assert not carriage.streams


def test_a_router_that_was_removed_and_added_again_floods_what_floods_now(
    cloud: Conversation,
) -> None:
    new = Router("c1/i9")

    def add() -> None:
        cloud.routers[new.name] = FakeRouter(new.name, 12_000)
        operate(cloud, AddRouter(request_id=4, router=new))

    add()
    cloud.connect(new.name)
    cloud.settle()
    flood(cloud)
    assert operate(cloud, RemoveRouter(request_id=5, name=new.name)).refused is None
    stop(cloud)
    add()
    for ends in (("c1/e0", new.name), (new.name, "c1/e2")):
        channel = EventChannel(ChannelId(0), *ends, bandwidth_bytes_per_s=ENOUGH)
        operate(cloud, AddChannel(request_id=6, channel=channel))
    cloud.connect(new.name)
    cloud.settle()
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    assert floods_at(cloud)[new.name] == ()


def test_a_new_channel_without_room_for_what_floods_is_refused(cloud: Conversation) -> None:
    flood(cloud)
    narrow = EventChannel(
        ChannelId(0), "c1/e0", "c1/e3", bandwidth_bytes_per_s=4_000, security="none"
    )
    refused = no(operate(cloud, AddChannel(request_id=5, channel=narrow)))
    assert (refused.code, refused.shortfall) == (ChannelFull.code, "120 bytes/s")
    stop(cloud)
    assert operate(cloud, AddChannel(request_id=5, channel=narrow)).refused is None


def test_a_new_channel_whose_router_has_no_room_for_what_floods_is_refused(
    cloud: Conversation,
) -> None:
    flood(cloud)
    account = cloud.broker.reservations.resources.router("c1/e0")
    capacity = int(account.events.value) + 60
    account.router = replace(account.router, events_per_s_max=capacity - 10)
    channel = EventChannel(ChannelId(0), "c1/e0", "c1/e3", bandwidth_bytes_per_s=ENOUGH)
    before = charges(cloud)
    refused = no(operate(cloud, AddChannel(request_id=5, channel=channel)))
    assert (refused.code, refused.bottleneck) == (RouterFull.code, "router c1/e0")
    assert refused.shortfall == "10 events/s"
    assert charges(cloud) == before
    account.router = replace(account.router, events_per_s_max=capacity)
    assert operate(cloud, AddChannel(request_id=5, channel=channel)).refused is None
    assert not account.is_overloaded


def test_no_channel_is_removed_from_under_a_flood(cloud: Conversation) -> None:
    flood(cloud)
    channel = cloud.channels_given[0]
    removal = RemoveChannel(
        request_id=6, from_router=channel.from_router, to_router=channel.to_router
    )
    refused = no(operate(cloud, removal))
    assert refused.code == StillInUse.code
    assert "flood" in refused.hint
    stop(cloud)
    assert operate(cloud, removal).refused is None


def test_a_router_of_a_release_before_floods_stays_in_step_and_floods_once_upgraded(
    cloud: Conversation,
) -> None:
    cloud.disconnect("c1/e3")
    old = Hello(role="router", name="c1/e3", instance="old", schema_version=2)
    cloud.routers["c1/e3"].is_connected = True
    cloud.tell(Connected("router/c1/e3", old))
    cloud.tell(Received("router/c1/e3", cloud.routers["c1/e3"].report()))
    answer = flood(cloud)
    assert answer.facts["floodless"] == ["c1/e3"]
    assert floods_at(cloud) == {**everywhere(cloud, FloodOrder(level=0)), "c1/e3": ()}
    assert cloud.differing() == []
    cloud.disconnect("c1/e3")
    cloud.connect("c1/e3")
    cloud.settle()
    assert floods_at(cloud) == everywhere(cloud, FloodOrder(level=0))


@pytest.mark.parametrize("keeps_routers", [True, False])
def test_a_broker_killed_after_any_write_ends_where_it_would_have(keeps_routers: bool) -> None:
    whole = cloud_of()
    begins = len(whole.journal)
    flood(whole, 1, every=2)
    flood(whole)
    stop(whole, 1)
    told = flood_states(whole)
    for length in range(begins, len(whole.journal) + 1):
        cloud = cloud_of()
        cloud.journal = whole.journal[:length]
        cloud.kill_broker()
        if not keeps_routers:
            for router in cloud.routers.values():
                router.table.clear()
                router.is_first_time = True
        cloud.start()
        for command in (
            SetFlooding(request_id=1, name=VOLTAGE, modes=(1,), every=2),
            SetFlooding(request_id=1, name=VOLTAGE),
            RemoveFlooding(request_id=1, name=VOLTAGE, modes=(1,)),
        ):
            assert operate(cloud, command).refused is None
        assert flood_states(cloud) == told
        assert cloud.differing() == []
        stop(cloud)
        assert charges(cloud) == charges(cloud_of())


def flood_states(cloud: Conversation) -> tuple[object, ...]:
    return cloud.broker.floods.variables, floods_at(cloud), charges(cloud)


def test_a_full_disk_changes_nothing_and_says_so(cloud: Conversation) -> None:
    before = charges(cloud)
    cloud.is_disk_full = True
    assert "nothing was changed" in no(flood(cloud)).reason
    assert charges(cloud) == before
    assert floods_at(cloud)["c1/e2"] is None


def test_a_new_channel_that_the_disk_does_not_take_is_rolled_back_with_what_floods_it(
    cloud: Conversation,
) -> None:
    flood(cloud)
    before = charges(cloud)
    channel = EventChannel(ChannelId(0), "c1/e0", "c1/e3", bandwidth_bytes_per_s=ENOUGH)
    command = AddChannel(request_id=5, channel=channel)
    cloud.is_disk_full = True
    assert no(operate(cloud, command)).code == StorageFailed.code
    assert charges(cloud) == before
    cloud.is_disk_full = False
    assert operate(cloud, command).refused is None
    (number,) = charges(cloud).keys() - before.keys()
    assert isinstance(number, int)
    assert cloud.broker.reservations.is_loaded(number)


def test_what_cannot_flood_is_refused_with_a_hint(cloud: Conversation) -> None:
    unknown = no(flood(cloud, name="c2/north/pmu/voltage"))
    assert unknown.code == NoSuchVariable.code
    assert "a broker above" in unknown.hint
    assert no(flood(cloud, 64)).code == LayoutError.code
    assert no(flood(cloud, every=0)).code == LayoutError.code
    aperiodic = "c1/north/pmu/trip"
    cloud.publish(aperiodic, "c1/e0", period=None, interval_ns_min=20_000_000)
    assert flood(cloud, name=aperiodic).refused is None
    assert no(flood(cloud, name=aperiodic, every=2)).code == Refused.code


def test_so_many_variables_flood_and_no_more(
    cloud: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaf_flooding, "MANY_MAX", 1)
    other = "c1/north/pmu/current"
    cloud.publish(other, "c1/e0")
    assert flood(cloud).refused is None
    assert no(flood(cloud, name=other)).code == QuotaReached.code
    assert flood(cloud, 3).refused is None


def test_the_period_of_a_flooded_variable_is_not_changed(cloud: Conversation) -> None:
    flood(cloud)
    change = ChangePublication(name=VOLTAGE, period=Period(1, 30))
    (outcome,) = cloud.ask(PMU, "c1/e0", change)
    assert isinstance(outcome, RefusedOutcome)
    assert outcome.code == StillInUse.code
    assert "flood --stop" in outcome.hint


@pytest.mark.parametrize(("interval_ms", "is_belated"), [(15, False), (31, True)])
def test_an_alert_that_comes_faster_than_routers_remember_is_not_flooded(
    cloud: Conversation, interval_ms: int, *, is_belated: bool
) -> None:
    """Copies that come round would be taken for new ones, and flood for ever."""
    for name, more_ms, is_flooded in (("fast", 0, False), ("slow", 1, True)):
        alert = alert_of(f"{PMU}/{name}", interval_ms + more_ms, is_belated=is_belated)
        cloud.ask(PMU, "c1/e0", Publish(publications=(PublicationRequest(variable=alert),)))
        answer = operate(cloud, SetFlooding(request_id=1, name=alert.name))
        assert (answer.refused is None) is is_flooded, answer
        if answer.refused is not None:
            assert "minimum interval of" in answer.refused.hint


def alert_of(name: str, interval_ms: int, *, is_belated: bool) -> StatusVariable:
    return StatusVariable(
        VariableId(0),
        name,
        BuiltinType.FLOAT64,
        period=None,
        is_alert=True,
        interval_ns_min=interval_ms * 1_000_000,
        is_belated=is_belated,
    )
