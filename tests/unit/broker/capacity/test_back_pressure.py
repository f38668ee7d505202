"""Congested channels: they admit nothing new, keep what they have, and recover."""

from __future__ import annotations

import pytest

from gridstat.model.errors import BackPressured
from gridstat.net.command.endpoint_messages import (
    RefusedOutcome,
)
from gridstat.net.command.messages import BackPressureChanged, ChannelStateChanged
from tests.unit.broker.conversation import Conversation, pair
from tests.unit.broker.stand_ins import CENTRE, VOLTAGE, subscribe
from tests.unit.broker.test_recovery import channel, words


@pytest.fixture
def cloud() -> Conversation:
    found = pair()
    found.publish(VOLTAGE, "c1/e0")
    return found


@pytest.mark.feature("S0-130")
def test_a_congested_channel_admits_nothing_new_until_it_recovers(cloud: Conversation) -> None:
    single = pair(bandwidth_bytes_per_s=100_000)
    single.publish(VOLTAGE, "c1/e0")
    on = [
        BackPressureChanged(channel_id=found.channel_id, is_on=True, queued_events=800)
        for found in single.channels_given
        if found.to_router in {"c1/e2", "c1/e3"}
    ]
    for message in on:
        single.hear(channel(single, message.channel_id).from_router, message)
    (refused,) = single.ask(CENTRE, "c1/e2", subscribe(VOLTAGE))
    assert isinstance(refused, RefusedOutcome)
    assert refused.code == BackPressured.code
    assert words(single).count("back_pressure_on") == len(on)

    first = on[0].channel_id
    off = BackPressureChanged(channel_id=first, is_on=False)
    single.hear(channel(single, first).from_router, off)
    granted = single.subscribe(CENTRE, "c1/e2", VOLTAGE)
    assert granted.paths[0].channel_ids[-1] == first


def test_a_congested_channel_keeps_what_it_has(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    number = granted.paths[0].channel_ids[0]
    message = BackPressureChanged(channel_id=number, is_on=True)
    cloud.hear(channel(cloud, number).from_router, message)
    cloud.settle()
    record = cloud.broker.registry.subscriptions[granted.subscription_id].record
    assert record.generation == 0


def test_a_router_that_begins_anew_is_neither_congested_nor_deaf(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    into, out = granted.paths[0].channel_ids[:2]
    name = channel(cloud, out).from_router
    cloud.hear(name, BackPressureChanged(channel_id=out, is_on=True))
    cloud.hear(name, ChannelStateChanged(channel_id=into, is_up=False))
    resources = cloud.broker.reservations.resources
    assert resources.unusable_channels() == {into, out}

    cloud.disconnect(name)
    cloud.routers[name].crash()
    cloud.connect(name)
    assert resources.unusable_channels() == frozenset()


def test_a_router_that_reports_again_repeats_which_channels_are_congested(
    cloud: Conversation,
) -> None:
    """Its relief may have been on its way when the session broke, and is not told again."""
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    out = granted.paths[0].channel_ids[0]
    name = channel(cloud, out).from_router
    cloud.hear(name, BackPressureChanged(channel_id=out, is_on=True))
    cloud.disconnect(name)
    cloud.connect(name)
    assert out not in cloud.broker.reservations.resources.unusable_channels()
