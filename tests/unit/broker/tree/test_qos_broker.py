"""Contracts from request to grant and release: two clouds, a row of them, and a deep tree."""

from __future__ import annotations

import itertools

import pytest

from gridstat.model.errors import ChannelFull, NoSuchVariable, RedundancyNotSatisfiable
from gridstat.model.rate_law import Period
from gridstat.net.command.segment_messages import (
    AskContract,
    Commit,
    ContractGranted,
    LookedUp,
    Lookup,
    Reserve,
    SegmentBroken,
)
from tests.unit.broker.tree.tree_world import TreeWorld, variable
from tests.unit.broker.tree.worlds import (
    VOLTAGE,
    deep_tree,
    inconsistencies,
    residue,
    row_of_clouds,
    two_clouds,
)


def owners(world: TreeWorld, contract: str) -> list[list[str]]:
    cloud = world.clouds[contract.partition("#")[0]]
    return [[piece.owner for piece in path.pieces] for path in cloud.granted[contract].paths]


@pytest.mark.feature("S0-55")
def test_children_reserve_and_commit_only_after_all_have_reserved() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/centre/display", VOLTAGE, redundancy=2)
    world.settle()
    said = [type(message) for sender, _, message in world.sent if sender == "root"]
    reserves = [at for at, kind in enumerate(said) if kind is Reserve]
    commits = [at for at, kind in enumerate(said) if kind is Commit]
    assert len(reserves) == len(commits) == 2
    assert max(reserves) < min(commits)
    assert owners(world, contract) == [["c1", "root", "c2"]] * 2
    assert world.clouds["c2"].granted[contract].owner == "root"
    assert inconsistencies(world) == []


@pytest.mark.feature("S0-6", "S1-3", "S0-3", "S0-57")
@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("c1/pmu/v", ["c2", "west"]),
        ("c3/pmu/v", ["c4", "mid"]),
        ("c5/pmu/v", ["c4", "mid", "east"]),
        ("c4/pmu/v", ["c1", "west", "root"]),
        ("c1/pmu/v", ["c4", "mid", "east", "root"]),
        ("c2/pmu/v", ["c3", "mid", "east", "root"]),
    ],
    ids=lambda given: "→".join(given) if isinstance(given, list) else None,
)
def test_a_question_climbs_to_the_lowest_broker_above_both_ends_which_owns_the_contract(
    name: str, asked: list[str]
) -> None:
    world = deep_tree()
    del world.sent[:]
    cloud, owner = asked[0], asked[-1]
    contract = world.subscribe(f"{cloud}/d", name, redundancy=2)
    world.settle()
    hops = [(one, other) for one, other, word in world.sent if isinstance(word, AskContract)]
    assert hops == list(itertools.pairwise(asked))
    assert not above(world, owner) & parties(world, contract, name)
    granted = world.clouds[cloud].granted[contract]
    assert granted.owner == owner
    assert len(granted.paths) == 2
    assert inconsistencies(world) == []
    world.end(contract)
    world.rest()
    assert not above(world, owner) & parties(world, contract, name)
    assert residue(world) == []


def above(world: TreeWorld, broker: str) -> set[str]:
    found = set()
    while broker := world.parents[broker]:
        found.add(broker)
    return found


def parties(world: TreeWorld, contract: str, name: str) -> set[str]:
    """Return all brokers that sent or received a message on a contract or its variable."""
    return {
        party
        for *pair, word in world.sent
        if getattr(word, "contract", "") == contract or getattr(word, "name", "") == name
        for party in pair
    }


def test_paths_of_a_contract_are_joined_from_end_to_end_without_a_shared_router() -> None:
    world = deep_tree()
    contract = world.subscribe("c4/d", "c1/pmu/v", redundancy=2)
    world.settle()
    paths = world.clouds["c4"].granted[contract].paths
    crossed: list[str] = []
    for path in paths:
        routers = [name for piece in path.pieces for name in piece.routers]
        assert routers[0].startswith("c1/")
        assert routers[-1].startswith("c4/")
        for one, other in zip(path.pieces, path.pieces[1:], strict=False):
            assert one.routers[-1] == other.routers[0]
        crossed += {name for name in routers if not name.endswith("/edge")}
    assert len(crossed) == len(set(crossed))


