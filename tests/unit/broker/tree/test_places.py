"""A broker that receives its place in the tree, or another one, while it is busy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from gridstat.broker.tree.tree_operations import Placed, encode
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.machine import Close, Persist, Persisted, Received, Send
from gridstat.net.command.operator_messages import SetFlooding
from gridstat.net.command.segment_messages import Reserved
from gridstat.net.command.tree_messages import ABOVE_MAX, OpenBorder, TreeJoined
from tests.unit.broker.tree.scripted_root import ask, below_scripted_root, hold_up, let_go
from tests.unit.broker.tree.worlds import VOLTAGE

if TYPE_CHECKING:
    from tests.unit.broker.tree.tree_world import TreeWorld


def test_what_is_being_reserved_while_channels_get_other_numbers_is_planned_anew() -> None:
    world, root = below_scripted_root()
    ask(world, "c9#1")
    hold_up(world, "c1")
    world.post("root", "west", TreeJoined(term=1, depth=2, above=("top", "root")))
    world.settle()
    let_go(world, "c1")
    world.rest()
    assert isinstance(root.heard[-1], Reserved)
    (held,) = (found for found, _ in world.brokers["west"].machine.state.holdings.all())
    assert all(number >> 23 & 0xFF == 2 for number in held.channel_ids)


def test_numbers_that_cannot_be_made_durable_are_taken_back_and_plans_made_anew_with_the_old() -> (
    None
):
    world, _ = below_scripted_root()
    ask(world, "c9#1")
    hold_up(world, "c1")
    world.fail_writes["west"] = {0}
    world.post("root", "west", TreeJoined(term=1, depth=2, above=("top", "root")))
    world.settle()
    let_go(world, "c1")
    world.rest()
    west = world.brokers["west"].machine.state.channels
    assert {number >> 23 & 0xFF for number in west.accounts} == {1}
    (held,) = (found for found, _ in world.brokers["west"].machine.state.holdings.all())
    assert set(held.channel_ids) <= west.accounts.keys()


def test_children_below_the_deepest_place_of_a_tree_are_refused_with_a_reason() -> None:
    world, _ = below_scripted_root()
    above = tuple(f"b{at}" for at in range(ABOVE_MAX))
    world.post("root", "west", TreeJoined(term=1, depth=ABOVE_MAX - 1, above=above[:-1]))
    world.settle()
    assert world.clouds["c1"].above == (*above[:-1], "west")
    assert world.closed == []
    west = world.brokers["west"].machine
    moved = TreeJoined(term=1, depth=ABOVE_MAX, above=above)
    instructions = west.handle(Received("broker/root", moved), world.now_ns)
    (order,) = (one for one in instructions if isinstance(one, Persist))
    instructions = west.handle(Persisted(order.token), world.now_ns)
    closed = {one.peer: one.reason for one in instructions if isinstance(one, Close)}
    assert closed.keys() == {"broker/c1", "broker/c2"}
    assert f"more than {ABOVE_MAX} brokers above it" in closed["broker/c1"]
    assert not [one for one in instructions if isinstance(one, Send) and one.peer in closed]


def test_a_broker_that_does_not_know_its_depth_yet_opens_no_channel_and_holds_nothing() -> None:
    world, root = below_scripted_root(is_silent=True)
    contract = world.subscribe("c2/d", VOLTAGE)
    world.settle()
    world.advance(3 * NS_PER_S)
    assert world.clouds["c2"].open_channels == {}
    assert contract not in world.clouds["c2"].granted
    assert contract not in world.clouds["c2"].refused
    root.is_silent = False
    world.disconnect("west")
    world.settle()
    world.advance(NS_PER_S)
    assert contract in world.clouds["c2"].granted
    numbers = {*world.clouds["c1"].open_channels, *world.clouds["c2"].open_channels}
    assert {number >> 23 & 0xFF for number in numbers} == {1}
    (held,) = (found for found, _ in world.brokers["west"].machine.state.holdings.all())
    assert set(held.channel_ids) <= numbers


def test_nothing_floods_before_a_broker_knows_its_depth() -> None:
    world, root = below_scripted_root(is_silent=True)
    command = SetFlooding(request_id=0, name=VOLTAGE, modes=(0,))
    refused = world.operate("west", command).refused
    assert refused is not None
    assert refused.hint == "is broker root running? Try again then"
    root.is_silent = False
    world.disconnect("west")
    world.settle()
    assert world.brokers["west"].machine.state.channels.prefix == 1


def moved_while_busy() -> TreeWorld:
    """West stands deeper since it held a contract, which is over: its numbers are the old ones."""
    world, _ = below_scripted_root()
    world.post("root", "west", OpenBorder(term=1, channels=(), is_whole=True))
    contract = world.subscribe("c2/d", VOLTAGE)
    world.settle()
    world.post("root", "west", moved(2))
    world.settle()
    world.end(contract)
    world.rest()
    assert depths(world) == {1}
    return world


def moved(term: int, prefixes: tuple[int, ...] = (0, 255)) -> TreeJoined:
    """The root has found a parent, whose channels have another prefix than any before."""
    return TreeJoined(term=term, depth=2, above=("top", "root"), prefixes=prefixes)


def depths(world: TreeWorld) -> set[int]:
    """Return the depths in the numbers of west's channels."""
    return {number >> 23 & 0xFF for number in world.brokers["west"].machine.state.channels.accounts}


def test_clouds_hear_of_numbers_that_change_though_the_depth_is_the_same() -> None:
    world = moved_while_busy()
    world.post("root", "west", moved(3, prefixes=(0, 1)))
    world.rest()
    assert depths(world) == {2}
    numbers = world.brokers["west"].machine.state.channels.accounts.keys()
    assert world.clouds["c1"].open_channels.keys() == numbers
    contract = world.subscribe("c2/d", VOLTAGE, 2)
    world.settle()
    assert contract in world.clouds["c2"].granted


def test_a_snapshot_keeps_numbers_that_a_broker_has_from_another_depth() -> None:
    world = moved_while_busy()
    west = world.brokers["west"]
    west.written = west.machine.snapshot()
    world.kill("west")
    assert depths(world) == {1}
    assert west.machine.state.depth == 2
    placed = west.machine.state.placed
    assert placed == Placed(
        term=2, depth=2, above=("top", "root"), prefixes=(0, 255), parent="root"
    )


def test_a_snapshot_of_an_earlier_release_keeps_numbers_that_something_is_held_over() -> None:
    world, _ = below_scripted_root()
    world.subscribe("c2/d", VOLTAGE)
    world.settle()
    world.post("root", "west", moved(2))
    world.settle()
    west = world.brokers["west"]
    placed = Placed(term=2, depth=2, above=("top", "root"))
    told = [encode(structs.replace(placed, depth=1)), *west.machine.snapshot()[2:], encode(placed)]
    west.written = [west.machine.snapshot()[0], *told]
    world.kill("west")
    assert depths(world) == {1}
    assert west.machine.state.placed == placed
