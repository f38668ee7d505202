"""Children and channels that come and go at run time, and what operators are shown."""

from __future__ import annotations

import pytest

from gridstat.model.errors import LayoutError, StillInUse
from gridstat.net.command.operator_messages import (
    AddChannel,
    AddChild,
    Explain,
    RemoveChannel,
    RemoveChild,
    Survey,
)
from tests.unit.broker.tree.cloud_stand_in import CloudStandIn
from tests.unit.broker.tree.tree_world import both_ways, channel, variable
from tests.unit.broker.tree.worlds import VOLTAGE, deep_tree, inconsistencies, two_clouds


def code(answer: object) -> int:
    refused = getattr(answer, "refused", None)
    return 0 if refused is None else refused.code


@pytest.mark.feature("S0-128")
def test_channels_and_children_come_and_go_but_not_while_contracts_use_them() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE, redundancy=2)
    world.settle()
    remove = RemoveChannel(request_id=0, from_router="c1/b0", to_router="c2/b0")
    assert code(world.operate("root", remove)) == StillInUse.code
    assert code(world.operate("root", RemoveChild(request_id=0, name="c1"))) == StillInUse.code
    world.end(contract)
    world.rest()
    for one, other in (("c1", "c2"), ("c2", "c1")):
        for at in (0, 1):
            gone = RemoveChannel(
                request_id=0, from_router=f"{one}/b{at}", to_router=f"{other}/b{at}"
            )
            assert code(world.operate("root", gone)) == 0
    assert world.clouds["c1"].open_channels == {}
    assert code(world.operate("root", RemoveChild(request_id=0, name="c2"))) == 0
    assert any("not among the children" in why for _, why in world.closed)
    assert code(world.operate("root", AddChild(request_id=0, name="c3"))) == 0
    world.clouds["c3"] = CloudStandIn("c3", "root")
    world.clouds["c3"].variables["c3/pmu/v"] = variable("c3/pmu/v", 9)
    world.parents["c3"] = "root"
    world.settle()
    added = AddChannel(request_id=0, channel=channel("c3/b0", "c1/b7"))
    assert code(world.operate("root", added)) == 0
    assert code(world.operate("root", added)) == 0, "a repeated command is answered as the first"
    world.rest()
    world.subscribe("c1/d", "c3/pmu/v", 8)
    world.settle()
    assert "c1#8" in world.clouds["c1"].granted
    world.kill("root")
    world.rest()
    assert inconsistencies(world) == []
    assert [
        child["name"] for child in world.operate("root", Survey(request_id=0)).facts["children"]
    ] == ["c1", "c3"]


def test_a_cloud_that_was_removed_below_a_broker_may_join_below_another() -> None:
    world = deep_tree()
    for ways in (both_ways("c5/e0", "c3/e0"), both_ways("c5/e1", "c4/e1")):
        for way in ways:
            remove = RemoveChannel(0, way.from_router, way.to_router)
            assert code(world.operate("east", remove)) == 0
    for way in both_ways("c2/r0", "c5/r0"):
        assert code(world.operate("root", RemoveChannel(0, way.from_router, way.to_router))) == 0
    root = world.brokers["root"].machine.state.families
    assert root.child_of("c5") == "east"
    assert code(world.operate("east", RemoveChild(request_id=0, name="c5"))) == 0
    world.cut.add("c5")
    world.disconnect("c5")
    world.settle()
    assert root.child_of("c5") is None
    assert code(world.operate("west", AddChild(request_id=0, name="c5"))) == 0
    world.clouds["c5"] = CloudStandIn("c5", "west")
    world.parents["c5"] = "west"
    world.cut.clear()
    world.rest()
    assert root.child_of("c5") == "west"
    assert inconsistencies(world) == []


def test_a_channel_inside_one_child_belongs_to_that_child() -> None:
    world = deep_tree()
    added = AddChannel(request_id=0, channel=channel("c3/x", "c4/x"))
    answer = world.operate("east", added)
    assert code(answer) == LayoutError.code
    assert answer.refused is not None
    assert answer.refused.hint == "add it to mid"


def test_an_explanation_shows_every_piece_and_whose_it_is() -> None:
    world = deep_tree()
    contract = world.subscribe("c4/d", "c1/pmu/v")
    world.settle()
    (found,) = world.operate("root", Explain(request_id=0, name=contract)).facts["contracts"]
    pieces = [piece["owner"] for piece in found["paths"][0]["pieces"]]
    assert pieces[0] == "c1"
    assert pieces[-1] == "c4"
    assert "root" in pieces
    by_name = world.operate("root", Explain(request_id=0, name="c1/pmu/v")).facts["contracts"]
    assert [one["contract"] for one in by_name] == [contract]
