"""Floods during a partition: operators of a separated broker still control their own floods."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gridstat.model.errors import Refused
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.operator_messages import ListFlooding, RemoveFlooding, SetFlooding
from gridstat.net.command.router_messages import FloodOrder
from gridstat.net.command.tree_messages import CommitFlooding
from tests.unit.broker.floods.test_flooding_faults import (
    BOTH,
    FLOOD,
    flooding_clouds,
    middle,
    two_clouds,
    until_reserved,
)
from tests.unit.broker.floods.test_tree_flooding import (
    EVERYWHERE,
    VOLTAGE,
    charges,
    flood,
    floods,
    publish,
    six_clouds,
    stop,
)

if TYPE_CHECKING:
    from tests.unit.broker.tree.family import Family


def cut_off_while_reserving(family: Family) -> None:
    """Separate p while it floods and holds a reservation of the root."""
    assert flood(family, "p", every=2).refused is None
    family.ask("root", SetFlooding(request_id=1, name=VOLTAGE))
    held = family.brokers["p"].broker.parts.flooding.floods
    while not held[VOLTAGE].reserved_generation:
        assert family.step()
    family.disconnect("p")
    family.settle()


@pytest.mark.parametrize("is_given_up", [True, False])
def test_a_broker_that_is_cut_off_while_its_parent_reserves_can_stop_its_own_flood(
    *, is_given_up: bool
) -> None:
    family = six_clouds()
    publish(family)
    before = charges(family)
    cut_off_while_reserving(family)
    if is_given_up:
        family.pass_time(1_000 * NS_PER_S)
    assert stop(family, "p").refused is None
    assert floods(family) == {}
    for cloud in "abc":
        assert family.leaves[cloud].broker.floods.variables[VOLTAGE].reserved
    family.connect("p")
    family.settle()
    if is_given_up:
        assert (floods(family), charges(family)) == ({}, before)
    else:
        assert floods(family) == dict.fromkeys(EVERYWHERE, (FloodOrder(level=0),))
        stop(family, "root")
        assert (floods(family), charges(family)) == ({}, before)


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("is_given_up", [False, True])
def test_what_a_parent_has_reserved_blocks_no_operator_once_that_parent_is_gone(
    *, is_given_up: bool, is_restarted: bool
) -> None:
    family = six_clouds()
    publish(family)
    before = charges(family)
    cut_off_while_reserving(family)
    if is_given_up:
        family.pass_time(1_000 * NS_PER_S)
    if is_restarted:
        family.kill("p")
        family.disconnect("p")
        family.settle()
    assert flood(family, "p", every=3).refused is None
    for cloud in "abc":
        found = family.leaves[cloud].broker.floods.variables[VOLTAGE]
        assert (found.above[0].every, found.reserved) == (3, {})
    family.connect("p")
    family.settle()
    if not is_given_up:
        assert floods(family) == dict.fromkeys(EVERYWHERE, (FloodOrder(level=0),))
    stop(family, "root")
    assert floods(family) == dict.fromkeys("abc", (FloodOrder(level=1, every=3),))
    stop(family, "p")
    assert (floods(family), charges(family)) == ({}, before)


def test_a_parent_that_is_there_and_has_not_decided_yet_is_named() -> None:
    family = middle()
    family.ask("root", FLOOD)
    until_reserved(family)
    family.ask("p", FLOOD)
    (answer,) = family.answers("p")
    assert answer.refused is not None
    assert answer.refused.code == Refused.code
    assert "broker root" in answer.refused.reason
    assert "root" in answer.refused.hint


# While a child is away.


def behind_the_root(family: Family) -> None:
    """The operator of p wants every second slot, and the root all of them."""
    assert family.operate("p", SetFlooding(request_id=1, name=VOLTAGE, every=2)).refused is None
    assert family.operate("root", FLOOD).refused is None


def everys(family: Family) -> dict[str, int]:
    found = {cloud: leaf.broker.floods.variables for cloud, leaf in family.leaves.items()}
    return {cloud: held[VOLTAGE].above[0].every for cloud, held in found.items() if held}


def test_what_an_operator_wants_holds_again_after_its_parents_while_a_child_is_away() -> None:
    family = middle()
    behind_the_root(family)
    family.disconnect("b")
    family.ask("root", RemoveFlooding(request_id=2, name=VOLTAGE))
    family.settle()
    family.pass_time(60 * NS_PER_S)
    assert family.answers("root")[-1].refused is None
    assert everys(family)["a"] == 2
    (listed,) = family.operate("p", ListFlooding(request_id=3)).facts["floods"]
    assert listed["unconfirmed"] == ["b"]
    family.connect("b")
    family.settle()
    assert everys(family) == {"a": 2, "b": 2}
    assert flooding_clouds(family) == BOTH
    (listed,) = family.operate("p", ListFlooding(request_id=3)).facts["floods"]
    assert listed["unconfirmed"] == []
    assert "flooding_given_up" not in {note.word for note in family.brokers["p"].notes}


def test_a_broker_further_down_whose_child_is_away_takes_over_what_was_decided_above_it() -> None:
    family = two_clouds({**dict.fromkeys("ab", "q"), "q": "p", "p": "root"})
    behind_the_root(family)
    family.disconnect("b")
    family.ask("root", RemoveFlooding(request_id=2, name=VOLTAGE))
    family.settle()
    family.pass_time(300 * NS_PER_S)
    family.connect("b")
    family.settle()
    assert everys(family) == {"a": 2, "b": 2}


def narrow(family: Family) -> None:
    """Channels of b have room for every tenth event, and not for every second one."""
    resources = family.leaves["b"].broker.reservations.resources
    for carriage in list(resources.channels.values()):
        assert carriage.channel is not None
        carriage.replace_channel(replace(carriage.channel, bandwidth_bytes_per_s=1_000))


def test_a_child_without_room_for_what_holds_again_ends_what_its_parent_wants_no_more() -> None:
    """b is away when the root's flood ends, and has lost the room for more than it had then."""
    family = middle()
    assert family.operate("root", SetFlooding(request_id=1, name=VOLTAGE, every=10)).refused is None
    assert family.operate("p", SetFlooding(request_id=1, name=VOLTAGE, every=2)).refused is None
    family.disconnect("b")
    family.ask("root", RemoveFlooding(request_id=2, name=VOLTAGE))
    family.settle()
    family.pass_time(60 * NS_PER_S)
    narrow(family)
    family.connect("b")
    family.settle()
    assert family.leaves["b"].broker.floods.variables == {}
    assert everys(family) == {"a": 2}
    (listed,) = family.operate("p", ListFlooding(request_id=3)).facts["floods"]
    assert "is full" in listed["refusing"]["b"]


