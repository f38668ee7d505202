"""Flooding while journals are slow, sessions break and brokers move: whole, or not there (A12)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gridstat.model.errors import ChannelFull, DeadlinePassed, LinkDown, StorageFailed
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.machine import Persist, PersistFailed, Received, TimerFired
from gridstat.net.command.operator_messages import OperatorAnswer, RemoveFlooding, SetFlooding
from gridstat.net.command.tree_messages import FloodingReserved, TreeJoined
from tests.unit.broker.tree.family import Family

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gridstat.net.command.machine import Instruction
    from tests.unit.broker.tree.family import QosNode

VOLTAGE = "a/pmu/voltage"
FLOOD = SetFlooding(request_id=1, name=VOLTAGE)
BOTH = {"a", "b"}


def two_clouds(
    parents: Mapping[str, str], *, bandwidths: Mapping[tuple[str, str], int] | None = None
) -> Family:
    """Clouds a and b with a channel each way between them, owned by the broker above both."""
    ways = {cloud: [(f"{cloud}/0", f"{cloud}/1"), (f"{cloud}/1", f"{cloud}/0")] for cloud in BOTH}
    between = {parents["a"]: [("a/0", "b/0"), ("b/0", "a/0")]}
    family = Family(parents, ways, between, bandwidths=bandwidths).start()
    family.leaves["a"].attach("a/pmu", "a/0", data_port=0)
    family.leaves["a"].publish(VOLTAGE, "a/0")
    family.settle()
    return family


def middle() -> Family:
    """Broker p is above both clouds, and the root above p."""
    return two_clouds({**dict.fromkeys("ab", "p"), "p": "root"})


@pytest.fixture
def pair() -> Family:
    return two_clouds(dict.fromkeys("ab", "root"))


class SlowDisk:
    """Disk whose writes wait until they are released, or fail."""

    def __init__(self, node: QosNode, monkeypatch: pytest.MonkeyPatch) -> None:
        self._node = node
        self._carry_out = node.carry_out
        self.waiting: list[Persist] = []
        monkeypatch.setattr(node, "carry_out", self._hold)

    def _hold(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Persist):
                self.waiting.append(instruction)
            else:
                self._carry_out([instruction])

    def write(self) -> None:
        while self.waiting:
            self._carry_out([self.waiting.pop(0)])

    def fail(self) -> None:
        while self.waiting:
            self._node.tell(PersistFailed(self.waiting.pop(0).token, "no space left"))


def flooding_clouds(family: Family) -> set[str]:
    number = family.leaves["a"].broker.registry.publications[VOLTAGE].variable.variable_id
    return {
        cloud
        for cloud, leaf in family.leaves.items()
        for router in leaf.routers.values()
        if (order := router.table.variables.get(number)) and order.floods
    }


def answer_of(family: Family, broker: str = "root") -> OperatorAnswer:
    (answer,) = family.answers(broker)
    return answer


# While the decision is being written.


def test_a_timer_that_fires_while_the_decision_is_written_does_not_refuse_it(
    pair: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = pair.brokers["root"]
    disk = SlowDisk(root, monkeypatch)
    pair.ask("root", FLOOD)
    pair.settle()
    assert disk.waiting
    assert not [name for name in root.timers if name.startswith("flood/")]
    root.tell(TimerFired(f"flood/{VOLTAGE}"))  # It was on its way when it was cancelled.
    assert pair.answers("root") == []
    disk.write()
    pair.settle()
    assert answer_of(pair).refused is None
    assert flooding_clouds(pair) == BOTH


@pytest.mark.parametrize("is_full", [False, True])
def test_a_child_that_reserves_twice_has_the_decision_written_once(
    pair: Family, monkeypatch: pytest.MonkeyPatch, *, is_full: bool
) -> None:
    root = pair.brokers["root"]
    disk = SlowDisk(root, monkeypatch)
    pair.ask("root", FLOOD)
    pair.settle()
    (number,) = {held.number for held in root.broker.parts.flooding.floods.values()}
    term = pair.leaves["b"].broker.registry.term
    again = FloodingReserved(term=term, name=VOLTAGE, generation=number)
    root.tell(Received("broker/b", again))
    assert len(disk.waiting) == 1
    if is_full:
        disk.fail()
    disk.write()
    pair.settle()
    assert (answer_of(pair).refused is not None) == is_full
    assert flooding_clouds(pair) == (set() if is_full else BOTH)


@pytest.mark.parametrize("is_full", [False, True])
def test_a_child_that_joins_while_the_decision_is_written_hears_of_it_only_afterwards(
    pair: Family, monkeypatch: pytest.MonkeyPatch, *, is_full: bool
) -> None:
    disk = SlowDisk(pair.brokers["root"], monkeypatch)
    pair.ask("root", FLOOD)
    pair.settle()
    pair.disconnect("b")
    pair.connect("b")
    pair.settle()
    assert flooding_clouds(pair) == set()
    assert pair.leaves["b"].broker.floods.variables[VOLTAGE].reserved
    if is_full:
        disk.fail()
    disk.write()
    pair.settle()
    assert (answer_of(pair).refused is not None) == is_full
    assert flooding_clouds(pair) == (set() if is_full else BOTH)
    assert is_full == (not pair.leaves["b"].broker.floods.variables)


def test_a_child_that_joins_while_a_stop_is_written_floods_on_until_it_counts(
    pair: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pair.operate("root", FLOOD).refused is None
    disk = SlowDisk(pair.brokers["root"], monkeypatch)
    pair.ask("root", RemoveFlooding(request_id=2, name=VOLTAGE))
    pair.disconnect("b")
    pair.connect("b")
    pair.settle()
    disk.fail()
    pair.settle()
    assert pair.answers("root")[-1].refused is not None
    assert flooding_clouds(pair) == BOTH


def test_a_stop_that_a_middle_broker_cannot_write_is_heard_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    family = middle()
    assert family.operate("root", FLOOD).refused is None
    with monkeypatch.context() as patch:
        disk = SlowDisk(family.brokers["p"], patch)
        family.ask("root", RemoveFlooding(request_id=2, name=VOLTAGE))
        family.settle()
        disk.fail()
    (closed,) = family.brokers["p"].closed
    assert (closed.peer, closed.code) == ("broker/root", StorageFailed.code)
    assert flooding_clouds(family) == BOTH
    family.disconnect("p")
    family.connect("p")
    family.settle()
    assert flooding_clouds(family) == set()


# While children are asked.


def test_a_child_that_is_away_is_named_at_once(pair: Family) -> None:
    """Check that the look-up of the variable's publisher does not wait either."""
    pair.disconnect("a")
    pair.ask("root", FLOOD)
    refused = answer_of(pair).refused
    assert refused is not None
    assert (refused.code, refused.reason) == (LinkDown.code, "a below root cannot be reached")


