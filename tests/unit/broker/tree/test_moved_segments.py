"""Segments that a child moves: the owner of the contract is notified."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from gridstat.net.command.machine import Received
from gridstat.net.command.segment_messages import ContractGranted
from gridstat.net.command.tree_messages import AskNumbers
from tests.unit.broker.tree.worlds import VOLTAGE, deep_tree, row_of_clouds

if TYPE_CHECKING:
    from gridstat.net.command.messages import Message
    from gridstat.net.command.segment_messages import Reserved, SegmentedPath
    from tests.unit.broker.tree.tree_world import TreeWorld


@pytest.fixture
def world() -> TreeWorld:
    found = row_of_clouds(3)
    assert found.subscribe("c3/d", VOLTAGE, redundancy=2) == "c3#1"
    found.settle()
    return found


def held(world: TreeWorld, cloud: str) -> Reserved:
    """Return the report of a segment after a move."""
    (segment,) = world.clouds[cloud].segments.values()
    return structs.replace(segment.answer, is_moved=True)


def led_over(told: Reserved, router: str) -> Reserved:
    """The same segment, with all of its paths over one router."""
    paths = tuple(
        structs.replace(
            path,
            latency_us=path.latency_us + 5,
            pieces=tuple(
                structs.replace(
                    piece,
                    routers=(piece.routers[0], router, piece.routers[-1]),
                    channel_ids=(7, 8),
                    latency_us=piece.latency_us + 5,
                )
                for piece in path.pieces
            ),
        )
        for path in told.paths
    )
    return structs.replace(told, paths=paths, is_node_disjoint=False)


def with_exit_of(path: SegmentedPath, other: SegmentedPath) -> SegmentedPath:
    (piece,), (leaving,) = path.pieces, other.pieces
    ends = piece.routers[0], leaving.routers[-1]
    return structs.replace(path, exit=other.exit, pieces=(structs.replace(piece, routers=ends),))


def routers(granted: ContractGranted) -> list[list[str]]:
    return [[router for piece in path.pieces for router in piece.routers] for path in granted.paths]


def test_a_contract_whose_paths_come_to_share_a_router_is_told_as_such(world: TreeWorld) -> None:
    before = world.clouds["c3"].granted["c3#1"]
    assert before.is_node_disjoint
    world.post("c2", "root", led_over(held(world, "c2"), "c2/m"))
    world.settle()
    after = world.clouds["c3"].granted["c3#1"]
    assert not after.is_node_disjoint
    assert after.generation == before.generation
    assert all("c2/m" in path for path in routers(after))
    assert [path.latency_us - 5 for path in after.paths] == [
        path.latency_us for path in before.paths
    ]


def test_a_contract_whose_paths_are_disjoint_again_is_told_as_such(world: TreeWorld) -> None:
    before, told = world.clouds["c3"].granted["c3#1"], held(world, "c2")
    for word in (led_over(told, "c2/m"), told):
        world.post("c2", "root", word)
        world.settle()
    assert world.clouds["c3"].granted["c3#1"] == before


def test_paths_are_joined_anew_when_entries_lead_to_other_exits(world: TreeWorld) -> None:
    before, told = world.clouds["c3"].granted["c3#1"], held(world, "c2")
    one, other = told.paths
    crossed = (with_exit_of(one, other), with_exit_of(other, one))
    world.post("c2", "root", structs.replace(told, paths=crossed))
    world.settle()
    after = world.clouds["c3"].granted["c3#1"]
    assert after.is_node_disjoint
    assert [path.pieces[-1] for path in after.paths] == [
        path.pieces[-1] for path in reversed(before.paths)
    ]
    assert [path.pieces[0] for path in after.paths] == [path.pieces[0] for path in before.paths]


def test_a_part_that_does_not_fit_is_not_believed(world: TreeWorld) -> None:
    before, told = world.clouds["c3"].granted["c3#1"], held(world, "c2")
    world.post("c2", "root", structs.replace(told, paths=told.paths[:1]))
    world.settle()
    assert world.clouds["c3"].granted["c3#1"].paths == before.paths


def test_a_child_does_not_lead_what_is_of_another(world: TreeWorld) -> None:
    before = world.clouds["c3"].granted["c3#1"]
    world.post("c2", "root", structs.replace(held(world, "c1"), is_node_disjoint=False))
    world.settle()
    assert world.clouds["c3"].granted["c3#1"] == before


def test_a_subscribers_cloud_that_was_away_hears_of_it_when_it_joins(world: TreeWorld) -> None:
    world.cut.add("c3")
    world.disconnect("c3")
    world.post("c2", "root", led_over(held(world, "c2"), "c2/m"))
    world.settle()
    assert world.clouds["c3"].granted["c3#1"].is_node_disjoint
    world.cut.discard("c3")
    world.settle()
    assert not world.clouds["c3"].granted["c3#1"].is_node_disjoint


def test_brokers_between_pass_it_up_to_the_owner() -> None:
    world = deep_tree()
    contract = world.subscribe("c4/d", "c2/pmu/v")
    world.settle()
    before = world.clouds["c4"].granted[contract]
    assert before.owner == "root"
    world.post("c4", "mid", led_over(held(world, "c4"), "c4/m"))
    world.settle()
    assert any("c4/m" in path for path in routers(world.clouds["c4"].granted[contract]))


def receive(world: TreeWorld, broker: str, child: str, message: Message) -> None:
    """Deliver a message to the broker now, whatever it has still to write."""
    machine = world.brokers[broker].machine
    world._do(broker, machine.handle(Received(f"broker/{child}", message), world.now_ns))


def test_a_moved_segment_is_passed_up_though_the_write_before_it_fails() -> None:
    world = deep_tree()
    contract = world.subscribe("c4/d", "c2/pmu/v")
    world.settle()
    moved = led_over(held(world, "c4"), "c4/m")
    world.fail_writes["mid"] = {0}
    receive(world, "mid", "c4", AskNumbers(term=1, request=1, count=100))
    assert world.brokers["mid"].writing
    receive(world, "mid", "c4", moved)
    world.settle()
    assert any("c4/m" in path for path in routers(world.clouds["c4"].granted[contract]))


def test_the_subscriber_hears_of_a_move_though_the_write_before_it_fails(world: TreeWorld) -> None:
    world.fail_writes["root"] = {0}
    receive(world, "root", "c1", AskNumbers(term=1, request=1, count=100))
    assert world.brokers["root"].writing
    receive(world, "root", "c2", led_over(held(world, "c2"), "c2/m"))
    world.settle()
    assert not world.clouds["c3"].granted["c3#1"].is_node_disjoint


def test_the_subscriber_hears_what_is_broken_though_the_write_before_it_fails(
    world: TreeWorld,
) -> None:
    root = world.brokers["root"].machine
    world.fail_writes["root"] = {0}
    receive(world, "root", "c1", AskNumbers(term=1, request=1, count=100))
    count = len(world.sent)
    root.parts.contracts.send_state("c3#1")
    world.settle()
    assert [type(message) for _, child, message in world.sent[count:] if child == "c3"] == [
        ContractGranted
    ]


def test_how_something_else_was_led_by_the_same_name_is_no_answer(world: TreeWorld) -> None:
    """A child that joins again may still hold what its parent has given up and asks for anew."""
    world.end("c3#1")
    told = held(world, "c2")
    world.settle()
    world.clouds["c2"].is_silent = True
    contract = world.subscribe("c3/d", VOLTAGE, redundancy=1)
    world.settle()
    world.post("c2", "root", structs.replace(told, contract=contract))
    world.settle()
    assert contract not in world.clouds["c3"].granted
    transaction = world.brokers["root"].machine.parts.coordinator.find((contract, 0))
    assert transaction is not None
    assert transaction.waiting == {"c2"}