def test_a_broker_without_room_for_what_holds_again_ends_what_its_parent_wants_no_more() -> None:
    family = two_clouds({**dict.fromkeys("ab", "q"), "q": "p", "p": "root"})
    assert family.operate("root", SetFlooding(request_id=1, name=VOLTAGE, every=10)).refused is None
    assert family.operate("p", SetFlooding(request_id=1, name=VOLTAGE, every=2)).refused is None
    family.disconnect("q")
    family.ask("root", RemoveFlooding(request_id=2, name=VOLTAGE))
    family.settle()
    family.pass_time(300 * NS_PER_S)
    narrow(family)
    family.connect("q")
    family.settle()
    assert everys(family) == {}
    assert family.brokers["q"].broker.parts.flooding.floods == {}
    (listed,) = family.operate("p", ListFlooding(request_id=3)).facts["floods"]
    assert "is full" in listed["refusing"]["q"]


def test_a_flood_that_a_child_has_not_confirmed_can_be_ended_while_the_child_is_away() -> None:
    """A commit that waited for every child would hold up the next change of the variable."""
    family = two_clouds(dict.fromkeys("ab", "root"))
    family.ask("root", FLOOD)
    while not any(
        isinstance(message, CommitFlooding) and receiver == "b"
        for _, receiver, message in family.waiting
    ):
        assert family.step()
    family.separate("b")
    family.settle()
    family.pass_time(60 * NS_PER_S)
    family.ask("root", RemoveFlooding(request_id=FLOOD.request_id + 1, name=VOLTAGE))
    family.settle()
    family.pass_time(60 * NS_PER_S)
    begun, ended = family.answers("root")
    assert begun.facts["unconfirmed"] == ["b"]
    assert ended.refused is None
    assert ended.facts["modes"] == []
    family.heal()
    family.settle()
    assert flooding_clouds(family) == set()
