"""Events in a running tree: failures, partitions, identifiers, changes, patterns."""

from __future__ import annotations

import pytest

from gridstat.broker.tree.tree_settings import TreeSettings
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.segment_messages import EndContract, SegmentBroken
from gridstat.net.command.tree_messages import (
    AbstractLinksReported,
    BorderChannelReported,
    BorderReported,
    NamesFound,
    WatchNames,
)
from tests.unit.broker.tree.cloud_stand_in import CloudStandIn
from tests.unit.broker.tree.tree_world import TreeWorld
from tests.unit.broker.tree.worlds import (
    VOLTAGE,
    deep_tree,
    inconsistencies,
    residue,
    row_of_clouds,
    two_clouds,
)

# Failures.


def own_channels(world: TreeWorld, contract: str) -> set[str]:
    return {
        "→".join(piece.routers)
        for path in world.clouds[contract.partition("#")[0]].granted[contract].paths
        for piece in path.pieces
        if piece.owner in world.brokers
    }


@pytest.mark.feature("S0-129")
def test_a_channel_that_falls_silent_is_planned_round_and_the_old_way_is_given_back() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE)
    world.settle()
    (before,) = own_channels(world, contract)
    number = next(one for one, label in world.clouds["c2"].open_channels.items() if label == before)
    world.clouds["c2"].tell_channel(number, is_up=False)
    world.say("c2")
    world.rest()
    (after,) = own_channels(world, contract)
    assert after != before
    assert world.clouds["c2"].granted[contract].generation == 1
    assert set(world.clouds["c1"].segments) == {(contract, 1)}
    assert inconsistencies(world) == []
    told = {
        one["channel"]: one["is_up"] for one in world.brokers["root"].machine.survey()["channels"]
    }
    assert told[before] is False


def test_where_nothing_leads_round_the_old_way_stays_and_is_tried_again() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE, redundancy=2)
    world.settle()
    receiver = world.clouds["c2"]
    number = next(one for one, label in receiver.open_channels.items() if label == "c1/b0→c2/b0")
    receiver.tell_channel(number, is_up=False)
    world.say("c2")
    world.rest()
    assert receiver.granted[contract].generation == 0
    assert world.brokers["root"].machine.survey()["broken"] == 1
    receiver.tell_channel(number, is_up=True)
    world.say("c2")
    world.rest()
    assert world.brokers["root"].machine.survey()["broken"] == 0
    assert receiver.granted[contract].generation == 0
    assert inconsistencies(world) == []


def test_a_channel_of_a_broker_in_the_middle_that_fails_is_planned_round_by_the_owner() -> None:
    world = deep_tree()
    contract = world.subscribe("c4/d", "c1/pmu/v")
    world.settle()
    inner = [one for one in own_channels(world, contract) if one.startswith(("c3/m", "c5/e"))]
    (label,) = inner
    cloud = world.clouds[label.partition("→")[2].partition("/")[0]]
    number = next(one for one, found in cloud.open_channels.items() if found == label)
    cloud.tell_channel(number, is_up=False)
    world.say(cloud.name)
    world.rest()
    assert label not in own_channels(world, contract)
    assert world.clouds["c4"].granted[contract].generation == 1
    assert inconsistencies(world) == []


def test_a_cloud_that_cannot_mend_its_part_is_left_by_another_border() -> None:
    world = row_of_clouds(3)
    contract = world.subscribe("c3/d", VOLTAGE)
    world.settle()
    middle = world.clouds["c2"]
    ((key, found),) = middle.segments.items()
    gates = tuple(gate.channel_id for gate in (*found.reserve.entries, *found.reserve.exits))
    middle.out.append(
        SegmentBroken(
            term=middle.term, contract=key[0], generation=key[1], reason="i3 is down", broken=gates
        )
    )
    world.say("c2")
    world.rest()
    ((_, now),) = middle.segments.items()
    used = {gate.channel_id for gate in (*now.reserve.entries, *now.reserve.exits)}
    assert not used & set(gates)
    assert inconsistencies(world) == []
    assert contract in world.clouds["c3"].granted


# Partitions.


