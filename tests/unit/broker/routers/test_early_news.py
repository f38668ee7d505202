"""What a broker that has just started, or has been held up, makes of news that are no news."""

from __future__ import annotations

import pytest

from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.messages import ChannelStateChanged
from tests.unit.broker.conversation import Conversation, pair
from tests.unit.broker.stand_ins import CENTRE, VOLTAGE


@pytest.fixture
def cloud() -> Conversation:
    found = pair()
    found.publish(VOLTAGE, "c1/e0")
    return found


def say(cloud: Conversation, number: int, *, is_up: bool) -> None:
    """The receiver of a channel tells of it."""
    receiver = next(each.to_router for each in cloud.channels_given if each.channel_id == number)
    cloud.hear(receiver, ChannelStateChanged(channel_id=number, is_up=is_up))


def words(cloud: Conversation) -> list[str]:
    return [note.word for note in cloud.notes]


def contract(cloud: Conversation, number: int) -> list[tuple[str, ...]]:
    record = cloud.broker.registry.subscriptions[number].record
    return [path.routers for path in record.paths]


def test_a_router_that_has_not_reported_to_a_restarted_broker_is_not_dead_for_one_silent_channel(
    cloud: Conversation,
) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    (path,) = granted.paths
    awaited = path.routers[1]
    aside = next(
        found
        for found in cloud.channels_given
        if found.from_router == awaited and found.channel_id not in path.channel_ids
    )
    cloud.kill_broker()
    cloud.carry_out(cloud.broker.start(cloud.now_ns))
    cloud.connect(aside.to_router)

    say(cloud, aside.channel_id, is_up=False)
    cloud.settle()
    say(cloud, aside.channel_id, is_up=True)
    for name in sorted(cloud.routers.keys() - {aside.to_router}):
        cloud.connect(name)
    cloud.advance(NS_PER_S)
    cloud.settle()

    assert "router_down" not in words(cloud)
    assert contract(cloud, granted.subscription_id) == [path.routers]
    assert cloud.differing() == []


def test_nor_for_one_to_a_broker_that_was_cut_off_from_all_of_them(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    (path,) = granted.paths
    awaited = path.routers[1]
    aside = next(
        found
        for found in cloud.channels_given
        if found.from_router == awaited and found.channel_id not in path.channel_ids
    )
    for name in sorted(cloud.routers):
        cloud.disconnect(name)
    cloud.advance(2 * cloud.settings.confirm_within_ns)
    cloud.connect(aside.to_router)

    say(cloud, aside.channel_id, is_up=False)
    cloud.settle()
    for name in sorted(cloud.routers.keys() - {aside.to_router}):
        cloud.connect(name)
    cloud.advance(NS_PER_S)
    cloud.settle()

    assert "router_down" not in words(cloud)
    assert contract(cloud, granted.subscription_id) == [path.routers]


def start_without(cloud: Conversation, dead: str) -> None:
    """A broker starts, and all routers but this one report."""
    cloud.kill_broker()
    cloud.carry_out(cloud.broker.start(cloud.now_ns))
    for name in sorted(cloud.routers.keys() - {dead}):
        cloud.connect(name)


def test_a_router_that_died_with_the_broker_is_dead_once_no_neighbour_hears_it(
    cloud: Conversation,
) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    dead = granted.paths[0].routers[1]
    start_without(cloud, dead)
    first, *others = [each.channel_id for each in cloud.channels_given if each.from_router == dead]

    say(cloud, first, is_up=False)
    cloud.settle()
    assert "router_down" not in words(cloud)
    for number in others:
        say(cloud, number, is_up=False)
    cloud.settle()

    assert "router_down" in words(cloud)
    assert dead not in contract(cloud, granted.subscription_id)[0]


def test_a_router_that_stays_away_from_a_restarted_broker_is_judged_when_its_time_is_up(
    cloud: Conversation,
) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    dead = granted.paths[0].routers[1]
    start_without(cloud, dead)
    first = next(each.channel_id for each in cloud.channels_given if each.from_router == dead)
    say(cloud, first, is_up=False)

    cloud.advance(cloud.settings.confirm_within_ns)
    cloud.settle()

    assert "router_down" in words(cloud)
    assert dead not in contract(cloud, granted.subscription_id)[0]


def test_a_silence_that_was_over_before_the_broker_could_act_moves_nothing(
    cloud: Conversation,
) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    number = granted.paths[0].channel_ids[0]

    say(cloud, number, is_up=False)
    say(cloud, number, is_up=True)
    cloud.settle()

    assert contract(cloud, granted.subscription_id) == [granted.paths[0].routers]
    assert cloud.notices.get(CENTRE, []) == []
