"""Channels between clouds that fail while they are congested, or while they are reserved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.net.command.machine import Received
from gridstat.net.command.segment_messages import Commit, Reserved, SegmentBroken, SegmentRestored
from gridstat.net.command.tree_messages import BorderChannelReported, CloudsChanged
from tests.unit.broker.tree.worlds import VOLTAGE, deep_tree, inconsistencies, two_clouds

if TYPE_CHECKING:
    from gridstat.net.command.messages import Message
    from tests.unit.broker.tree.tree_world import TreeWorld


def tell(world: TreeWorld, cloud: str, channel: str, **facts: bool) -> None:
    """Report the state of a channel as the router at one end."""
    found = world.clouds[cloud]
    number = next(one for one, label in found.open_channels.items() if label == channel)
    told = BorderChannelReported(term=found.term, channel_id=number, **facts)
    world.post(cloud, found.parent, told)


def channel_of(world: TreeWorld, contract: str) -> str:
    """The one channel between clouds that the contract leads over."""
    (path,) = world.clouds[contract.partition("#")[0]].granted[contract].paths
    (found,) = ["→".join(piece.routers) for piece in path.pieces if piece.owner in world.brokers]
    return found


def broken(world: TreeWorld) -> int:
    count: int = world.brokers["root"].machine.survey()["broken"]
    return count


def test_a_congested_channel_that_dies_is_planned_round() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE)
    world.settle()
    before = channel_of(world, contract)
    tell(world, "c2", before, is_pressed=True)
    world.rest()
    assert channel_of(world, contract) == before
    tell(world, "c2", before, is_up=False)
    world.rest()
    assert channel_of(world, contract) != before
    assert inconsistencies(world) == []


def test_a_dead_channel_that_returns_congested_is_no_trouble_any_more() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE, redundancy=2)
    world.settle()
    tell(world, "c2", "c1/b0→c2/b0", is_up=False)
    world.rest()
    assert broken(world) == 1
    tell(world, "c2", "c1/b0→c2/b0", is_up=True, is_pressed=True)
    world.rest()
    assert broken(world) == 0
    assert world.clouds["c2"].granted[contract].generation == 0


def test_a_parent_hears_of_congestion_neither_as_broken_nor_as_mended() -> None:
    world = deep_tree()
    contract = world.subscribe("c4/d", "c2/pmu/v")
    world.settle()
    (path,) = world.clouds["c4"].granted[contract].paths
    inner = ["→".join(piece.routers) for piece in path.pieces if piece.owner == "east"]
    for is_pressed in (True, False):
        tell(world, "c5", inner[0], is_pressed=is_pressed)
        world.rest()
    said = [word for _, _, word in world.sent if isinstance(word, SegmentBroken | SegmentRestored)]
    assert said == []


def step_until_said(world: TreeWorld, kind: type[Message], receiver: str) -> None:
    """Run until such a message is in transit to a broker."""
    while not any(to == receiver and isinstance(word, kind) for _, to, word in world.queue):
        assert world.step()


def kill_channel_of_plan(world: TreeWorld, broker: str, end: str) -> str:
    """The one channel that is charged falls silent before anything else happens; its name."""
    accounts = world.brokers[broker].machine.state.channels.accounts.values()
    (dead,) = [found.channel for found in accounts if found.carriage.streams]
    told = BorderChannelReported(
        term=world.clouds[end].term, channel_id=dead.channel_id, is_up=False
    )
    machine = world.brokers[broker].machine
    world._do(broker, machine.handle(Received(f"broker/{end}", told), world.now_ns))
    return dead.label


def test_a_channel_that_dies_while_it_is_reserved_is_not_granted() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE)
    step_until_said(world, Reserved, "root")
    dead = kill_channel_of_plan(world, "root", "c2")
    world.settle()
    assert channel_of(world, contract) != dead
    assert inconsistencies(world) == []


def test_a_channel_that_dies_while_its_contract_is_written_is_planned_round() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE)
    root = world.brokers["root"]
    while not len(root.machine.state.holdings):
        assert world.step()
    assert root.writing
    dead = kill_channel_of_plan(world, "root", "c2")
    world.rest()
    assert channel_of(world, contract) != dead
    assert broken(world) == 0
    assert inconsistencies(world) == []


def test_a_parent_hears_of_a_channel_that_died_between_reservation_and_commit() -> None:
    world = deep_tree()
    world.subscribe("c4/d", "c2/pmu/v")
    step_until_said(world, Commit, "east")
    kill_channel_of_plan(world, "east", "c5")
    world.rest()
    said = [word for _, to, word in world.sent if to == "root" and isinstance(word, SegmentBroken)]
    assert said
    assert inconsistencies(world) == []


def test_a_channel_is_up_again_by_a_report_of_the_child_that_its_cloud_has_moved_to() -> None:
    world = deep_tree()
    silent = "c1/r1→c3/r1"
    tell(world, "c1", silent, is_up=False)
    world.settle()
    root = world.brokers["root"].machine
    (number,) = (
        number
        for number, found in root.state.channels.accounts.items()
        if found.channel.label == silent
    )
    assert not root.state.channels.accounts[number].is_usable
    world.post("west", "root", CloudsChanged(term=1, clouds=("c2",)))
    world.post("east", "root", CloudsChanged(term=1, clouds=("c1", "c3", "c4", "c5")))
    world.post("east", "root", BorderChannelReported(term=1, channel_id=number, is_up=True))
    world.settle()
    assert root.state.channels.accounts[number].is_usable
