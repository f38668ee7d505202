"""Height that a child reports: it determines how long its parent alone waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from gridstat.broker.records.operation import Applied
from gridstat.broker.tree.children import Children
from gridstat.broker.tree.deadlines import Deadlines
from gridstat.broker.tree.tree_operations import ChildReported
from gridstat.model.errors import DeadlinePassed
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.messages import Message
from gridstat.net.command.segment_messages import Commit, Lookup, Reserve
from gridstat.net.command.tree_messages import HEIGHT_MAX, JoinTree
from tests.unit.broker.tree.worlds import VOLTAGE, deep_tree, two_clouds

if TYPE_CHECKING:
    from tests.unit.broker.tree.tree_world import TreeWorld


def stand(world: TreeWorld, cloud: str, height: int) -> None:
    """A cloud says how high it is, as a broker above others would."""
    word = JoinTree(term=1, clouds=(cloud,), height=height)
    world.post(cloud, world.parents[cloud], word)
    world.settle()


@pytest.mark.parametrize("height", [-1, HEIGHT_MAX + 1, 1 << 60])
def test_a_height_that_no_tree_has_is_malformed(height: int) -> None:
    word = JoinTree(term=1, clouds=("c1",), height=height)
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.Decoder(Message).decode(msgspec.msgpack.encode(word))


@pytest.mark.parametrize(("height", "above"), [(-5, 1), (0, 1), (63, 64), (64, 64), (1 << 60, 64)])
def test_a_height_that_an_older_journal_holds_counts_within_the_bound(
    height: int, above: int
) -> None:
    families = Children(["c1"])
    families.apply(ChildReported(name="c1", term=1, clouds=("c1",), height=height), Applied())
    assert families.height == above


def test_a_broker_above_the_highest_of_all_can_still_join_its_parent() -> None:
    world = deep_tree()
    stand(world, "c1", HEIGHT_MAX)
    world.disconnect("west")
    world.settle()
    assert world.brokers["root"].machine.state.families.children["west"].height == HEIGHT_MAX


@pytest.mark.parametrize("word", [Lookup, Reserve, Commit])
def test_a_request_is_late_in_its_own_time_though_an_earlier_one_may_take_longer(
    word: type[Message],
) -> None:
    world = two_clouds()
    stand(world, "c2", HEIGHT_MAX)
    for number in (1, 2):
        contract = world.subscribe("c2/d", VOLTAGE, number)
        while not any(isinstance(said, word) and to == "c1" for _, to, said in world.queue):
            assert world.step()
        world.clouds["c1"].is_silent = True
        world.settle()
        world.clouds["c1"].is_silent = False
        stand(world, "c2", 0)
    world.clouds["c1"].is_silent = True
    world.advance(10 * NS_PER_S)
    receiver = world.clouds["c2"]
    if word is Commit:
        assert set(receiver.granted) == {contract}
        assert receiver.granted[contract].degraded == ("broker c1 has not confirmed yet",)
    else:
        assert set(receiver.refused) == {contract}
        assert receiver.refused[contract].refused.code == DeadlinePassed.code


def test_what_is_due_again_at_once_waits_its_turn() -> None:
    due: Deadlines[int] = Deadlines(two_clouds().brokers["root"].machine._context, "up")
    due.add(0, 1)
    seen = []
    for until_ns, number in due.take_due():
        seen.append(number)
        due.add(until_ns, number)
    assert seen == [1]
    assert due.take_due() == [(0, 1)]
