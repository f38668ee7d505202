"""Quotas of a child: of identifiers, of pending requests above, and of memory."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gridstat.broker.tree.identifier_leases import ASKED_MAX, WAITING_MAX
from gridstat.broker.tree.segment_commits import TEXT_LENGTH_MAX
from gridstat.broker.tree.tree_settings import TreeSettings
from gridstat.model.errors import QuotaReached
from gridstat.net.command.machine import Received
from gridstat.net.command.segment_messages import (
    PATHS_MAX,
    PIECE_ROUTERS_MAX,
    REASON_LENGTH_MAX,
    TROUBLES_MAX,
    Commit,
    ContractRefused,
    HeldSegment,
    PathSegment,
    Reserved,
    SegmentBroken,
    SegmentsHeld,
    SegmentUp,
)
from gridstat.net.command.tree_messages import AbstractLink, AskNumbers, BorderReported
from tests.unit.broker.tree import scripted_root
from tests.unit.broker.tree.tree_world import Process, TreeWorld
from tests.unit.broker.tree.worlds import VOLTAGE, deep_tree, inconsistencies, residue, two_clouds

CHILD_MAX = 1_000
SMALL = TreeSettings(name="", numbers_child_max=CHILD_MAX, numbers_block=100)


def ask(world: TreeWorld, cloud: str, request: int, count: int) -> int:
    """Ask for identifiers and return how many are granted."""
    world.clouds[cloud].ask_numbers(request, count)
    world.say(cloud)
    world.settle()
    return world.clouds[cloud].numbers[request].count


def test_a_child_is_given_its_part_of_all_identifiers_and_leaves_the_rest_to_others() -> None:
    world = two_clouds(SMALL)
    given = [ask(world, "c1", request, 50) for request in range(1, 31)]
    assert given == [50] * 20 + [0] * 10
    assert ask(world, "c2", 1, 50) == 50
    assert "numbers_refused" in {note.word for note in world.brokers["root"].notes}


def test_what_a_child_was_given_is_counted_also_after_a_snapshot() -> None:
    world = two_clouds(SMALL)
    for request in range(1, 21):
        assert ask(world, "c1", request, 50) == 50
    root = world.brokers["root"]
    second = Process(root.settings, root.children, root.channels)
    second.machine.restore(root.machine.snapshot())
    assert second.machine.state.numbers.total("c1") == CHILD_MAX
    assert second.machine.state.numbers.last == CHILD_MAX
    assert second.machine.snapshot() == root.machine.snapshot()


def test_a_question_without_a_number_is_not_taken_for_a_count_of_a_snapshot() -> None:
    world = two_clouds(SMALL)
    world.clouds["c1"].ask_numbers(0, 50)
    world.say("c1")
    world.settle()
    assert world.clouds["c1"].numbers == {}
    assert world.brokers["root"].machine.state.numbers.last == 0


def test_questions_that_wait_for_the_parent_are_few_for_each_child() -> None:
    world = deep_tree(TreeSettings(name="", numbers_block=1))
    world.cut.add("west")
    world.disconnect("west")
    west = world.brokers["west"].machine
    for request in range(1, 101):
        word = AskNumbers(term=1, request=request, count=request)
        world._do("west", west.handle(Received("broker/c1", word), world.now_ns))
        world.settle()
    assert len(west.state.numbers.asked) == ASKED_MAX
    world.cut.discard("west")
    world.rest()
    told = set(world.clouds["c1"].numbers)
    assert told == set(range(1, WAITING_MAX + 1))


def test_a_broker_in_the_middle_passes_up_no_more_questions_than_it_may_have() -> None:
    world = deep_tree(TreeSettings(name="", transactions_max=3))
    world.cut.add("west")
    world.disconnect("west")
    for number in range(1, 6):
        world.subscribe("c1/d", "c4/pmu/v", number)
    world.settle()
    refused = [word for _, _, word in world.sent if isinstance(word, ContractRefused)]
    assert [word.refused.code for word in refused] == [QuotaReached.code] * 2


# Unrequested messages of a child.

FEW = TreeSettings(name="", unknown_child_max=3, transactions_max=3)


def unasked(number: int) -> Reserved:
    return Reserved(term=1, contract=f"z#{number}", generation=0, paths=())


def test_a_child_that_reserves_what_nobody_has_asked_for_is_sent_away() -> None:
    world = two_clouds(FEW)
    world.clouds["c1"].is_silent = True
    for number in range(1, 6):
        world.post("c1", "root", unasked(number))
    world.settle()
    root = world.brokers["root"].machine
    assert [peer for peer, _ in world.closed] == ["broker/c1"]
    assert root.survey()["releases"] == FEW.unknown_child_max
    assert world.clouds["c2"].is_joined


def test_what_was_given_back_makes_room_for_more_that_is_unasked() -> None:
    world = two_clouds(FEW)
    for number in range(1, 20):
        world.post("c1", "root", unasked(number))
        world.settle()
    assert world.closed == []
    assert world.brokers["root"].machine.survey()["releases"] == 0


def held(first: int, count: int) -> SegmentsHeld:
    """A page that is never the last."""
    segments = [
        HeldSegment(contract=f"z#{number}", generation=0, is_committed=True)
        for number in range(first, first + count)
    ]
    return SegmentsHeld(term=1, held=tuple(segments), is_last=False)


def test_a_child_that_tells_of_what_it_holds_without_an_end_is_sent_away() -> None:
    world = two_clouds(FEW)
    world.clouds["c1"].is_silent = True
    world.disconnect("c1")
    world.settle()
    for first in (0, 2, 4, 6):
        world.post("c1", "root", held(first, 2))
    world.settle()
    parts = world.brokers["root"].machine.parts
    assert [peer for peer, _ in world.closed] == ["broker/c1"]
    assert parts.reconciliation._reported == {}
    assert len(parts.releases) == FEW.unknown_child_max


def test_a_child_may_hold_more_than_that_of_what_is_known() -> None:
    world = two_clouds(FEW)
    for number in range(1, 6):
        world.subscribe("c2/d", VOLTAGE, number)
        world.settle()
    world.disconnect("c1")
    world.rest()
    assert world.closed == []
    assert inconsistencies(world) == []


def test_borders_that_nobody_wants_are_not_kept() -> None:
    world = deep_tree()
    for number in range(9):
        told = BorderReported(term=1, router=f"c1/x{number}", is_up=True, host="h", data_port=1)
        world.post("c1", "west", told)
    world.settle()
    kept = world.brokers["west"].machine.parts.borders._reported
    assert set(kept) == {"c1/w0", "c1/w1", "c1/r1", "c2/w0", "c2/w1", "c2/r0"}


def test_endings_that_cannot_be_kept_are_said_again_when_the_parent_is_back() -> None:
    world = deep_tree(FEW)
    contracts = []
    for number in range(1, 6):
        contracts.append(world.subscribe("c1/d", "c4/pmu/v", number))
        world.settle()
    assert set(world.clouds["c1"].granted) == set(contracts)
    world.cut.add("west")
    world.disconnect("west")
    for contract in contracts:
        world.end(contract)
        world.settle()
    parts = world.brokers["west"].machine.parts
    assert len(parts.contracts.endings_above) == FEW.transactions_max
    world.cut.discard("west")
    world.settle()
    assert [peer for peer, _ in world.closed] == ["broker/c1"]
    world.cut.discard("c1")
    world.rest()
    assert set(world.clouds["c1"].ended) == set(contracts)
    assert residue(world) == []


PLACE: dict[str, Any] = {"term": 1, "contract": "c1#1", "generation": 0}


@pytest.mark.parametrize(
    "word",
    [
        SegmentBroken(**PLACE, reason="x" * (REASON_LENGTH_MAX + 1)),
        SegmentBroken(**PLACE, reason="", broken=(1,) * (2 * PATHS_MAX + 1)),
        SegmentUp(**PLACE, degraded=("x",) * (TROUBLES_MAX + 1)),
        SegmentUp(**PLACE, degraded=("x" * (REASON_LENGTH_MAX + 1),)),
        PathSegment(
            owner="", routers=("a",) * (PIECE_ROUTERS_MAX + 1), channel_ids=(), latency_us=0
        ),
        PathSegment(owner="", routers=(), channel_ids=(1,) * (PIECE_ROUTERS_MAX + 1), latency_us=0),
        AbstractLink(from_router="", to_router="", latency_us=0, free_bytes_per_s={64: 1}),
        AbstractLink(from_router="", to_router="", latency_us=0, free_events_per_s={-1: 1}),
    ],
    ids=lambda word: type(word).__name__,
)
def test_a_list_or_a_text_longer_than_any_honest_one_is_malformed(word: msgspec.Struct) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(word), type=type(word))


def test_of_many_troubles_the_parent_hears_a_few_and_their_number() -> None:
    world, _ = scripted_root.below_scripted_root()
    scripted_root.ask(world, "c9#1")
    world.settle()
    for cloud in world.clouds.values():
        cloud.is_silent = True
    world.post("root", "west", Commit(term=1, contract="c9#1", generation=0))
    world.settle()
    for name in ("c1", "c2"):
        up = SegmentUp(
            term=1, contract="c9#1", generation=0, degraded=("x" * 30_000,) * TROUBLES_MAX
        )
        world.post(name, "west", up)
    world.settle()
    (told,) = [word for _, to, word in world.sent if to == "root" and isinstance(word, SegmentUp)]
    assert len(told.degraded) <= TROUBLES_MAX
    assert {len(word) for word in told.degraded[:-1]} == {TEXT_LENGTH_MAX}
