"""Searches between clouds: bounded by steps, charged to who asked, no proof when cut off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gridstat.broker.tree import path_planner, search_turns
from gridstat.broker.tree.search_budget import SEARCH_S, US_PER_S
from gridstat.model.errors import (
    LatencyNotSatisfiable,
    QuotaReached,
    RedundancyNotSatisfiable,
    SearchUndecided,
)
from gridstat.model.paths import NotFound, disjoint_paths
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.segment_messages import NotReserved, Reserve, Reserved
from tests.unit.broker.tree.worlds import VOLTAGE, deep_tree, residue, row_of_clouds, two_clouds

if TYPE_CHECKING:
    import pytest

    from gridstat.net.command.endpoint_messages import RefusedOutcome
    from tests.unit.broker.tree.tree_world import TreeWorld

ALL_US = int(SEARCH_S * US_PER_S)


def asked(world: TreeWorld, cloud: str) -> list[Reserve]:
    return [one for _, to, one in world.sent if to == cloud and isinstance(one, Reserve)]


def refusal(world: TreeWorld, contract: str) -> RefusedOutcome:
    cloud = world.clouds[contract.partition("#")[0]]
    assert contract not in cloud.granted
    return cloud.refused[contract].refused


def without_verdict(monkeypatch: pytest.MonkeyPatch, steps: int = 0) -> list[int]:
    """Let every search of a planner end without a verdict after so many steps; what was made."""
    made: list[int] = []

    def searched(*_: object, **options: Any) -> NotFound:
        made.append(1)
        options["whole"].charge(steps)
        return NotFound("budget")

    monkeypatch.setattr(path_planner, "disjoint_paths", searched)
    return made


# What is not decided.


def test_a_search_that_reached_its_limit_is_refused_as_that_and_not_as_a_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = two_clouds()
    world.settle()
    without_verdict(monkeypatch)
    contract = world.subscribe("c2/d", VOLTAGE, redundancy=2)
    world.advance(10 * NS_PER_S)
    assert refusal(world, contract).code == SearchUndecided.code == 1112
    assert "reached its time limit" in refusal(world, contract).reason
    assert "exist" not in refusal(world, contract).reason


def test_attempts_that_are_used_up_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = row_of_clouds(3)
    world.settle()
    monkeypatch.setattr(path_planner, "ATTEMPTS_MAX", 0)
    contract = world.subscribe("c3/d", VOLTAGE, redundancy=2)
    world.advance(10 * NS_PER_S)
    assert refusal(world, contract).code == SearchUndecided.code


def test_no_verdict_is_remembered_until_the_graph_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    world = two_clouds()
    world.advance(10 * NS_PER_S)
    made = without_verdict(monkeypatch)
    for number in (1, 2, 3):
        contract = world.subscribe("c2/d", VOLTAGE, number=number)
        world.settle()
        assert refusal(world, contract).code == SearchUndecided.code
        if number == 1:
            before = len(made)
    assert len(made) == before
    monkeypatch.setattr(path_planner, "disjoint_paths", disjoint_paths)
    world.brokers["root"].machine.parts.graph._version += 1
    contract = world.subscribe("c2/d", VOLTAGE, number=4)
    world.settle()
    assert contract in world.clouds["c2"].granted


def test_no_verdict_in_less_than_the_whole_time_is_not_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = two_clouds()
    world.advance(10 * NS_PER_S)
    made = without_verdict(monkeypatch, steps=25_000)
    for number in (1, 2):
        before = len(made)
        world.subscribe("c2/d", VOLTAGE, number=number, redundancy=2)
        world.settle()
        assert len(made) > before


def test_a_child_without_a_verdict_bars_nothing_and_another_way_is_taken() -> None:
    world = row_of_clouds(3)
    world.settle()
    middle = world.clouds["c2"]
    middle.undecided_ways = {("c2/in0", "c2/out0"), ("c2/in1", "c2/out0")}
    contract = world.subscribe("c3/d", VOLTAGE)
    world.settle()
    assert contract in world.clouds["c3"].granted
    middle.undecided_ways |= {("c2/in0", "c2/out1"), ("c2/in1", "c2/out1")}
    contract = world.subscribe("c3/e", VOLTAGE, number=2)
    world.advance(10 * NS_PER_S)
    assert refusal(world, contract).code == SearchUndecided.code


# What is too slow, and how many there are.


def test_too_slow_paths_are_counted_without_their_bound() -> None:
    world = two_clouds()
    world.settle()
    for cloud in world.clouds.values():
        cloud.ways, cloud.ways_most = 2, 1
    few = world.subscribe("c2/d", VOLTAGE, redundancy=3, latency_us=700)
    late = world.subscribe("c2/e", VOLTAGE, number=2, redundancy=2, latency_us=700)
    world.advance(10 * NS_PER_S)
    assert refusal(world, few).code == RedundancyNotSatisfiable.code
    assert "are requested, and 2 exist, and take" in refusal(world, few).reason
    assert refusal(world, late).code == LatencyNotSatisfiable.code
    assert refusal(world, late).reason.endswith("µs too much")
    assert not residue(world)


# Who pays.


def test_a_child_is_told_what_is_left_and_its_searches_are_counted() -> None:
    world = row_of_clouds(3)
    world.settle()
    middle = world.clouds["c2"]
    middle.search_us = ALL_US // 3
    middle.closed_ways = {(f"c2/in{one}", f"c2/out{other}") for one in (0, 1) for other in (0, 1)}
    contract = world.subscribe("c3/d", VOLTAGE)
    world.advance(10 * NS_PER_S)
    left_us = [one.search_us for one in asked(world, "c2")]
    assert left_us == sorted(left_us, reverse=True)
    assert len(left_us) == 3, "no round without search time"
    assert left_us[0] < ALL_US
    assert 1 <= left_us[-1] <= ALL_US // 3
    assert contract in world.clouds["c3"].refused
    assert world.clouds["c3"].searched_us[contract] >= ALL_US


def test_a_grant_tells_what_its_searches_have_taken_in_the_whole_tree() -> None:
    world = deep_tree()
    world.settle()
    for cloud in world.clouds.values():
        cloud.search_us = 1_000
    contract = world.subscribe("c4/d", VOLTAGE)
    world.settle()
    assert contract in world.clouds["c4"].granted
    answers = [one for _, to, one in world.sent if to == "root" and isinstance(one, Reserved)]
    assert answers
    assert all(one.search_us > 1_000 for one in answers), "the clouds', and those of the middle"
    told_us = world.clouds["c4"].searched_us[contract]
    assert sum(one.search_us for one in answers) < told_us < 20_000


def test_a_broker_in_the_middle_searches_no_longer_than_its_parent_says() -> None:
    world = deep_tree()
    world.settle()
    for cloud in world.clouds.values():
        cloud.search_us = ALL_US
    contract = world.subscribe("c4/d", VOLTAGE, redundancy=2)
    world.advance(20 * NS_PER_S)
    told_us = world.clouds["c4"].searched_us[contract]
    assert told_us < 6 * ALL_US
    refused = [one.refused.reason for _, _, one in world.sent if isinstance(one, NotReserved)]
    assert not [reason for reason in refused if "exist" in reason]


def test_requests_from_below_one_child_wait_and_those_of_another_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = row_of_clouds(3)
    world.advance(10 * NS_PER_S)
    monkeypatch.setattr(search_turns, "CHILD_BURST_NS", 0)
    turns = world.brokers["root"].machine.parts.contracts._turns
    turns.times.use("c3", NS_PER_S + 500_000_000, world.now_ns)
    waiting = world.subscribe("c3/d", VOLTAGE)
    other = world.subscribe("c2/d", VOLTAGE, number=2)
    world.settle()
    assert waiting not in world.clouds["c3"].granted
    assert len(turns) == 1
    assert other in world.clouds["c2"].granted
    world.advance(search_turns.CHILD_PARTS * 500_000_000)
    assert waiting in world.clouds["c3"].granted


def test_a_child_far_beyond_its_part_is_refused_in_words() -> None:
    world = row_of_clouds(3)
    world.advance(10 * NS_PER_S)
    turns = world.brokers["root"].machine.parts.contracts._turns
    turns.times.use("c3", 10 * NS_PER_S, world.now_ns)
    contract = world.subscribe("c3/d", VOLTAGE)
    world.settle()
    assert refusal(world, contract).code == QuotaReached.code
    assert "below c3" in refusal(world, contract).reason
    assert not len(turns)
