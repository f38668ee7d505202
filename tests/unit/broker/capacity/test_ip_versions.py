"""Headers of IPv6 are larger: a channel is charged those of its receiver's address."""

from __future__ import annotations

import pytest

from gridstat.broker.capacity.explanation import channel_facts
from gridstat.model.errors import ChannelFull
from gridstat.net.command.endpoint_messages import GrantedOutcome
from tests.unit.broker.conversation import Conversation, refusal
from tests.unit.broker.stand_ins import CENTRE, PMU, VOLTAGE, ring, subscribe

IPV4, IPV6 = "10.0.0.1", "2001:db8::7"
CURRENT = f"{PMU}/current"
BY_IPV4, BY_IPV6 = 60 * 68, 60 * 88
"""Bytes a second of a variable's events."""
WIDE_BYTES_PER_S = 1_000_000
"""A channel with a probe every 25 ms, by IPv4 and by IPv6."""


def cloud_with(bandwidth_bytes_per_s: int, *ipv6_routers: str) -> Conversation:
    """A cloud in which these routers, and no others, have addresses of IPv6."""
    cloud = Conversation(ring(bandwidth_bytes_per_s=bandwidth_bytes_per_s))
    for name in ipv6_routers:
        cloud.routers[name].host = IPV6
    cloud.start()
    cloud.attach(PMU, "c1/e0", data_port=0)
    cloud.attach(CENTRE, "c1/e2")
    cloud.publish(VOLTAGE, "c1/e0")
    return cloud


EVERY_ROUTER = tuple(Conversation().routers)


def move_to(cloud: Conversation, host: str) -> None:
    """All routers report another address."""
    for name in EVERY_ROUTER:
        cloud.disconnect(name)
        cloud.routers[name].host = host
        cloud.connect(name)
    cloud.settle()


def charges(cloud: Conversation, granted: GrantedOutcome) -> list[tuple[int, int]]:
    """The bytes a second of variables and of probes on each channel of a contract."""
    resources = cloud.broker.reservations.resources
    facts = [channel_facts(resources, number) for number in granted.paths[0].channel_ids]
    return [(each["bytes_per_s"], each["probe_bytes_per_s"]) for each in facts]


def test_a_channel_is_charged_the_headers_of_its_receivers_address() -> None:
    cloud = cloud_with(WIDE_BYTES_PER_S, "c1/i0", "c1/i1")
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    assert charges(cloud, granted) == [(BY_IPV6, 40 * 80), (BY_IPV4, 40 * 60)]


@pytest.mark.parametrize(("ipv6_routers", "is_granted"), [((), True), (EVERY_ROUTER, False)])
def test_a_channel_admits_no_more_than_its_line_carries(
    ipv6_routers: tuple[str, ...], *, is_granted: bool
) -> None:
    """With headers of IPv6 the second variable would be more than the line carries."""
    cloud = cloud_with(2 * BY_IPV4 + 1_000, *ipv6_routers)
    cloud.publish(CURRENT, "c1/e0")
    cloud.disconnect("c1/i1")
    cloud.advance(cloud.settings.confirm_within_ns)  # No other path from now on.
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    outcomes = cloud.ask(CENTRE, "c1/e2", subscribe(CURRENT))
    if is_granted:
        cloud.only(GrantedOutcome, outcomes)
    else:
        assert refusal(outcomes).code == ChannelFull.code


@pytest.mark.parametrize("is_killed", [False, True], ids=["alive", "killed"])
def test_a_router_that_returns_with_another_address_changes_what_is_charged(
    *, is_killed: bool
) -> None:
    cloud = cloud_with(WIDE_BYTES_PER_S)
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    for host, each in ((IPV6, (BY_IPV6, 40 * 80)), (IPV4, (BY_IPV4, 40 * 60))):
        move_to(cloud, host)
        if is_killed:
            cloud.kill_broker()
            cloud.start()
        assert charges(cloud, granted) == [each, each]
    assert cloud.differing() == []


def test_what_was_promised_before_a_router_moves_to_ipv6_stays_and_nothing_is_added() -> None:
    cloud = cloud_with(BY_IPV4 + 100)
    cloud.publish(CURRENT, "c1/e0")
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    move_to(cloud, IPV6)
    held = cloud.broker.registry.subscriptions[granted.subscription_id].record
    assert held.paths[0].channel_ids == granted.paths[0].channel_ids
    resources = cloud.broker.reservations.resources
    assert all(resources.channel(each).is_overloaded for each in granted.paths[0].channel_ids)
    assert refusal(cloud.ask(CENTRE, "c1/e2", subscribe(CURRENT))).code == ChannelFull.code


def test_both_ends_of_a_channel_by_ipv6_are_ordered_what_larger_probes_afford() -> None:
    cloud = cloud_with(8_000, "c1/i0")
    for channel in cloud.channels_given:
        sender, receiver = cloud.routers[channel.from_router], cloud.routers[channel.to_router]
        interval_ms = 1_000 if channel.to_router == "c1/i0" else 750
        order = sender.table.channels[channel.channel_id]
        assert order.probe_interval_ms == interval_ms
        assert receiver.table.sources[channel.channel_id].silent_ms_max == 4 * interval_ms


@pytest.mark.parametrize(("ipv6_routers", "detection_ms"), [((), 3_000), (EVERY_ROUTER, 4_000)])
def test_a_contract_by_ipv6_states_the_longer_detection_time(
    ipv6_routers: tuple[str, ...], detection_ms: int
) -> None:
    cloud = cloud_with(8_000, *ipv6_routers)
    assert cloud.subscribe(CENTRE, "c1/e2", VOLTAGE).detection_ms == detection_ms


def test_a_channel_that_is_added_later_is_charged_by_its_receivers_address() -> None:
    cloud = cloud_with(WIDE_BYTES_PER_S, *EVERY_ROUTER)
    resources = cloud.broker.reservations.resources
    channel = cloud.channels_given[0]
    resources.remove_channel(channel.channel_id)
    resources.add_channel(channel)
    assert channel_facts(resources, channel.channel_id)["probe_bytes_per_s"] == 40 * 80
