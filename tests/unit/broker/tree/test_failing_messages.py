"""Messages on which a broker fails: only the session of their sender ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pytest

from gridstat.broker.records.operation import Applied
from gridstat.broker.tree.tree_capability import FromChild
from gridstat.broker.tree.tree_operations import ChildReported
from gridstat.net.command.segment_messages import AskContract, Reserve
from tests.unit.broker.tree.scripted_root import ask, below_scripted_root
from tests.unit.broker.tree.tree_world import variable
from tests.unit.broker.tree.worlds import VOLTAGE, inconsistencies, residue, row_of_clouds

if TYPE_CHECKING:
    from gridstat.net.command.tree_messages import TreeMessageBase
    from tests.unit.broker.tree.tree_world import TreeWorld


ASKED: type[TreeMessageBase] = AskContract
RESERVE: type[TreeMessageBase] = Reserve


class OurFaultError(Exception):
    """Error that no code expects."""


def fail(*_: object) -> NoReturn:
    raise OurFaultError


def failing() -> TreeWorld:
    """Three clouds under a root that may fail."""
    world = row_of_clouds(3)
    world.may_fail = True
    world.clouds["c2"].variables["c2/pmu/w"] = variable("c2/pmu/w", 9)
    return world


def words(world: TreeWorld, broker: str = "root") -> list[str]:
    return [note.word for note in world.brokers[broker].notes]


def test_the_child_is_sent_away_and_the_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    world = failing()
    root = world.brokers["root"].machine
    with monkeypatch.context() as patched:
        patched.setattr(root.parts.coordinator, "reserved", fail)
        failed = world.subscribe("c2/d", VOLTAGE)
        world.settle()
    assert "message_failed" in words(world)
    assert {peer for peer, _ in world.closed} == {"broker/c1", "broker/c2"}
    world.cut.clear()
    world.rest()
    assert failed in world.clouds["c2"].refused or failed in world.clouds["c2"].granted
    other = world.subscribe("c3/d", "c2/pmu/w")
    world.settle()
    assert other in world.clouds["c3"].granted
    for contract in (failed, other):
        world.end(contract)
    world.rest()
    assert residue(world) == []
    assert inconsistencies(world) == []


def test_what_was_decided_in_that_unit_of_work_and_is_not_written_is_undone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = failing()
    root = world.brokers["root"].machine
    before = root.snapshot()

    def half(*_: object) -> None:
        heard = ChildReported(name="c1", term=1, clouds=("c1",), height=7)
        root.state.apply(heard, Applied())
        fail()

    with monkeypatch.context() as patched:
        patched.setitem(root.parts.capabilities.child_messages, ASKED, FromChild(half))
        world.subscribe("c2/d", VOLTAGE)
        world.settle()
    assert "message_failed" in words(world)
    assert root.snapshot() == before


def test_what_cannot_be_written_is_not_kept_either(monkeypatch: pytest.MonkeyPatch) -> None:
    world = failing()
    root = world.brokers["root"].machine
    before = root.snapshot()

    def unwritable(*_: object) -> None:
        heard = ChildReported(name="c1", term=1 << 70, clouds=("c1",))
        root._context.decide([heard], lambda: None, lambda _: None)

    with monkeypatch.context() as patched:
        messages = root.parts.capabilities.child_messages
        patched.setitem(messages, ASKED, FromChild(unwritable))
        world.subscribe("c2/d", VOLTAGE)
        world.settle()
    assert "message_failed" in words(world)
    assert root.snapshot() == before


@pytest.mark.parametrize("where", ["take", "give_back"])
def test_a_broker_with_half_a_charge_ends(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = failing()
    root = world.brokers["root"].machine
    contract = world.subscribe("c2/d", VOLTAGE, redundancy=2)
    for account in root.state.channels.accounts.values():
        monkeypatch.setattr(type(account.carriage), where, fail)
    with pytest.raises(OurFaultError):
        world.settle()
    assert "message_failed" not in words(world)
    assert contract not in world.clouds["c2"].granted


def test_a_broker_with_half_an_operation_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    world = failing()
    root = world.brokers["root"].machine
    monkeypatch.setattr(root.state.holdings, "take", fail)
    world.subscribe("c2/d", VOLTAGE)
    with pytest.raises(OurFaultError):
        world.settle()
    assert "message_failed" not in words(world)


def test_a_failing_message_of_the_parent_ends_the_session_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, root = below_scripted_root()
    world.may_fail = True
    west = world.brokers["west"].machine
    with monkeypatch.context() as patched:
        patched.setitem(west.parts.capabilities.parent_messages, RESERVE, fail)
        ask(world, "c9#1")
        world.settle()
    assert "message_failed" in words(world, "west")
    assert {peer for peer, _ in world.closed} == {"broker/root"}
    assert west._context.joined == {"c1", "c2"}
    world.cut.clear()
    world.settle()
    ask(world, "c9#1")
    world.settle()
    assert [type(word).__name__ for word in root.heard] == ["Reserved"]
