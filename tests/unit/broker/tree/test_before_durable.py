"""Messages that arrive while their subject is decided, and not yet on the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from gridstat.net.command.machine import Received
from gridstat.net.command.segment_messages import Commit, ContractEnded, EndContract, Release
from gridstat.net.command.tree_messages import AskNumbers, NumbersLeased
from tests.unit.broker.tree.scripted_root import ask, below_scripted_root
from tests.unit.broker.tree.worlds import VOLTAGE, deep_tree, residue, two_clouds

if TYPE_CHECKING:
    from gridstat.net.command.messages import Message
    from tests.unit.broker.tree.tree_world import TreeWorld

Word = TypeVar("Word")


def hear(world: TreeWorld, broker: str, child: str, message: Message) -> None:
    """Deliver a message to the broker now, whatever it has still to write."""
    machine = world.brokers[broker].machine
    world._do(broker, machine.handle(Received(f"broker/{child}", message), world.now_ns))


def said(world: TreeWorld, kind: type[Word]) -> list[Word]:
    return [message for _, _, message in world.sent if isinstance(message, kind)]


def test_a_block_that_is_asked_for_twice_is_told_only_when_it_is_durable() -> None:
    world = two_clouds()
    asked = AskNumbers(term=1, request=1, count=100)
    hear(world, "root", "c1", asked)
    hear(world, "root", "c1", asked)
    assert said(world, NumbersLeased) == []
    world.kill("root")
    world.settle()
    world.clouds["c2"].ask_numbers(1, 100)
    world.say("c2")
    world.settle()
    assert world.clouds["c2"].numbers[1].first == 1
    assert {told.first for told in said(world, NumbersLeased)} == {1}


def test_a_question_that_waits_for_a_lease_and_is_asked_again_has_one_block() -> None:
    world = deep_tree()
    world.clouds["c1"].ask_numbers(1, 10)
    world.say("c1")
    west = world.brokers["west"]
    while not west.writing or not west.machine.state.numbers.free:
        assert world.step()
    hear(world, "west", "c1", AskNumbers(term=1, request=1, count=10))
    world.settle()
    told = [word for word in said(world, NumbersLeased) if word.count == 10]
    assert len({word.first for word in told}) == 1


def test_a_block_whose_write_fails_is_given_once_when_the_disk_has_room_again() -> None:
    world = two_clouds()
    world.fail_writes["root"] = {0}
    asked = AskNumbers(term=1, request=1, count=100)
    hear(world, "root", "c1", asked)
    world.step()
    hear(world, "root", "c1", asked)
    world.rest()
    assert {told.first for told in said(world, NumbersLeased)} == {1}
    assert world.brokers["root"].machine.state.numbers.last == 100


def test_an_end_that_is_told_twice_is_confirmed_only_when_it_is_durable() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE)
    world.settle()
    ending = EndContract(term=1, contract=contract)
    hear(world, "root", "c2", ending)
    hear(world, "root", "c2", ending)
    assert said(world, ContractEnded) == []
    world.settle()
    assert len(said(world, ContractEnded)) == 2
    world.rest()
    assert residue(world) == []


def test_an_end_is_confirmed_though_the_decision_before_it_cannot_be_written() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE)
    root = world.brokers["root"]
    while not len(root.machine.state.holdings):
        assert world.step()
    world.fail_writes["root"] = {0}
    hear(world, "root", "c2", EndContract(term=1, contract=contract))
    world.rest()
    assert [told.contract for told in said(world, ContractEnded)] == [contract]
    assert residue(world) == []


def hear_all(world: TreeWorld) -> None:
    """Deliver all messages in transit, while no disk answers."""
    while world.queue:
        sender, receiver, message = world.queue.popleft()
        world._tell(receiver, Received(f"broker/{sender}", message))


def test_a_child_that_joins_while_a_contract_is_being_decided_does_not_commit_it_before() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE)
    root = world.brokers["root"]
    while not len(root.machine.state.holdings):
        assert world.step()
    assert root.writing, "the decision is not durable"
    world.disconnect("c1")
    world.connect_all()
    hear_all(world)
    assert said(world, Commit) == []
    world.kill("root")
    world.clouds["c2"].asked.clear()
    world.rest()
    assert contract not in world.clouds["c2"].granted
    assert residue(world) == []


def reserved_for_root() -> TreeWorld:
    """West holds a segment for the root, which has not decided."""
    world, _ = below_scripted_root()
    ask(world, "c9#1")
    world.rest()
    return world


def test_a_commit_that_is_said_twice_is_passed_on_only_when_it_is_durable() -> None:
    world = reserved_for_root()
    for _ in range(2):
        hear(world, "west", "root", Commit(term=1, contract="c9#1", generation=0))
    assert said(world, Commit) == []
    world.settle()
    assert {word.contract for word in said(world, Commit)} == {"c9#1"}


def test_a_segment_that_is_released_while_its_commit_is_written_is_not_committed_any_more() -> None:
    world = reserved_for_root()
    world.cut.add("c2")
    world.disconnect("c2")
    hear(world, "west", "root", Commit(term=1, contract="c9#1", generation=0))
    hear(world, "west", "root", Release(term=1, contract="c9#1", generation=0, round=5))
    world.settle()
    world.cut.clear()
    world.rest()
    assert said(world, Commit) == []
    assert not world.brokers["west"].machine.parts.commits.is_waiting(("c9#1", 0))
    assert not len(world.brokers["west"].machine.state.holdings)
