"""Messages of children on variables that have changed, or that cannot be decoded."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest

from gridstat.model.errors import IntervalNotSatisfiable, LayoutError, TypeMismatch
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType
from gridstat.net.command.segment_messages import AskContract
from tests.unit.broker.tree.worlds import VOLTAGE, residue, two_clouds

if TYPE_CHECKING:
    from tests.unit.broker.tree.tree_world import TreeWorld

FLOAT64 = msgspec.msgpack.encode(BuiltinType.FLOAT64)
ASKED = AskContract(
    term=1,
    contract="c2#1",
    generation=0,
    name=VOLTAGE,
    subscriber="c2/d",
    qos=ModalQos({0: QosRequest()}),
)


def ask(world: TreeWorld, asked: AskContract) -> None:
    """Request a contract as a leaf broker does, with the type that its subscriber expects."""
    world.clouds["c2"].asked[asked.contract] = asked
    world.post("c2", "root", asked)
    world.settle()


def cut_all_ways(world: TreeWorld) -> None:
    """Cut all ways, so that the contract is planned again."""
    for number in world.clouds["c2"].open_channels:
        world.clouds["c2"].tell_channel(number, is_up=False)
    world.say("c2")
    world.rest()


@pytest.mark.parametrize(
    "unreadable",
    [b"\xc1", b"\xff\xff", msgspec.msgpack.encode("float8192"), b"\x91" * 5_000],
)
def test_a_type_that_cannot_be_read_is_refused_and_the_broker_lives(unreadable: bytes) -> None:
    world = two_clouds()
    ask(world, msgspec.structs.replace(ASKED, type_encoded=unreadable))
    assert world.clouds["c2"].refused["c2#1"].refused.code == LayoutError.code
    assert residue(world) == []
    ask(world, msgspec.structs.replace(ASKED, contract="c2#2", type_encoded=FLOAT64))
    assert "c2#2" in world.clouds["c2"].granted


def test_a_contract_whose_variable_is_published_anew_too_slowly_ends() -> None:
    world = two_clouds()
    fast = ModalQos({0: QosRequest(interval=Period(1, 50))})
    ask(world, msgspec.structs.replace(ASKED, qos=fast))
    assert "c2#1" in world.clouds["c2"].granted
    found = world.clouds["c1"].variables[VOLTAGE]
    world.clouds["c1"].variables[VOLTAGE] = replace(found, period=Period(10, 1))
    cut_all_ways(world)
    ended = world.clouds["c2"].ended["c2#1"]
    assert ended.refused is not None
    assert ended.refused.code == IntervalNotSatisfiable.code
    assert residue(world) == []


def test_a_contract_whose_variable_is_published_anew_with_another_type_ends() -> None:
    world = two_clouds()
    ask(world, msgspec.structs.replace(ASKED, type_encoded=FLOAT64))
    assert "c2#1" in world.clouds["c2"].granted
    found = world.clouds["c1"].variables[VOLTAGE]
    world.clouds["c1"].variables[VOLTAGE] = replace(found, value_type=BuiltinType.INT64)
    world.kill("root")
    world.settle()
    cut_all_ways(world)
    ended = world.clouds["c2"].ended["c2#1"]
    assert ended.refused is not None
    assert ended.refused.code == TypeMismatch.code
    assert residue(world) == []
