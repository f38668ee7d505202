"""Channels that were down, and whether anybody can ever say that they are up again."""

from __future__ import annotations

from gridstat.net.command.messages import ChannelStateChanged
from tests.unit.broker.conversation import Conversation, pair


def outgoing(cloud: Conversation, router: str) -> list[tuple[int, str]]:
    return [
        (one.channel_id, one.to_router) for one in cloud.channels_given if one.from_router == router
    ]


def silence(cloud: Conversation, router: str) -> None:
    """Lose the router's session, and make it silent for all its neighbours."""
    cloud.disconnect(router)
    for channel_id, receiver in outgoing(cloud, router):
        cloud.hear(receiver, ChannelStateChanged(channel_id=channel_id, is_up=False))


def test_a_channel_whose_sender_returns_without_probes_is_not_down_for_ever() -> None:
    cloud = pair(security="none")
    silence(cloud, "c1/i0")
    down = cloud.broker.reservations.resources.down_channels()
    assert {number for number, _ in outgoing(cloud, "c1/i0")} <= down

    cloud.routers["c1/i0"].crash()
    cloud.routers["c1/i0"].versions = (1,)
    cloud.connect("c1/i0")

    assert cloud.broker.reservations.resources.down_channels() == frozenset()


def test_a_channel_with_probes_stays_down_until_its_receiver_hears_it() -> None:
    cloud = pair()
    silence(cloud, "c1/i0")
    down = {number for number, _ in outgoing(cloud, "c1/i0")}

    cloud.routers["c1/i0"].crash()
    cloud.connect("c1/i0")

    assert cloud.broker.reservations.resources.down_channels() == down
