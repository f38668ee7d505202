"""A parent floods a cloud: in two phases, admitted, and its word wins."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest

from gridstat.broker.floods.leaf_flooding_operations import FloodingSet
from gridstat.broker.records.operations import RouterRemoved, encode
from gridstat.model.errors import ChannelFull
from gridstat.model.flooding import FloodTerm
from gridstat.model.identifiers import VariableId
from gridstat.net.command.endpoint_messages import Unpublish
from gridstat.net.command.messages import Message
from gridstat.net.command.operator_messages import ListFlooding
from gridstat.net.command.router_messages import FloodOrder
from gridstat.net.command.tree_messages import (
    CommitFlooding,
    FloodedVariable,
    FloodingCommitted,
    FloodingEnded,
    FloodingRefused,
    FloodingReserved,
    ReleaseFlooding,
    ReserveFlooding,
)
from tests.unit.broker.floods.flooded_cloud import (
    Parent,
    charges,
    cloud_of,
    everywhere,
    flood,
    floods_at,
    operate,
    variable_of,
)
from tests.unit.broker.segments.family import FAR, Family
from tests.unit.broker.stand_ins import PMU, VOLTAGE

if TYPE_CHECKING:
    from tests.unit.broker.conversation import Conversation


@pytest.fixture
def child() -> Conversation:
    return cloud_of(parent="root")


def test_in_each_mode_the_parents_request_wins_and_the_operators_returns_after_it(
    child: Conversation,
) -> None:
    parent = Parent(child, depth=2)
    flood(child, 1, 2, every=2)
    wanted = parent.wants(1, {2: FloodTerm(1), 3: FloodTerm(1, 4)})
    parent.says(ReserveFlooding(term=1, flooded=wanted))
    assert parent.told() == [FloodingReserved(term=1, name=VOLTAGE, generation=1)]
    own = FloodOrder(level=2, modes=0b110, every=2)
    assert floods_at(child) == everywhere(child, own)
    parent.says(CommitFlooding(term=1, flooded=(wanted,)))
    assert parent.told() == [FloodingCommitted(term=1, name=VOLTAGE, generation=1)]
    assert floods_at(child) == everywhere(
        child,
        FloodOrder(level=1, modes=0b100),
        FloodOrder(level=1, modes=0b1000, every=4),
        FloodOrder(level=2, modes=0b10, every=2),
    )
    (listed,) = operate(child, ListFlooding(request_id=3)).facts["floods"]
    assert [(term["mode"], term["asked_by"]) for term in listed["modes"]] == [
        (1, "operator"),
        (2, "parent"),
        (3, "parent"),
    ]
    parent.says(CommitFlooding(term=1, flooded=(parent.wants(2, {}),)))
    assert floods_at(child) == everywhere(child, own)


def test_a_parents_word_for_all_modes_holds_over_what_operators_asked_for_one(
    child: Conversation,
) -> None:
    parent = Parent(child, depth=2)
    flood(child, 2)
    own = charges(child)
    wanted = parent.wants(1, {0: FloodTerm(0, 10)})
    parent.says(CommitFlooding(term=1, flooded=(wanted,)))
    assert floods_at(child) == everywhere(child, FloodOrder(level=0, every=10))
    (listed,) = operate(child, ListFlooding(request_id=3)).facts["floods"]
    (term,) = listed["modes"]
    assert (term["asked_by"], term["overrides_operator"]) == ("parent", True)
    parent.says(CommitFlooding(term=1, flooded=(parent.wants(2, {}),)))
    assert floods_at(child) == everywhere(child, FloodOrder(level=2, modes=0b100))
    assert charges(child) == own


def test_a_parents_reservation_is_charged_and_released_without_a_trace(
    child: Conversation,
) -> None:
    parent = Parent(child)
    before = charges(child)
    wanted = parent.wants(7, {0: FloodTerm(0)})
    parent.says(ReserveFlooding(term=1, flooded=wanted))
    held = charges(child)
    assert held != before
    parent.says(ReserveFlooding(term=1, flooded=wanted))
    assert charges(child) == held
    assert len(parent.told()) == 2
    parent.says(ReleaseFlooding(term=1, name=VOLTAGE, generation=7))
    parent.says(ReleaseFlooding(term=1, name=VOLTAGE, generation=7))
    assert charges(child) == before
    assert child.broker.floods.variables == {}


@pytest.mark.parametrize(
    ("generation", "terms"),
    [
        (1, {0: FloodTerm(0, 0)}),
        (1, {0: FloodTerm(0, 2**32)}),
        (1, {0: FloodTerm(-1)}),
        (1, {0: FloodTerm(256)}),
        (1, {64: FloodTerm(0)}),
        (1, {-1: FloodTerm(0)}),
        (0, {0: FloodTerm(0)}),
    ],
)
def test_what_no_router_could_flood_is_malformed(
    child: Conversation, generation: int, terms: dict[int, FloodTerm]
) -> None:
    wanted = Parent(child).wants(generation, terms)
    decoder = msgspec.msgpack.Decoder(Message)
    for word in (
        ReserveFlooding(term=1, flooded=wanted),
        CommitFlooding(term=1, flooded=(wanted,)),
    ):
        with pytest.raises(msgspec.ValidationError):
            decoder.decode(msgspec.msgpack.encode(word))


@pytest.mark.parametrize("term", [FloodTerm(0), FloodTerm(255, 2**32 - 1)])
def test_what_routers_can_flood_is_read_from_parents_and_from_journals(
    child: Conversation, term: FloodTerm
) -> None:
    wanted = Parent(child).wants(1, {0: term, 63: term})
    word = ReserveFlooding(term=1, flooded=wanted)
    decoder = msgspec.msgpack.Decoder(Message)
    assert decoder.decode(msgspec.msgpack.encode(word)) == word
    row = FloodingSet(variable=wanted.variable, above=wanted.terms, generation=1)
    assert child.broker.decode(encode(row)) == row


def test_a_parent_is_refused_with_the_bottleneck() -> None:
    cloud = cloud_of(bandwidth_bytes_per_s=4_000, parent="root")
    parent = Parent(cloud)
    parent.says(ReserveFlooding(term=1, flooded=parent.wants(1, {0: FloodTerm(0)})))
    (word,) = parent.told()
    assert isinstance(word, FloodingRefused)
    assert (word.refused.code, word.refused.shortfall) == (ChannelFull.code, "120 bytes/s")
    assert cloud.broker.floods.variables == {}


def test_after_joining_nothing_counts_but_what_the_parent_names(child: Conversation) -> None:
    parent = Parent(child)
    flood(child, 5)
    parent.says(ReserveFlooding(term=1, flooded=parent.wants(1, {0: FloodTerm(0)})))
    parent.says(CommitFlooding(term=1, flooded=(), is_whole=True))
    assert floods_at(child) == everywhere(child, FloodOrder(level=1, modes=0b10_0000))
    kept = parent.wants(2, {0: FloodTerm(0)})
    parent.says(CommitFlooding(term=1, flooded=(kept,), is_whole=True))
    parent.says(CommitFlooding(term=1, flooded=(kept,), is_whole=True))
    assert child.broker.floods.variables[VOLTAGE].above == {0: FloodTerm(0)}
    assert child.broker.floods.variables[VOLTAGE].reserved == {}


def test_routers_receive_the_new_scope_level_when_a_parent_places_the_cloud_at_another_depth(
    child: Conversation,
) -> None:
    assert flood(child).refused is None
    assert floods_at(child) == everywhere(child, FloodOrder(level=1))
    Parent(child, depth=3)
    assert floods_at(child) == everywhere(child, FloodOrder(level=3))
    assert child.differing() == []


def test_a_parent_hears_that_a_flooded_variable_is_gone(child: Conversation) -> None:
    parent = Parent(child)
    before = charges(child)
    parent.says(CommitFlooding(term=1, flooded=(parent.wants(1, {0: FloodTerm(0)}),)))
    number = variable_of(child).variable_id
    child.ask(PMU, "c1/e0", Unpublish(names=(VOLTAGE,)))
    assert FloodingEnded(term=1, name=VOLTAGE, variable_id=number) in parent.told()
    assert all(number not in router.table.variables for router in child.routers.values())
    child.publish(VOLTAGE, "c1/e0")
    assert charges(child) == before


@pytest.mark.parametrize("terms", [{}, {0: FloodTerm(0)}])
@pytest.mark.parametrize("is_whole", [False, True])
def test_a_parents_word_about_an_old_publication_leaves_the_flood_of_the_new_one(
    child: Conversation, terms: dict[int, FloodTerm], *, is_whole: bool
) -> None:
    parent = Parent(child)
    parent.says(CommitFlooding(term=1, flooded=(parent.wants(1, {0: FloodTerm(0)}),)))
    old = parent.wants(2, terms)
    child.ask(PMU, "c1/e0", Unpublish(names=(VOLTAGE,)))
    child.publish(VOLTAGE, "c1/e0")
    assert flood(child).refused is None
    flooding, journal = floods_at(child), list(child.journal)
    parent.told()
    parent.says(CommitFlooding(term=1, flooded=(old,), is_whole=is_whole))
    assert FloodingCommitted(term=1, name=VOLTAGE, generation=2) in parent.told()
    assert floods_at(child) == flooding == everywhere(child, FloodOrder(level=1))
    parent.says(ReserveFlooding(term=1, flooded=old))
    assert floods_at(child) == flooding
    assert child.journal == journal


def test_what_was_published_anew_elsewhere_is_reserved_beside_the_old_and_then_takes_its_place(
    child: Conversation,
) -> None:
    parent = Parent(child)
    old = replace(variable_of(child), name="c2/pmu/voltage", variable_id=VariableId(4_711))
    new = replace(old, variable_id=VariableId(4_712))
    was = FloodedVariable(variable=old, generation=1, terms={0: FloodTerm(0)})
    wanted = FloodedVariable(variable=new, generation=2, terms={0: FloodTerm(0)})
    parent.says(CommitFlooding(term=1, flooded=(was,)))
    counting = dict(child.broker.floods.variables)
    parent.told()
    parent.says(ReserveFlooding(term=1, flooded=wanted))
    assert parent.told() == [FloodingReserved(term=1, name=new.name, generation=2)]
    parent.says(ReleaseFlooding(term=1, name=new.name, generation=2))
    assert child.broker.floods.variables == counting
    parent.says(CommitFlooding(term=1, flooded=(wanted,)))
    assert child.broker.floods.variables[new.name].variable == new
    ended = FloodedVariable(variable=old, generation=3)
    parent.says(CommitFlooding(term=1, flooded=(ended,)))
    assert child.broker.floods.variables[new.name].variable == new
    for router in child.routers.values():
        assert router.table.variables[new.variable_id].floods
        assert old.variable_id not in router.table.variables


def test_a_cloud_that_starts_without_a_parent_floods_only_what_is_its_own(
    child: Conversation,
) -> None:
    parent = Parent(child)
    flood(child, 5)
    alone = charges(child)
    wanted = parent.wants(1, {2: FloodTerm(0)})
    parent.says(CommitFlooding(term=1, flooded=(wanted,)))
    parent.says(ReserveFlooding(term=1, flooded=parent.wants(2, {3: FloodTerm(0)})))
    child.settings = replace(child.settings, parent="")
    child.kill_broker()
    child.start()
    child.settle()
    assert floods_at(child) == everywhere(child, FloodOrder(level=1, modes=0b10_0000))
    assert charges(child) == alone
    child.kill_broker()
    found = child.broker.floods.variables[VOLTAGE]
    assert (found.above, found.reserved) == ({}, {})


def test_a_snapshot_keeps_what_floods(child: Conversation) -> None:
    parent = Parent(child)
    parent.says(CommitFlooding(term=1, flooded=(parent.wants(3, {0: FloodTerm(0, 2)}),)))
    flood(child, 4)
    before = child.broker.floods.variables
    child.journal = child.broker.snapshot()
    child.kill_broker()
    assert child.broker.floods.variables == before


def test_the_removal_of_a_border_router_releases_the_claims_of_a_parents_flood() -> None:
    """A journal contains the removal.

    The broker refuses it to operators while channels to other clouds end at the router.
    """
    cloud = Family()
    cloud.start()
    cloud.join()
    removal = encode(RouterRemoved(name="c1/i0"))
    removed_first = [*cloud.journal, removal]
    wanted = FloodedVariable(variable=FAR, generation=1, terms={0: FloodTerm(0)})
    commit = CommitFlooding(term=7, flooded=(wanted,))
    cloud.say(commit)
    assert cloud.broker.reservations.is_loaded("c1/i0")
    cloud.journal.append(removal)
    cloud.kill_broker()
    released = charges(cloud)
    cloud.journal = removed_first
    cloud.kill_broker()
    cloud.start(without="c1/i0")
    cloud.join()
    cloud.say(commit)
    assert released == charges(cloud)
