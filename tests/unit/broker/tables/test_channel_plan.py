"""Orders of channels: the probe interval and the silence limit that each bandwidth affords."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest

from gridstat.broker.settings import BrokerSettings
from gridstat.model.errors import ChannelFull
from gridstat.model.probe_law import ProbeSettings
from gridstat.net.command.endpoint_messages import RefusedOutcome
from tests.unit.broker.clouds import wide_enough
from tests.unit.broker.conversation import Conversation, pair
from tests.unit.broker.stand_ins import CENTRE, CLOUD, VOLTAGE, ring, subscribe

if TYPE_CHECKING:
    from gridstat.net.command.router_messages import ChannelOrder

FULL_BYTES_PER_S = 60 * 68
"""Bytes a second that the events of one variable use."""
OTHER = "c1/north/pmu/current"


@pytest.mark.parametrize(
    ("bandwidth_bytes_per_s", "ordered"),
    [(0, {(25, 100)}), (8_000, {(750, 3_000)}), (125_000, {(48, 192)}), (10**9, {(25, 100)})],
)
def test_both_ends_of_a_channel_are_ordered_what_its_bandwidth_affords(
    bandwidth_bytes_per_s: int, ordered: set[tuple[int, int]]
) -> None:
    cloud = pair(bandwidth_bytes_per_s=bandwidth_bytes_per_s)
    assert orders(cloud) == ordered


def test_an_operator_sets_the_shortest_interval_and_silence() -> None:
    settings = BrokerSettings(CLOUD, probes=ProbeSettings(125, 500))
    assert orders(pair(settings=settings)) == {(125, 500)}
    assert orders(pair(settings=settings, bandwidth_bytes_per_s=8_000)) == {(750, 3_000)}


@pytest.mark.parametrize("is_older", [False, True], ids=["this release", "the release before"])
def test_a_receiver_that_may_wait_long_is_ordered_the_interval_if_it_takes_that(
    *, is_older: bool
) -> None:
    """A quarter of the silence is the interval elsewhere, and needs no order."""
    settings = BrokerSettings(CLOUD, probes=ProbeSettings(25, 4_000))
    cloud = Conversation(ring(bandwidth_bytes_per_s=125_000), settings=settings)
    for router in cloud.routers.values():
        router.takes_probe_interval = not is_older
    cloud.start()
    intervals = {
        source.probe_interval_ms
        for router in cloud.routers.values()
        for source in router.table.sources.values()
    }
    assert intervals == {0 if is_older else 48}
    assert cloud.differing() == []


def test_a_receiver_is_not_ordered_an_interval_that_follows_from_the_silence() -> None:
    for router in pair(bandwidth_bytes_per_s=125_000).routers.values():
        assert {source.probe_interval_ms for source in router.table.sources.values()} == {0}


def test_a_channel_whose_ends_know_no_probes_is_ordered_none() -> None:
    cloud = Conversation(ring(bandwidth_bytes_per_s=8_000, security="none"))
    for router in cloud.routers.values():
        router.versions = (1,)
    assert orders(cloud.start()) == {(0, 0)}


@pytest.mark.parametrize("older", ["c1/e0", "c1/i0"], ids=["sender", "receiver"])
def test_a_channel_with_an_older_router_at_an_end_is_probed_beside_its_data(older: str) -> None:
    """An older router does not know this order, and needs probes to detect a restored channel."""
    cloud = Conversation(ring(bandwidth_bytes_per_s=8_000))
    cloud.routers[older].counts_data_as_life = False
    cloud.start()
    for channel in cloud.channels_given:
        ends = (channel.from_router, channel.to_router)
        order = cloud.routers[channel.from_router].table.channels[channel.channel_id]
        assert order.probes_only_when_idle == (older not in ends)
        assert order.probe_interval_ms == 750
    assert cloud.broker.tables[older].wanted.digest == cloud.routers[older].table.digest


def test_an_order_for_an_older_router_is_what_such_a_router_digests() -> None:
    """An older router drops unknown fields, so the digests would differ for ever."""
    cloud = Conversation(ring(bandwidth_bytes_per_s=8_000))
    cloud.routers["c1/e0"].counts_data_as_life = False
    cloud.start()
    for order in cloud.routers["c1/e0"].table.channels.values():
        sent = msgspec.msgpack.encode(order)
        older = msgspec.msgpack.decode(sent, type=OlderOrder)
        assert msgspec.msgpack.encode(older) == sent


def test_a_router_that_is_replaced_by_a_newer_one_needs_no_probes_beside_data() -> None:
    cloud = Conversation(ring())
    for router in cloud.routers.values():
        router.counts_data_as_life = False
    cloud.start()
    assert {order.probes_only_when_idle for order in channel_orders(cloud)} == {False}
    for name, router in cloud.routers.items():
        cloud.disconnect(name)
        router.crash()
        router.counts_data_as_life = True
        cloud.connect(name)
    cloud.settle()
    assert {order.probes_only_when_idle for order in channel_orders(cloud)} == {True}
    cloud.kill_broker()
    assert {order.probes_only_when_idle for order in channel_orders(cloud)} == {True}


def test_a_contract_of_an_older_journal_stays_on_a_channel_that_probes_make_too_full() -> None:
    """The journal of a release that charged no probes: one contract has the whole bandwidth."""
    cloud = pair(bandwidth_bytes_per_s=wide_enough(FULL_BYTES_PER_S))
    cloud.publish(VOLTAGE, "c1/e0")
    cloud.publish(OTHER, "c1/e0")
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    cloud.channels_given = [
        replace(channel, bandwidth_bytes_per_s=FULL_BYTES_PER_S) for channel in cloud.channels_given
    ]
    cloud.kill_broker()
    cloud.start()
    resources = cloud.broker.reservations.resources
    (path,) = granted.paths
    assert all(resources.channel(number).is_overloaded for number in path.channel_ids)
    held = cloud.broker.registry.subscriptions[granted.subscription_id].record
    assert held.paths[0].channel_ids == path.channel_ids
    (outcome,) = cloud.ask(CENTRE, "c1/e2", subscribe(OTHER))
    assert isinstance(outcome, RefusedOutcome)
    assert outcome.code == ChannelFull.code


class OlderOrder(
    msgspec.Struct, frozen=True, omit_defaults=True, tag="ChannelOrder", forbid_unknown_fields=True
):
    """The order of a channel as the release before reads it."""

    channel_id: int
    to: str
    host: str
    data_port: int
    urgent_port: int
    level: int = 1
    floods: bool = False
    mtu_bytes: int = 1_232
    bandwidth_bytes_per_s: int = 0
    queue_events_max: int = 1_024
    datagram_version: int = 1
    probe_interval_ms: int = 0


def channel_orders(cloud: Conversation) -> list[ChannelOrder]:
    """Return the wanted orders of every channel between two routers."""
    return [
        cloud.broker.tables[channel.from_router].wanted.channels[channel.channel_id]
        for channel in cloud.channels_given
    ]


def orders(cloud: Conversation) -> set[tuple[int, int]]:
    """The interval and the silence limit of every channel between two routers."""
    found = set()
    for channel in cloud.channels_given:
        sender, receiver = cloud.routers[channel.from_router], cloud.routers[channel.to_router]
        there = sender.table.channels[channel.channel_id]
        heard = receiver.table.sources[channel.channel_id]
        found.add((there.probe_interval_ms, heard.silent_ms_max))
    return found