@pytest.mark.feature("S0-56")
def test_a_refusal_of_one_cloud_leaves_nothing_anywhere() -> None:
    world = row_of_clouds(3)
    world.clouds["c3"].capacity = 0
    contract = world.subscribe("c3/d", VOLTAGE, redundancy=2)
    world.rest()
    refused = world.clouds["c3"].refused[contract].refused
    assert refused.code == ChannelFull.code
    assert refused.bottleneck == "channel in c3"
    assert residue(world) == []


@pytest.mark.feature("S0-56")
def test_a_refusal_deep_in_the_tree_leaves_nothing_anywhere() -> None:
    world = deep_tree()
    world.clouds["c4"].capacity = 0
    contract = world.subscribe("c4/d", "c1/pmu/v")
    world.rest()
    assert world.clouds["c4"].refused[contract].refused.bottleneck == "channel in c4"
    assert residue(world) == []


def test_what_a_cloud_refuses_is_planned_round() -> None:
    world = row_of_clouds(3)
    world.clouds["c2"].closed_ways = {("c2/in0", "c2/out0"), ("c2/in0", "c2/out1")}
    contract = world.subscribe("c3/d", VOLTAGE)
    world.settle()
    (path,) = world.clouds["c3"].granted[contract].paths
    assert path.pieces[2].routers[0] == "c2/in1"
    assert inconsistencies(world) == []


@pytest.mark.feature("S0-5")
def test_a_full_channel_between_clouds_is_refused_with_its_name_and_what_is_missing() -> None:
    world = two_clouds(bandwidth_bytes_per_s=4_000)  # One variable of 50 a second takes 3,400.
    world.clouds["c1"].variables["c1/pmu/w"] = variable("c1/pmu/w", 77)
    first = world.subscribe("c2/d", VOLTAGE, 1, redundancy=2)
    world.settle()
    second = world.subscribe("c2/d", "c1/pmu/w", 2)
    world.rest()
    assert first in world.clouds["c2"].granted
    refused = world.clouds["c2"].refused[second].refused
    assert refused.code == ChannelFull.code
    assert refused.bottleneck in {"channel c1/b0→c2/b0", "channel c1/b1→c2/b1"}
    assert refused.shortfall == "2840 bytes/s"
    world.end(first)
    world.rest()
    assert residue(world) == []
    again = world.subscribe("c2/d", "c1/pmu/w", 3)
    world.settle()
    assert again in world.clouds["c2"].granted


def test_where_one_channel_is_full_the_other_is_taken() -> None:
    world = two_clouds(bandwidth_bytes_per_s=4_000)
    world.clouds["c1"].variables["c1/pmu/w"] = variable("c1/pmu/w", 77)
    contracts = [
        world.subscribe("c2/d", VOLTAGE, 1),
        world.subscribe("c2/d", "c1/pmu/w", 2),
    ]
    world.settle()
    assert all(contract in world.clouds["c2"].granted for contract in contracts)
    used = {
        path.pieces[1].routers
        for contract in contracts
        for path in world.clouds["c2"].granted[contract].paths
    }
    assert len(used) == 2


def test_less_than_desired_is_granted_and_said() -> None:
    world = two_clouds(bandwidth_bytes_per_s=1_000)
    contract = world.subscribe("c2/d", VOLTAGE, every_worst=16)
    world.settle()
    granted = world.clouds["c2"].granted[contract]
    assert granted.granted[0].every >= 4
    assert any("lowered to every" in words for words in granted.degraded)
    assert inconsistencies(world) == []


def test_more_disjoint_ways_than_there_are_is_refused_with_how_many_are_missing() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE, redundancy=3)
    world.rest()
    refused = world.clouds["c2"].refused[contract].refused
    assert refused.code == RedundancyNotSatisfiable.code
    assert refused.shortfall == "1 path"
    assert residue(world) == []


@pytest.mark.feature("S0-58")
def test_a_look_up_goes_to_the_cloud_of_the_name_alone_and_brings_identifier_and_period() -> None:
    world = deep_tree()
    published = variable("c1/pmu/v", 4_711, per_second=30)
    world.clouds["c1"].variables["c1/pmu/v"] = published
    del world.sent[:]
    contract = world.subscribe("c4/d", "c1/pmu/v")
    world.settle()
    asked = [(one, other) for one, other, word in world.sent if isinstance(word, Lookup)]
    assert ("root", "west") in asked
    assert {other for _, other in asked} <= {"west", "c1"}
    found = told_of_variable(world, LookedUp)
    assert found.keys() == {("c1", "west"), ("west", "root")}
    granted = told_of_variable(world, ContractGranted)
    assert granted.keys() == {("root", "east"), ("east", "mid"), ("mid", "c4")}
    numbers = {*found.values(), *granted.values()}
    assert numbers == {(4_711, Period(1, 30))}
    assert world.clouds["c4"].granted[contract].variable == published


