"""More borders and channels than fit into one message: in pages, or refused with a reason."""

from __future__ import annotations

from gridstat.model.errors import LimitReached
from gridstat.net.command.operator_messages import AddChannel
from gridstat.net.command.session_messages import MANY_MAX
from gridstat.net.command.tree_messages import (
    BORDERS_MAX,
    AbstractLinksReported,
    OpenBorder,
    WantBorders,
)
from tests.unit.broker.tree.cloud_stand_in import CloudStandIn
from tests.unit.broker.tree.tree_world import TreeWorld, channel

SIDE = 40


def wide_tree() -> TreeWorld:
    """root over c3 and west, which is over c1; channels from every border to every other."""
    channels = [
        channel(f"c1/b{one}", f"c3/b{other}") for one in range(SIDE) for other in range(SIDE)
    ]
    clouds = [CloudStandIn("c1", "west"), CloudStandIn("c3", "root")]
    brokers = {"root": ("", ("west", "c3"), channels), "west": ("root", ("c1",), [])}
    world = TreeWorld(brokers, clouds).start()
    world.rest()
    return world


def star(borders: int) -> TreeWorld:
    """Return a tree with so many borders of c1, each with a channel to the one of c2."""
    channels = [channel(f"c1/b{at:03}", "c2/b") for at in range(borders)]
    clouds = [CloudStandIn("c1", "root"), CloudStandIn("c2", "root")]
    world = TreeWorld({"root": ("", ("c1", "c2"), channels)}, clouds).start()
    world.rest()
    return world


def test_channels_and_ways_that_fill_several_messages_arrive_whole_at_every_level() -> None:
    world = wide_tree()
    assert len(world.clouds["c3"].open_channels) == SIDE**2
    assert len(world.clouds["c1"].open_channels) == SIDE**2
    root = world.brokers["root"].machine.parts
    assert len(root.graph.abstract_links("west")) == SIDE * (SIDE - 1)
    words = [word for _, _, word in world.sent]
    assert max(len(word.channels) for word in words if isinstance(word, OpenBorder)) == MANY_MAX
    told = [
        word
        for one, _, word in world.sent
        if one == "west" and isinstance(word, AbstractLinksReported)
    ]
    assert max(len(word.abstract_links) for word in told) == MANY_MAX
    assert world.closed == []


def test_no_child_is_asked_for_more_borders_than_it_can_tell_of() -> None:
    world = star(BORDERS_MAX + 4)
    wanted = [word for _, _, word in world.sent if isinstance(word, WantBorders)]
    assert max(len(word.routers) for word in wanted) == BORDERS_MAX
    assert len(world.clouds["c1"].open_channels) == BORDERS_MAX
    assert "borders_too_many" in {note.word for note in world.brokers["root"].notes}
    assert world.closed == []


def test_a_channel_at_one_border_too_many_is_refused() -> None:
    world = star(BORDERS_MAX)
    answer = world.operate("root", AddChannel(request_id=0, channel=channel("c1/x", "c2/b")))
    assert answer.refused is not None
    assert answer.refused.code == LimitReached.code
    back = channel("c2/b", "c1/b000")
    assert world.operate("root", AddChannel(request_id=0, channel=back)).refused is None