@pytest.mark.feature("S0-122")
@pytest.mark.parametrize("cut", ["west", "east", "mid", "c1", "c4"])
def test_changes_on_both_sides_of_a_partition_merge_to_what_was_last_wanted(cut: str) -> None:
    world = deep_tree()
    kept = world.subscribe("c4/d", "c1/pmu/v", 1, redundancy=2)
    ended = world.subscribe("c4/d", "c2/pmu/v", 2)
    inner = world.subscribe("c2/d", "c1/pmu/v", 3)
    world.settle()
    world.cut.add(cut)
    world.disconnect(cut)
    world.end(ended)
    world.end(inner)
    late = world.subscribe("c1/d", "c4/pmu/v", 4)
    local = world.subscribe("c3/d", "c4/pmu/v", 5)
    world.settle()
    world.advance(NS_PER_S)
    world.cut.clear()
    world.rest()
    assert inconsistencies(world) == []
    wanted = {
        "c4": {kept: "c1/pmu/v"},
        "c1": {late: "c4/pmu/v"},
        "c3": {local: "c4/pmu/v"},
        "c2": {},
        "c5": {},
    }
    for name, contracts in wanted.items():
        granted = world.clouds[name].granted
        assert {one: found.variable.name for one, found in granted.items()} == contracts, name
    assert set(world.clouds["c4"].ended) == {ended}
    held = {key[0] for cloud in world.clouds.values() for key in cloud.segments}
    assert held == {kept, late, local}
    for contract in (kept, late, local):
        world.end(contract)
    world.rest()
    assert residue(world) == []


def test_a_cloud_that_is_away_is_waited_for_and_then_given_up() -> None:
    world = two_clouds()
    world.clouds["c1"].is_silent = True
    contract = world.subscribe("c2/d", VOLTAGE)
    world.rest()
    refused = world.clouds["c2"].refused[contract].refused
    assert "c1" in refused.reason
    assert "Try again" in refused.hint
    assert residue(world) == []


def test_a_child_of_an_older_term_and_a_stranger_are_turned_away() -> None:
    world = two_clouds()
    world.disconnect("c1")
    world.clouds["c1"].term = 0
    world.settle()
    assert ("broker/c1", "broker c1 has sent term 0, although it sent 1 before") in world.closed
    stranger = CloudStandIn("c9", "root")
    world.clouds["c9"] = stranger
    world.parents["c9"] = "root"
    world.settle()
    assert any(
        peer == "broker/c9" and "not among the children" in why for peer, why in world.closed
    )


def test_a_child_has_no_say_in_what_lies_below_another() -> None:
    world = deep_tree()
    contract = world.subscribe("c4/d", "c1/pmu/v", redundancy=2)
    world.settle()
    before = {name: process.machine.survey() for name, process in world.brokers.items()}
    forger = world.clouds["c3"]
    own = set(forger.open_channels)
    forger.out += [
        EndContract(term=forger.term, contract=contract),
        BorderReported(term=forger.term, router="c4/m0", is_up=True, host="10.6.6.6", data_port=1),
        BorderChannelReported(
            term=forger.term,
            channel_id=next(one for one in world.clouds["c4"].open_channels if one not in own),
            is_up=False,
        ),
    ]
    world.say("c3")
    world.rest()
    assert contract in world.clouds["c4"].granted
    assert {name: one.machine.survey() for name, one in world.brokers.items()} == before


def test_a_leaf_broker_may_have_no_cloud_but_its_own() -> None:
    world = two_clouds()
    world.disconnect("c2")
    world.clouds["c2"].clouds = ("c2", "c7")
    world.settle()
    assert (
        "broker/c2",
        "c2 is a cloud's broker, and may have no cloud but its own",
    ) in world.closed


# Identifiers.


@pytest.mark.feature("S0-22")
def test_identifiers_of_many_clouds_at_once_are_all_different_whoever_is_killed() -> None:
    world = deep_tree(TreeSettings(name="", numbers_block=100))
    for request in range(1, 6):
        for name in sorted(world.clouds):
            world.clouds[name].ask_numbers(request, 30)
            world.say(name)
        if request in {2, 4}:
            for broker in ("mid", "east", "root"):
                world.kill(broker)
        world.settle()
    world.rest()
    blocks = [
        range(found.first, found.first + found.count)
        for cloud in world.clouds.values()
        for found in cloud.numbers.values()
    ]
    assert len(blocks) == 25
    given = [number for block in blocks for number in block]
    assert len(set(given)) == len(given) == 750


