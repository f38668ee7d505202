"""Contracts whose paths share a border router: granted, and called what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.tree.coordinator import PARKED_TIMER
from gridstat.model.errors import RedundancyNotSatisfiable
from gridstat.net.command.machine import TimerFired
from gridstat.net.command.segment_messages import NotReserved, Reserve
from tests.unit.broker.tree.cloud_stand_in import CloudStandIn
from tests.unit.broker.tree.tree_world import TreeWorld, channel
from tests.unit.broker.tree.worlds import VOLTAGE, published, residue

if TYPE_CHECKING:
    from gridstat.net.command.segment_messages import ContractGranted

FROM_ONE_BORDER = (("c1/b0", "c2/b0"), ("c1/b0", "c2/b1"), ("c1/b0", "c2/b2"))


def through(*ends: tuple[str, str], ways: int = 1) -> TreeWorld:
    """Return a tree whose clouds report so many disjoint paths to and between their borders."""
    names = sorted({end.partition("/")[0] for pair in ends for end in pair})
    clouds = [CloudStandIn(name, "root", ways=ways) for name in names]
    channels = [channel(*pair) for pair in ends]
    world = published(TreeWorld({"root": ("", names, channels)}, clouds)).start()
    world.rest()
    return world


def granted(world: TreeWorld, contract: str) -> ContractGranted:
    return world.clouds[contract.partition("#")[0]].granted[contract]


def refusals(world: TreeWorld) -> list[NotReserved]:
    return [word for _, _, word in world.sent if isinstance(word, NotReserved)]


def asked(world: TreeWorld) -> list[Reserve]:
    return [word for _, _, word in world.sent if isinstance(word, Reserve)]


def test_paths_that_share_only_a_border_router_are_granted_as_link_disjoint() -> None:
    world = through(*FROM_ONE_BORDER, ways=2)
    contract = world.subscribe("c2/d", VOLTAGE, redundancy=2)
    world.settle()
    assert len(granted(world, contract).paths) == 2
    assert not granted(world, contract).is_node_disjoint


def test_a_border_is_passed_as_often_as_its_cloud_has_disjoint_paths() -> None:
    world = through(*FROM_ONE_BORDER, ways=2)
    contract = world.subscribe("c2/d", VOLTAGE, redundancy=3)
    world.settle()
    why = world.clouds["c2"].refused[contract].refused
    assert why.code == RedundancyNotSatisfiable.code
    assert "3 disjoint paths" in why.reason
    assert "and 2 exist" in why.reason
    assert not refusals(world)
    assert residue(world) == []


def test_a_child_of_an_earlier_release_counts_as_one_path() -> None:
    world = through(*FROM_ONE_BORDER)
    contract = world.subscribe("c2/d", VOLTAGE, redundancy=2, redundancy_worst=1)
    world.settle()
    assert len(granted(world, contract).paths) == 1
    assert "and 1 exist" in granted(world, contract).degraded[0]
    assert not refusals(world)


def test_other_borders_come_before_a_shared_one() -> None:
    world = through(*FROM_ONE_BORDER, ("c1/b1", "c2/b1"), ways=2)
    contract = world.subscribe("c2/d", VOLTAGE, redundancy=2)
    world.settle()
    assert granted(world, contract).is_node_disjoint


def test_a_child_that_has_fewer_paths_than_it_reported_is_planned_round_once() -> None:
    world = through(*FROM_ONE_BORDER, ways=4)
    world.clouds["c1"].ways_most = 2
    contract = world.subscribe("c2/d", VOLTAGE, redundancy=4, redundancy_worst=3)
    world.settle()
    assert "and 2 exist" in world.clouds["c2"].refused[contract].refused.reason
    parts = [(word.entries, word.exits) for word in asked(world) if word.exits]
    assert len(set(parts)) == len(parts)
    assert residue(world) == []


def test_a_refusal_counts_the_paths_that_the_children_have() -> None:
    world = through(*FROM_ONE_BORDER, ("c1/b0", "c2/b3"), ways=4)
    world.clouds["c1"].ways_most = 1
    contract = world.subscribe("c2/d", VOLTAGE, redundancy=4)
    world.settle()
    assert "and 1 exist" in world.clouds["c2"].refused[contract].refused.reason
    assert residue(world) == []


def test_a_lowered_contract_says_how_many_paths_the_children_have() -> None:
    world = through(*FROM_ONE_BORDER, ways=4)
    world.clouds["c1"].ways_most = 2
    contract = world.subscribe("c2/d", VOLTAGE, redundancy=3, redundancy_worst=1)
    world.settle()
    assert len(granted(world, contract).paths) == 2
    (text,) = granted(world, contract).degraded
    assert "3 disjoint paths" in text
    assert "and 2 exist" in text


def test_an_edge_that_is_a_border_may_be_shared_by_node_disjoint_paths() -> None:
    world = through(("c1/b0", "c2/b0"), ("c1/b1", "c2/b0"), ways=4)
    world.clouds["c2"].edges = ("c2/b0",)
    contract = world.subscribe("c2/d", VOLTAGE, redundancy=2)
    world.settle()
    steps = [word for word in asked(world) if word.entries]
    assert len(steps) == 1
    assert len(granted(world, contract).paths) == 2


def test_a_cloud_is_crossed_twice_through_one_border_router() -> None:
    ends = (
        *(("c1/b0", "c2/b0"), ("c1/b1", "c2/b0")),
        *(("c2/b0", "c3/b0"), ("c2/b0", "c3/b1")),
    )
    world = through(*ends, ways=1)
    contract = world.subscribe("c3/d", VOLTAGE, redundancy=2)
    world.settle()
    assert len(granted(world, contract).paths) == 2
    assert not granted(world, contract).is_node_disjoint


def test_a_request_that_is_planned_anew_while_paths_are_counted_keeps_its_worst() -> None:
    world = through(*FROM_ONE_BORDER, ways=4)
    world.clouds["c1"].ways_most = 2
    contract = world.subscribe("c2/d", VOLTAGE, redundancy=3)
    coordinator = world.brokers["root"].machine.parts.coordinator
    while not any(one.known.is_counting for one in coordinator.open_transactions()):
        assert world.step()
    coordinator.park_all()
    world._tell("root", TimerFired(PARKED_TIMER))
    world.rest()
    assert contract not in world.clouds["c2"].granted
    assert "and 2 exist" in world.clouds["c2"].refused[contract].refused.reason
