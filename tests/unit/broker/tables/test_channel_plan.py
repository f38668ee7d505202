"""Orders of channels: the probe interval and the silence limit that each bandwidth affords."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridstat.broker.settings import BrokerSettings
from gridstat.model.errors import ChannelFull
from gridstat.model.probe_law import ProbeSettings
from gridstat.net.command.endpoint_messages import RefusedOutcome
from tests.unit.broker.clouds import wide_enough
from tests.unit.broker.conversation import Conversation, pair
from tests.unit.broker.stand_ins import CENTRE, CLOUD, VOLTAGE, ring, subscribe

FULL_BYTES_PER_S = 60 * 68
"""What the events of one variable take."""
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


def test_a_channel_whose_ends_know_no_probes_is_ordered_none() -> None:
    cloud = Conversation(ring(bandwidth_bytes_per_s=8_000))
    for router in cloud.routers.values():
        router.versions = (1,)
    assert orders(cloud.start()) == {(0, 0)}


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
    assert all(resources.channel(number).is_over for number in path.channel_ids)
    held = cloud.broker.registry.subscriptions[granted.subscription_id].record
    assert held.paths[0].channel_ids == path.channel_ids
    (outcome,) = cloud.ask(CENTRE, "c1/e2", subscribe(OTHER))
    assert isinstance(outcome, RefusedOutcome)
    assert outcome.code == ChannelFull.code


def orders(cloud: Conversation) -> set[tuple[int, int]]:
    """The interval and the silence limit of every channel between two routers."""
    found = set()
    for channel in cloud.channels_given:
        sender, receiver = cloud.routers[channel.from_router], cloud.routers[channel.to_router]
        there = sender.table.channels[channel.channel_id]
        heard = receiver.table.sources[channel.channel_id]
        found.add((there.probe_interval_ms, heard.silent_ms_max))
    return found