def test_a_child_that_falls_silent_is_named_when_time_has_run_out(pair: Family) -> None:
    pair.ask("root", FLOOD)
    floods = pair.leaves["b"].broker.floods.variables
    while VOLTAGE not in floods and pair.step():
        pass
    pair.disconnect("a")
    pair.settle()
    pair.pass_time(60 * NS_PER_S)
    refused = answer_of(pair).refused
    assert refused is not None
    assert (refused.code, refused.reason) == (DeadlinePassed.code, "a did not answer")
    assert VOLTAGE not in floods


def test_a_child_that_joins_again_before_the_decision_reserves_again(pair: Family) -> None:
    pair.ask("root", FLOOD)
    floods = pair.leaves["b"].broker.floods.variables
    while VOLTAGE not in floods and pair.step():
        pass
    pair.disconnect("a")
    pair.settle()
    assert pair.answers("root") == []
    pair.disconnect("b")
    pair.connect("b")
    pair.settle()
    assert floods[VOLTAGE].reserved
    assert flooding_clouds(pair) == set()
    pair.connect("a")
    pair.settle()
    assert answer_of(pair).refused is None
    assert flooding_clouds(pair) == BOTH


def until_reserved(family: Family) -> None:
    """Run until p holds the root's reservation; p's answer never arrives."""
    floods = family.brokers["p"].broker.parts.flooding.floods
    for _ in range(1_000):
        if VOLTAGE in floods and floods[VOLTAGE].reserved_generation:
            return
        assert family.step()


@pytest.mark.parametrize("has_flooded", [False, True])
def test_what_a_parent_reserved_and_no_longer_knows_is_given_back(*, has_flooded: bool) -> None:
    family = middle()
    if has_flooded:
        assert family.operate("root", FLOOD).refused is None
    family.ask("root", SetFlooding(request_id=2, name=VOLTAGE, modes=(2,), every=2))
    until_reserved(family)
    family.kill("root")
    family.settle()
    held = family.brokers["p"].broker.parts.flooding.floods.get(VOLTAGE)
    assert (held is not None) == has_flooded
    assert held is None or not held.reserved_generation
    for leaf in family.leaves.values():
        assert not any(each.reserved for each in leaf.broker.floods.variables.values())
    assert family.operate("p", FLOOD).refused is None


