"""Numbers of channels: a cloud knows those of all brokers above it, and no two are the same."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gridstat.broker.tree.channel_prefixes import choose
from gridstat.broker.tree.tree_operations import Placed, encode
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.tree_messages import PREFIX_MAX, OpenBorder, TreeJoined
from tests.unit.broker.tree.cloud_stand_in import CloudStandIn
from tests.unit.broker.tree.scripted_root import below_scripted_root
from tests.unit.broker.tree.tree_world import TreeWorld, both_ways, variable
from tests.unit.broker.tree.worlds import VOLTAGE, inconsistencies

if TYPE_CHECKING:
    from gridstat.broker.tree.tree_state import TreeState


def grown(*, is_root_busy: bool = False) -> tuple[TreeWorld, str]:
    """West was a root and holds a contract of its own when it is given a parent."""
    root = [*both_ways("c1/r", "c3/r"), *both_ways("c3/q", "c4/q")]
    west = [*both_ways("c1/w0", "c2/w0"), *both_ways("c1/w1", "c2/w1")]
    owners = {"c1": "west", "c2": "west", "c3": "root", "c4": "root"}
    clouds = [CloudStandIn(name, parent) for name, parent in owners.items()]
    world = TreeWorld(
        {"west": ("", ("c1", "c2"), west), "root": ("", ("west", "c3", "c4"), root)}, clouds
    )
    for number, cloud in enumerate(clouds, start=1):
        cloud.variables[f"{cloud.name}/pmu/v"] = variable(f"{cloud.name}/pmu/v", number)
    world.start()
    contract = world.subscribe("c2/d", VOLTAGE)
    if is_root_busy:
        world.subscribe("c4/d", "c3/pmu/v")
    world.rest()
    give_parent(world, "west", "root")
    return world, contract


def give_parent(world: TreeWorld, name: str, parent: str) -> None:
    process = world.brokers[name]
    process.settings = replace(process.settings, parent=parent)
    world.parents[name] = parent
    world.kill(name)
    world.rest()


def state_of(world: TreeWorld, name: str) -> TreeState:
    return world.brokers[name].machine.state


def shared_numbers(world: TreeWorld) -> list[str]:
    """Return the numbers that a cloud has ever received for more than one channel."""
    told: dict[tuple[str, int], set[str]] = {}
    for _, receiver, word in world.sent:
        if isinstance(word, OpenBorder) and receiver in world.clouds:
            for found in word.channels:
                key = (receiver, int(found.channel.channel_id))
                told.setdefault(key, set()).add(found.channel.label)
    return [f"{key}: {sorted(labels)}" for key, labels in told.items() if len(labels) > 1]


def test_a_root_with_contracts_that_is_given_a_parent_shares_no_number_with_it() -> None:
    world, contract = grown()
    assert world.closed == []
    assert state_of(world, "west").depth == 1
    assert shared_numbers(world) == []
    own, above = (set(state_of(world, name).channels.accounts) for name in ("west", "root"))
    assert not own & above
    assert contract in world.clouds["c2"].granted
    abstract_link = world.subscribe("c3/d", VOLTAGE, 7)
    world.rest()
    assert abstract_link in world.clouds["c3"].granted
    assert inconsistencies(world) == []


def test_a_channel_that_dies_below_a_new_parent_is_that_of_its_owner() -> None:
    world, _ = grown()
    (silent,) = (
        number
        for number, found in state_of(world, "root").channels.accounts.items()
        if found.channel.label == "c1/r→c3/r"
    )
    world.clouds["c1"].tell_channel(silent, is_up=False)
    world.say("c1")
    world.settle()
    down = [
        account.channel.label
        for name in ("west", "root")
        for account in state_of(world, name).channels.accounts.values()
        if account.down_at
    ]
    assert down == ["c1/r→c3/r"]


def test_the_numbers_of_a_broker_that_has_made_room_last() -> None:
    world, _ = grown()
    prefix = state_of(world, "root").channels.prefix
    assert prefix == PREFIX_MAX
    world.kill("root")
    world.rest()
    root = world.brokers["root"]
    root.written = root.machine.snapshot()
    world.kill("root")
    world.rest()
    assert state_of(world, "root").channels.prefix == prefix
    assert shared_numbers(world) == []


def test_two_brokers_that_both_hold_something_do_not_join_with_the_same_numbers() -> None:
    world, contract = grown(is_root_busy=True)
    ((peer, reason),) = world.closed
    assert peer == "broker/root"
    assert "a broker above uses channel prefix 0, and so does this one" in reason
    (note,) = (found for found in world.brokers["west"].notes if found.word == "sent_away")
    assert dict(note.facts)["reason"] == reason
    assert contract in world.clouds["c2"].granted
    assert shared_numbers(world) == []
    world.end(contract)
    world.rest()
    world.cut.clear()
    world.rest()
    assert state_of(world, "west").depth == 1
    abstract_link = world.subscribe("c3/d", VOLTAGE, 7)
    world.rest()
    assert abstract_link in world.clouds["c3"].granted


def test_a_tree_that_has_grown_twice_has_different_numbers_above_each_cloud() -> None:
    world, contract = grown()
    abstract_link = world.subscribe("c3/d", VOLTAGE, 7)
    world.rest()
    world.clouds["c5"] = CloudStandIn("c5", "top")
    top = TreeWorld({"top": ("", ("root", "c5"), both_ways("c1/t", "c5/t"))}, []).brokers["top"]
    world.brokers["top"] = top
    world.parents |= {"top": "", "c5": "top"}
    world._do("top", top.machine.start(world.now_ns))
    world.rest()
    give_parent(world, "root", "top")
    assert world.closed == []
    assert shared_numbers(world) == []
    assert [state_of(world, name).depth for name in ("top", "root", "west")] == [0, 1, 2]
    prefixes = [state_of(world, name).channels.prefix for name in ("top", "root", "west")]
    assert prefixes == [PREFIX_MAX - 1, PREFIX_MAX, 0]
    farther = world.subscribe("c5/d", VOLTAGE, 8)
    world.rest()
    assert farther in world.clouds["c5"].granted
    assert contract in world.clouds["c2"].granted
    assert abstract_link in world.clouds["c3"].granted


def test_a_broker_is_not_told_its_place_before_the_one_above_it_knows_its_own() -> None:
    """Subscribe while east is cut off: mid might else use numbers that east takes later."""
    channels = both_ways("c1/m", "c2/m")
    clouds = [CloudStandIn("c1", "mid"), CloudStandIn("c2", "mid")]
    world = TreeWorld(
        {
            "root": ("", ("east",), []),
            "east": ("root", ("mid",), []),
            "mid": ("east", ("c1", "c2"), channels),
        },
        clouds,
    )
    world.clouds["c1"].variables[VOLTAGE] = variable(VOLTAGE, 1)
    world.cut.add("east")
    world.start()
    contract = world.subscribe("c2/d", VOLTAGE)
    world.settle()
    world.advance(NS_PER_S)
    assert state_of(world, "mid").placed is None
    world.cut.clear()
    world.rest()
    assert world.closed == []
    assert contract in world.clouds["c2"].granted
    prefixes = [state_of(world, name).channels.prefix for name in ("root", "east", "mid")]
    assert prefixes == [0, 1, 2]


def test_a_parent_of_an_earlier_release_is_taken_to_number_by_depth() -> None:
    world, _ = below_scripted_root()
    world.subscribe("c2/d", VOLTAGE)
    world.rest()
    world.post("root", "west", TreeJoined(term=1, depth=2, above=("top", "root")))
    world.settle()
    ((_, reason),) = world.closed
    assert "prefix 1" in reason


def test_a_journal_of_an_earlier_release_numbers_by_depth() -> None:
    world, _ = below_scripted_root()
    west = world.brokers["west"]
    west.written = [west.written[0], encode(Placed(term=1, depth=3, above=("a", "b", "root")))]
    west.restart()
    assert west.machine.state.channels.prefix == 3


def test_a_prefix_above_counts_more_than_one_below() -> None:
    state = state_of(below_scripted_root()[0], "west")
    every = range(PREFIX_MAX + 1)
    assert choose(state, (0, 1), every, depth=2) == 2
    assert choose(state, (0,), (1,), depth=1) == PREFIX_MAX