def test_the_same_question_for_identifiers_has_the_same_answer() -> None:
    world = deep_tree()
    cloud = world.clouds["c4"]
    cloud.ask_numbers(1, 10)
    world.say("c4")
    world.settle()
    first = cloud.numbers[1]
    world.kill("mid")
    cloud.ask_numbers(1, 10)
    world.say("c4")
    world.settle()
    again = cloud.numbers[1]
    assert (again.first, again.count) == (first.first, first.count)


def test_a_cloud_that_was_alone_keeps_its_identifiers_and_a_second_one_is_turned_away() -> None:
    first, second = CloudStandIn("c1", "root"), CloudStandIn("c2", "root")
    first.numbers_used = second.numbers_used = 40
    world = TreeWorld({"root": ("", ("c1", "c2"), [])}, [first, second]).start()
    assert first.is_joined
    assert not second.is_joined
    assert any("has given out identifiers up to 40" in why for _, why in world.closed)
    first.ask_numbers(1, 10)
    world.say("c1")
    world.settle()
    assert first.numbers[1].first == 41


# Reports to the parent.


def test_a_middle_broker_tells_ways_between_the_borders_above_and_again_only_if_they_move() -> None:
    world = deep_tree()
    told = [
        message
        for sender, _, message in world.sent
        if sender == "east" and isinstance(message, AbstractLinksReported)
    ]
    ways = {(one.from_router, one.to_router): one.latency_us for one in told[-1].abstract_links}
    assert set(ways) == {("c5/r0", "c3/r1"), ("c3/r1", "c5/r0")}
    assert ways["c5/r0", "c3/r1"] == 600 + 500 + 600
    count = len(told)
    cloud = world.clouds["c5"]
    cloud.slow_us["c5/r0", "c5/e0"] = 601
    cloud.retell()
    world.say("c5")
    world.rest()
    assert _told_by(world, "east") == count
    cloud.slow_us["c5/r0", "c5/e0"] = 900
    cloud.slow_us["c5/r0", "c5/e1"] = 900
    cloud.retell()
    world.say("c5")
    world.rest()
    assert _told_by(world, "east") == count + 1


def _told_by(world: TreeWorld, broker: str) -> int:
    return sum(
        sender == broker and isinstance(message, AbstractLinksReported)
        for sender, _, message in world.sent
    )


# Patterns.


def test_a_pattern_is_passed_to_the_clouds_that_may_match_and_finds_come_back() -> None:
    world = deep_tree()
    watcher = world.clouds["c4"]
    for name, pattern in (("c4#1", "c1/*/v"), ("c4#2", "*/pmu/v")):
        watcher.out.append(WatchNames(term=watcher.term, watch=name, pattern=pattern))
    world.say("c4")
    world.settle()
    assert world.clouds["c1"].watched == {"c4#1": "c1/*/v", "c4#2": "*/pmu/v"}
    for other in ("c2", "c3", "c5"):
        assert world.clouds[other].watched == {"c4#2": "*/pmu/v"}
    assert watcher.watched == {}
    finder = world.clouds["c1"]
    finder.out.append(NamesFound(term=finder.term, watch="c4#1", names=("c1/pmu/v",)))
    world.say("c1")
    world.settle()
    assert [found.names for found in watcher.found] == [("c1/pmu/v",)]


def test_every_cloud_knows_how_deep_it_stands_and_who_is_above() -> None:
    world = deep_tree()
    assert (world.clouds["c1"].depth, world.clouds["c1"].above) == (2, ("root", "west"))
    assert (world.clouds["c4"].depth, world.clouds["c4"].above) == (3, ("root", "east", "mid"))
    levels = {
        account.channel.channel_id >> 23 & 0xFF
        for account in world.brokers["mid"].machine.state.channels.accounts.values()
    }
    assert levels == {2}