def told_of_variable(
    world: TreeWorld, kind: type[LookedUp | ContractGranted]
) -> dict[tuple[str, str], tuple[int, Period | None]]:
    """Identifier and period as they went from whom to whom."""
    return {
        (one, other): (word.variable.variable_id, word.variable.period)
        for one, other, word in world.sent
        if isinstance(word, kind) and word.variable is not None
    }


@pytest.mark.parametrize("name", ["c1/pmu/nothing", "c9/pmu/v"])
def test_a_variable_that_nobody_publishes_is_refused(name: str) -> None:
    world = deep_tree()
    contract = world.subscribe("c4/d", name)
    world.rest()
    assert world.clouds["c4"].refused[contract].refused.code == NoSuchVariable.code
    assert residue(world) == []


@pytest.mark.feature("S0-9")
def test_segments_enter_and_leave_by_the_border_routers_of_channels_only() -> None:
    world = deep_tree()
    for number, (subscriber, name) in enumerate(
        [("c4/d", "c1/pmu/v"), ("c2/d", "c3/pmu/v"), ("c5/d", "c2/pmu/v")], start=1
    ):
        world.subscribe(subscriber, name, number, redundancy=2)
    world.settle()
    borders = {
        end
        for process in world.brokers.values()
        for account in process.machine.state.channels.accounts.values()
        for end in (account.channel.from_router, account.channel.to_router)
    }
    gates = {
        gate.router
        for cloud in world.clouds.values()
        for found in cloud.segments.values()
        for gate in (*found.reserve.entries, *found.reserve.exits)
    }
    assert gates
    assert gates <= borders


def test_shares_of_a_bound_are_no_more_than_the_bound() -> None:
    world = deep_tree()
    contract = world.subscribe("c4/d", "c1/pmu/v", latency_us=20_000)
    world.settle()
    shares = [
        found.reserve.granted[0].latency_us
        for cloud in world.clouds.values()
        for (name, _), found in cloud.segments.items()
        if name == contract
    ]
    channels_us = 500 * (len(shares) - 1)
    assert sum(shares) + channels_us <= 20_000
    assert sum(shares) > 15_000


def test_a_change_is_made_beside_what_holds_and_the_old_goes_when_the_new_is_up() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE)
    world.settle()
    assert world.subscribe("c2/d", VOLTAGE, generation=1, redundancy=2) == contract
    world.rest()
    granted = world.clouds["c2"].granted[contract]
    assert (granted.generation, len(granted.paths)) == (1, 2)
    assert set(world.clouds["c1"].segments) == {(contract, 1)}
    assert inconsistencies(world) == []


def test_a_change_that_is_refused_leaves_what_held() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE)
    world.settle()
    world.subscribe("c2/d", VOLTAGE, generation=1, redundancy=3)
    world.rest()
    assert world.clouds["c2"].refused[contract].generation == 1
    assert set(world.clouds["c1"].segments) == {(contract, 0)}
    assert inconsistencies(world) == []


def test_a_variable_that_is_gone_ends_its_contracts() -> None:
    world = deep_tree()
    contract = world.subscribe("c4/d", "c1/pmu/v", redundancy=2)
    world.settle()
    publisher = world.clouds["c1"]
    (key,) = publisher.segments
    publisher.out.append(
        SegmentBroken(
            term=publisher.term, contract=key[0], generation=key[1], reason="gone", is_over=True
        )
    )
    world.say("c1")
    world.rest()
    ended = world.clouds["c4"].ended[contract]
    assert ended.refused is not None
    assert ended.refused.code == NoSuchVariable.code
    assert residue(world) == []


def test_a_change_of_what_has_lost_its_variable_unheard_ends_the_contract() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE)
    world.settle()
    publisher = world.clouds["c1"]
    publisher.variables.clear()
    publisher.segments.clear()
    world.subscribe("c2/d", VOLTAGE, generation=1)
    world.rest()
    ended = world.clouds["c2"].ended[contract]
    assert ended.refused is not None
    assert ended.refused.code == NoSuchVariable.code
    assert residue(world) == []
