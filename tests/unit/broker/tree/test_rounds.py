"""Answers that come late: to a question, or to a release, that another has followed since."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from gridstat.broker.tree.tree_operations import Stage
from gridstat.model.errors import ChannelFull
from gridstat.net.command.endpoint_messages import RefusedOutcome
from gridstat.net.command.segment_messages import (
    NotReserved,
    PathSegment,
    Release,
    Released,
    Reserve,
    Reserved,
    SegmentedPath,
    SegmentsHeld,
)
from tests.unit.broker.tree.cloud_stand_in import CloudStandIn
from tests.unit.broker.tree.scripted_root import ask, below_scripted_root, hold_up, let_go
from tests.unit.broker.tree.tree_world import TreeWorld, both_ways, variable
from tests.unit.broker.tree.worlds import VOLTAGE, inconsistencies, residue, two_clouds

if TYPE_CHECKING:
    from gridstat.net.command.messages import Message

FULL = RefusedOutcome(code=ChannelFull.code, reason="full")


def one_channel() -> TreeWorld:
    clouds = [CloudStandIn("c1", "root"), CloudStandIn("c2", "root")]
    clouds[0].variables[VOLTAGE] = variable(VOLTAGE, 1)
    return TreeWorld({"root": ("", ("c1", "c2"), both_ways("c1/a", "c2/a"))}, clouds).start()


def asked(world: TreeWorld, cloud: str) -> Reserve:
    """The question that a cloud was asked last."""
    return [one for _, to, one in world.sent if to == cloud and isinstance(one, Reserve)][-1]


def held(question: Reserve) -> Reserved:
    entry, leaving = (gates[0] if gates else None for gates in (question.entries, question.exits))
    gate = entry or leaving
    assert gate is not None
    piece = PathSegment(owner="c", routers=(gate.router,), channel_ids=(), latency_us=1)
    path = SegmentedPath(
        entry=0 if entry is None else entry.channel_id,
        exit=0 if leaving is None else leaving.channel_id,
        latency_us=1,
        pieces=(piece,),
    )
    return Reserved(
        term=1, contract=question.contract, generation=0, paths=(path,), round=question.round
    )


def no(question: Reserve) -> NotReserved:
    return NotReserved(
        term=1, contract=question.contract, generation=0, refused=FULL, round=question.round
    )


def test_what_a_child_has_refused_is_not_decided_by_its_answers_to_an_earlier_round() -> None:
    world = one_channel()
    contract = world.subscribe("c2/d", VOLTAGE, every_worst=2)
    while not any(isinstance(word, Reserve) for _, _, word in world.queue):
        world.step()
    for cloud in world.clouds.values():
        cloud.is_silent = True
    world.settle()

    def say(cloud: str, word: Message) -> None:
        world.post(cloud, "root", word)
        world.settle()

    world.disconnect("c1")
    world.settle()
    releases = [one for _, to, one in world.sent if to == "c1" and isinstance(one, Release)]
    say("c1", SegmentsHeld(term=1, held=()))
    first = asked(world, "c1")
    say("c2", no(asked(world, "c2")))
    over = Released(term=1, contract=contract, generation=0)
    say("c1", structs.replace(over, round=releases[-1].round))
    assert asked(world, "c1") == first
    say("c1", held(first))
    second_release = [one for _, to, one in world.sent if to == "c1" and isinstance(one, Release)]
    say("c1", structs.replace(over, round=second_release[-1].round))
    second = asked(world, "c1")
    assert second.granted[0].every == 2
    say("c1", held(first))
    say("c2", held(asked(world, "c2")))
    assert not list(world.brokers["root"].machine.state.holdings.all())
    say("c1", no(second))
    assert not list(world.brokers["root"].machine.state.holdings.all())


def test_the_answer_to_another_release_does_not_end_this_one() -> None:
    world = two_clouds()
    root = world.brokers["root"]
    contract = world.subscribe("c2/d", VOLTAGE)
    world.settle()
    world.clouds["c1"].is_silent = True
    world.end(contract)
    world.settle()
    (release,) = [one for _, to, one in world.sent if to == "c1" and isinstance(one, Release)]
    late = Released(term=1, contract=contract, generation=0, round=release.round + 1_000)
    world.post("c1", "root", late)
    world.settle()
    assert [stage for _, stage in root.machine.state.holdings.all()] == [Stage.LEAVING]
    world.post("c1", "root", structs.replace(late, round=release.round))
    world.settle()
    assert not list(root.machine.state.holdings.all())


class Older(CloudStandIn):
    """Cloud of a release that knows of no rounds."""

    def _say(self, message: Message) -> None:
        if isinstance(message, Reserved | NotReserved | Released):
            message = structs.replace(message, round=0)
        super()._say(message)


def test_children_that_know_of_refusedrounds_are_heard_as_before() -> None:
    clouds = [Older("c1", "root", capacity=1), Older("c2", "root")]
    for number, name in enumerate((VOLTAGE, "c1/pmu/w"), start=1):
        clouds[0].variables[name] = variable(name, number)
    world = TreeWorld({"root": ("", ("c1", "c2"), both_ways("c1/a", "c2/a"))}, clouds).start()
    granted = world.subscribe("c2/d", VOLTAGE)
    world.settle()
    refused = world.subscribe("c2/d", "c1/pmu/w", 2)
    world.settle()
    assert set(world.clouds["c2"].granted) == {granted}
    assert set(world.clouds["c2"].refused) == {refused}
    world.end(granted)
    world.rest()
    assert residue(world) == []


@pytest.mark.parametrize("when", ["asking its clouds", "reserved"])
def test_a_broker_in_the_middle_answers_the_round_that_it_was_asked_last(when: str) -> None:
    world, root = below_scripted_root()
    ask(world, "c9#1", question=7)
    if when == "reserved":
        world.settle()
    else:
        hold_up(world, "c1")
    ask(world, "c9#1", question=8)
    world.settle()
    let_go(world, "c1")
    world.rest()
    answer = root.heard[-1]
    assert isinstance(answer, Reserved)
    assert answer.round == 8
    for number in (9, 10):
        world.post("root", "west", Release(term=1, contract="c9#1", generation=0, round=number))
    world.rest()
    released = [word for _, to, word in world.sent if to == "root" and isinstance(word, Released)]
    assert released[-1].round == 10
    assert residue(world) == []
    assert inconsistencies(world) == []


def test_a_broker_in_the_middle_refuses_in_the_round_that_it_was_asked() -> None:
    world, _ = below_scripted_root()
    world.clouds["c1"].variables.clear()
    ask(world, "c9#1", question=7)
    world.settle()
    (refused,) = [
        word for _, to, word in world.sent if to == "root" and isinstance(word, NotReserved)
    ]
    assert refused.round == 7
