"""Early reports to a broker after its start or a delay, which prove nothing yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.messages import ChannelStateChanged
from tests.unit.broker.conversation import Conversation, pair
from tests.unit.broker.stand_ins import CENTRE, VOLTAGE

if TYPE_CHECKING:
    from gridstat.model.cloud import EventChannel
    from gridstat.net.command.endpoint_messages import GrantedPath


@pytest.fixture
def cloud() -> Conversation:
    found = pair()
    found.publish(VOLTAGE, "c1/e0")
    return found


@dataclass(frozen=True, slots=True)
class Way:
    """A contract of one path, the router in its middle, and what that sends beside the path."""

    subscription_id: int
    path: GrantedPath
    middle: str
    aside: EventChannel


@pytest.fixture
def way(cloud: Conversation) -> Way:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    (path,) = granted.paths
    middle = path.routers[1]
    aside = next(
        found
        for found in cloud.channels_given
        if found.from_router == middle and found.channel_id not in path.channel_ids
    )
    return Way(granted.subscription_id, path, middle, aside)


def say(cloud: Conversation, number: int, *, is_up: bool) -> None:
    """Report the state of a channel as its receiver."""
    receiver = next(each.to_router for each in cloud.channels_given if each.channel_id == number)
    cloud.hear(receiver, ChannelStateChanged(channel_id=number, is_up=is_up))


def words(cloud: Conversation) -> list[str]:
    return [note.word for note in cloud.notes]


def contract(cloud: Conversation, number: int) -> list[tuple[str, ...]]:
    record = cloud.broker.registry.subscriptions[number].record
    return [path.routers for path in record.paths]


def test_a_router_that_has_not_reported_to_a_restarted_broker_is_not_dead_for_one_silent_channel(
    cloud: Conversation, way: Way
) -> None:
    cloud.kill_broker()
    cloud.carry_out(cloud.broker.start(cloud.now_ns))
    cloud.connect(way.aside.to_router)

    say(cloud, way.aside.channel_id, is_up=False)
    cloud.settle()
    say(cloud, way.aside.channel_id, is_up=True)
    for name in sorted(cloud.routers.keys() - {way.aside.to_router}):
        cloud.connect(name)
    cloud.advance(NS_PER_S)
    cloud.settle()

    assert "router_down" not in words(cloud)
    assert contract(cloud, way.subscription_id) == [way.path.routers]
    assert cloud.differing() == []


def test_nor_for_one_to_a_broker_that_was_cut_off_from_all_of_them(
    cloud: Conversation, way: Way
) -> None:
    for name in sorted(cloud.routers):
        cloud.disconnect(name)
    cloud.advance(2 * cloud.settings.confirm_within_ns)
    cloud.connect(way.aside.to_router)

    say(cloud, way.aside.channel_id, is_up=False)
    cloud.settle()
    for name in sorted(cloud.routers.keys() - {way.aside.to_router}):
        cloud.connect(name)
    cloud.advance(NS_PER_S)
    cloud.settle()

    assert "router_down" not in words(cloud)
    assert contract(cloud, way.subscription_id) == [way.path.routers]


def test_a_router_that_died_with_the_broker_is_dead_once_no_neighbour_hears_it(
    cloud: Conversation, way: Way
) -> None:
    cloud.kill_broker()
    cloud.start(without=way.middle)
    first, *others = [
        each.channel_id for each in cloud.channels_given if each.from_router == way.middle
    ]

    say(cloud, first, is_up=False)
    cloud.settle()
    assert "router_down" not in words(cloud)
    for number in others:
        say(cloud, number, is_up=False)
    cloud.settle()

    assert "router_down" in words(cloud)
    assert way.middle not in contract(cloud, way.subscription_id)[0]


def test_a_router_that_stays_away_from_a_restarted_broker_is_judged_when_its_time_is_up(
    cloud: Conversation, way: Way
) -> None:
    cloud.kill_broker()
    cloud.start(without=way.middle)
    first = next(each.channel_id for each in cloud.channels_given if each.from_router == way.middle)
    say(cloud, first, is_up=False)

    cloud.advance(cloud.settings.confirm_within_ns)
    cloud.settle()

    assert "router_down" in words(cloud)
    assert way.middle not in contract(cloud, way.subscription_id)[0]


def test_a_silence_that_was_over_before_the_broker_could_act_moves_nothing(
    cloud: Conversation, way: Way
) -> None:
    number = way.path.channel_ids[0]

    say(cloud, number, is_up=False)
    say(cloud, number, is_up=True)
    cloud.settle()

    assert contract(cloud, way.subscription_id) == [way.path.routers]
    assert cloud.notices.get(CENTRE, []) == []