def test_what_is_only_being_reserved_when_the_parent_forgets_it_is_given_back() -> None:
    family = middle()
    family.ask("root", FLOOD)
    floods = family.leaves["b"].broker.floods.variables
    while VOLTAGE not in floods and family.step():
        pass
    family.disconnect("a")
    family.kill("root")
    family.settle()
    family.connect("a")
    family.settle()
    assert VOLTAGE not in family.brokers["p"].broker.parts.flooding.floods
    assert VOLTAGE not in floods


def test_room_is_asked_for_what_an_operator_wants_behind_its_parents_word() -> None:
    """60 events a second take 4,080 bytes/s, every tenth of them 408."""
    parents = {**dict.fromkeys("ab", "p"), "p": "root"}
    family = two_clouds(parents, bandwidths={("a/0", "b/0"): 4_000})
    every_tenth = SetFlooding(request_id=1, name=VOLTAGE, every=10)
    assert family.operate("root", every_tenth).refused is None
    refused = family.operate("p", FLOOD).refused
    assert refused is not None
    assert refused.code == ChannelFull.code
    assert refused.bottleneck == "channel a/0→b/0"
    assert not family.brokers["p"].broker.parts.flooding.floods[VOLTAGE].own
    assert family.operate("p", every_tenth).refused is None
    assert family.operate("p", RemoveFlooding(request_id=3, name=VOLTAGE)).refused is None


# While brokers move.


def levels(family: Family) -> set[int]:
    """Return the top levels of floods in routers, and the levels of channels between clouds."""
    found = set()
    for leaf in family.leaves.values():
        for router in leaf.routers.values():
            for order in router.table.variables.values():
                found |= {flood.level for flood in order.floods}
            channels = router.table.channels.values()
            found |= {each.level for each in channels if each.channel_id >> 31}
    return found


def move(family: Family) -> None:
    """The root has found a parent of its own, and says to p what that means."""
    term = family.brokers["root"].broker.state.term
    joined = TreeJoined(term=term, depth=2, above=("top", "root"), prefixes=(0, 255))
    family.brokers["p"].tell(Received("broker/root", joined))


def test_what_floods_a_brokers_scope_moves_with_the_broker() -> None:
    family = middle()
    assert family.operate("p", FLOOD).refused is None
    assert levels(family) == {1}
    move(family)
    family.settle()
    assert levels(family) == {2}


def test_a_flood_that_is_being_asked_while_its_broker_moves_has_the_new_depth() -> None:
    family = middle()
    family.ask("p", FLOOD)
    floods = family.leaves["b"].broker.floods.variables
    while VOLTAGE not in floods and family.step():
        pass
    move(family)
    family.settle()
    assert answer_of(family, "p").refused is None
    assert flooding_clouds(family) == BOTH
    assert levels(family) == {2}


def test_a_child_that_was_away_when_a_flood_ended_confirms_it_as_soon_as_it_is_back(
    pair: Family,
) -> None:
    assert pair.operate("root", FLOOD).refused is None
    pair.disconnect("b")
    pair.ask("root", RemoveFlooding(request_id=2, name=VOLTAGE))
    pair.settle()
    told = len(pair.answers("root"))
    pair.connect("b")
    pair.settle()
    (answer,) = pair.answers("root")[told:]
    assert answer.refused is None
    assert not answer.facts.get("unconfirmed")
    assert flooding_clouds(pair) == set()


def test_a_flood_overridden_in_all_modes_is_given_up_if_it_has_no_room_any_more() -> None:
    """End the root's flood, when p's own, overridden until then, has no room any more."""
    family = middle()
    every_tenth = SetFlooding(request_id=1, name=VOLTAGE, every=10)
    in_one_mode = SetFlooding(request_id=1, name=VOLTAGE, modes=(2,))
    assert family.operate("root", every_tenth).refused is None
    assert family.operate("p", in_one_mode).refused is None
    resources = family.leaves["b"].broker.reservations.resources
    for carriage in list(resources.channels.values()):
        assert carriage.channel is not None
        carriage.replace_channel(replace(carriage.channel, bandwidth_bytes_per_s=1_000))
    assert family.operate("root", RemoveFlooding(request_id=2, name=VOLTAGE)).refused is None
    assert "flooding_given_up" in {note.word for note in family.brokers["p"].notes}
    assert flooding_clouds(family) == set()
