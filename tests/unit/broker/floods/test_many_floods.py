"""The most floods, whoever requests them, and the most messages of a child about one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.model.errors import QuotaReached
from gridstat.model.flooding import FloodTerm
from gridstat.model.qos import MODES_MAX
from gridstat.net.command.frames import FRAME_BYTES_MAX, frame
from gridstat.net.command.operator_messages import ListFlooding, RemoveFlooding, SetFlooding
from gridstat.net.command.session_messages import MANY_MAX
from gridstat.net.command.tree_messages import (
    CommitFlooding,
    FloodedVariable,
    FloodingCommitted,
    FloodingEnded,
    FloodingReserved,
    ReserveFlooding,
)
from tests.unit.broker.tree.cloud_stand_in import CloudStandIn
from tests.unit.broker.tree.tree_world import TreeWorld, both_ways, variable

if TYPE_CHECKING:
    from gridstat.net.command.endpoint_messages import RefusedOutcome
    from gridstat.net.command.messages import Message

OF_WEST = 600


class FloodedCloud(CloudStandIn):
    """Cloud with room for every flood."""

    def _hear(self, message: Message) -> None:
        match message:
            case ReserveFlooding(flooded=one):
                name, number = one.variable.name, one.generation
                self._say(FloodingReserved(term=self.term, name=name, generation=number))
            case CommitFlooding(flooded=many):
                for one in many:
                    name, number = one.variable.name, one.generation
                    self._say(FloodingCommitted(term=self.term, name=name, generation=number))
            case _:
                super()._hear(message)


def name_of(index: int) -> str:
    return f"c1/v{index}"


def flood(world: TreeWorld, broker: str, index: int) -> RefusedOutcome | None:
    asked = SetFlooding(request_id=0, name=name_of(index), modes=(0,))
    return world.operate(broker, asked).refused


def west_and_root() -> TreeWorld:
    brokers = {
        "root": ("", ("west", "c3"), both_ways("c1/r", "c3/r")),
        "west": ("root", ("c1", "c2"), both_ways("c1/w0", "c2/w0")),
    }
    owners = {"c1": "west", "c2": "west", "c3": "root"}
    world = TreeWorld(brokers, [FloodedCloud(name, owner) for name, owner in owners.items()])
    for index in range(MANY_MAX + 1):
        world.clouds["c1"].variables[name_of(index)] = variable(name_of(index), index + 1, 1)
    world.start()
    world.rest()
    return world


def test_a_parents_flood_beyond_the_limit_is_refused_and_children_still_join() -> None:
    world = west_and_root()
    for index in range(MANY_MAX):
        assert flood(world, "west" if index < OF_WEST else "root", index) is None
    for broker in ("root", "west"):
        no = flood(world, broker, MANY_MAX)
        assert no is not None
        assert no.code == QuotaReached.code
    assert len(world.brokers["west"].machine.parts.flooding.floods) == MANY_MAX
    world.kill("c2")
    world.settle()
    assert world.clouds["c2"].is_joined
    gone = RemoveFlooding(request_id=0, name=name_of(0))
    assert world.operate("west", gone).refused is None
    assert flood(world, "root", MANY_MAX) is None


def test_an_operator_is_told_of_all_floods_in_answers_that_fit_into_frames() -> None:
    world = west_and_root()
    many_modes = tuple(range(1, MODES_MAX // 2))
    for index in range(MANY_MAX):
        asked = SetFlooding(request_id=0, name=name_of(index), modes=many_modes)
        assert world.operate("west", asked).refused is None
    listed: list[str] = []
    after, is_last = "", False
    while not is_last:
        answer = world.operate("west", ListFlooding(request_id=0, after=after))
        assert len(frame(answer)) < FRAME_BYTES_MAX // 2
        listed += [found["name"] for found in answer.facts["floods"]]
        after, is_last = answer.facts["next"], not answer.facts["next"]
    assert listed == sorted(map(name_of, range(MANY_MAX)))


def test_however_often_a_child_says_that_a_flood_is_over_the_parent_hears_it_once() -> None:
    world = west_and_root()
    assert flood(world, "west", 0) is None
    world.clouds["c2"].is_silent = True  # So that the change stays open.
    wanted = FloodedVariable(
        variable=world.clouds["c1"].variables[name_of(0)], generation=1, terms={1: FloodTerm(0)}
    )
    world.post("root", "west", ReserveFlooding(term=1, flooded=wanted))
    world.settle()
    ended = FloodingEnded(term=1, name=name_of(0), variable_id=1)
    for _ in range(100):
        world.post("c1", "west", ended)
    world.settle()
    world.sent.clear()
    world.rest()
    told = [word for _, to, word in world.sent if to == "root" and isinstance(word, FloodingEnded)]
    assert len(told) == 1
    assert name_of(0) not in world.brokers["west"].machine.parts.flooding.floods
