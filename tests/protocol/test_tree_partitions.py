"""Real brokers that are parted from their parents: both sides go on, and agree once they meet.

The grid of `test_tree.py`. While sessions of one level or of several are cut, every cloud
subscribes, changes, unsubscribes, publishes and unpublishes. The oracle is what was last wanted:
all of it after a short cut, and as far as it was granted after one that outlasts all patience.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from gridstat.model.qos import ModalQos, QosRequest
from gridstat.net.command.endpoint_messages import (
    ChangeSubscription,
    GrantedOutcome,
    Unpublish,
    Unsubscribe,
)
from gridstat.net.command.operator_messages import RemoveFlooding, SetFlooding
from tests.protocol.test_tree import CLOUDS, PARENTS, ask, grid, residue
from tests.protocol.tree_agreement import Contracts, contracts_of, disagreements
from tests.unit.broker.stand_ins import publish, subscribe, variable

if TYPE_CHECKING:
    from gridstat.net.command.endpoint_messages import EndPointCommand, Outcome
    from tests.unit.broker.tree.family import Family

CUTS: Final = [("a",), ("d",), ("west",), ("east",), ("west", "east"), ("a", "d"), ("a", "west")]
SHORT_NS: Final = 1_000_000_000
LONG_NS: Final = 30_000_000_000
"""Time after which no request waits for an answer."""
REST_NS: Final = 30_000_000_000

BEFORE: Final[Contracts] = {
    ("d", "a/pmu/v"): 2,
    ("d", "b/pmu/v"): 1,
    ("a", "d/pmu/v"): 2,
    ("b", "a/pmu/v"): 1,
    ("c", "d/pmu/v"): 2,
    ("c", "b/pmu/v"): 1,
    ("b", "c/pmu/v"): 1,
    ("c", "a/pmu/u"): 1,
    ("b", "d/pmu/u"): 1,
}
"""Number of disjoint ways by cloud and variable."""
CHANGED: Final[Contracts] = {
    ("d", "b/pmu/v"): 2,
    ("a", "d/pmu/v"): 1,
    ("b", "a/pmu/v"): 2,
    ("c", "d/pmu/v"): 1,
}
ENDED: Final = (("c", "b/pmu/v"), ("b", "c/pmu/v"))
BEGUN: Final[Contracts] = {
    ("a", "c/pmu/v"): 1,
    ("a", "b/pmu/v"): 2,
    ("b", "d/pmu/v"): 1,
    ("c", "a/pmu/v"): 1,
    ("d", "c/pmu/v"): 2,
}
UNPUBLISHED: Final = ("a/pmu/u", "d/pmu/u")
PUBLISHED: Final = ("a/pmu/w", "c/pmu/w")
PATTERN: Final = ("d", "*/pmu/w")


@dataclass
class Parted:
    """A tree with its contracts; `numbers` are those of what was granted, by who has what."""

    family: Family
    numbers: dict[tuple[str, str], int]

    def send(self, cloud: str, command: EndPointCommand, end_point: str = "centre") -> int:
        name = f"{cloud}/{end_point}"
        return self.family.leaves[cloud].send(name, f"{cloud}/e", command)


def quality(redundancy: int) -> QosRequest:
    return QosRequest(redundancy=redundancy)


@pytest.fixture
def tree() -> Parted:
    return at_rest()


def at_rest() -> Parted:
    """All contracts that there are before the cut."""
    family = grid()
    for name in UNPUBLISHED:
        family.leaves[name[0]].publish(name, f"{name[0]}/e")
    numbers = {}
    for (cloud, name), redundancy in BEFORE.items():
        (outcome,) = ask(family, cloud, subscribe(name, quality(redundancy)))
        assert isinstance(outcome, GrantedOutcome), outcome
        numbers[cloud, name] = outcome.subscription_id
    ask(family, PATTERN[0], subscribe(PATTERN[1], quality(1)))
    assert contracts_of(family) == BEFORE
    assert disagreements(family) == []
    return Parted(family, numbers)


def change_both_sides(tree: Parted) -> dict[tuple[str, str], int]:
    """Everybody asks for something else; the requests that may be refused, by what they want."""
    asked = {}
    for at, (cloud, name) in enumerate(ENDED):
        tree.send(cloud, Unsubscribe(subscription_ids=(tree.numbers[cloud, name],)))
        tree.send(PUBLISHED[at][0], publish(variable(PUBLISHED[at])), "pmu")
        tree.send(UNPUBLISHED[at][0], Unpublish(names=(UNPUBLISHED[at],)), "pmu")
    for (cloud, name), redundancy in CHANGED.items():
        command = ChangeSubscription(
            subscription_id=tree.numbers[cloud, name], qos=ModalQos({0: quality(redundancy)})
        )
        asked[cloud, name] = tree.send(cloud, command)
    for (cloud, name), redundancy in BEGUN.items():
        asked[cloud, name] = tree.send(cloud, subscribe(name, quality(redundancy)))
    return asked


def last_wanted() -> Contracts:
    """Return the contracts if all is granted; ended ones are gone, a pattern has new variables."""
    wanted = BEFORE | CHANGED | BEGUN | {(PATTERN[0], name): 1 for name in PUBLISHED}
    return {
        (cloud, name): redundancy
        for (cloud, name), redundancy in wanted.items()
        if (cloud, name) not in ENDED and name not in UNPUBLISHED
    }


def is_alone(cut: tuple[str, ...], cloud: str, name: str) -> bool:
    """Return whether the contract's owner has all brokers below it on its side."""
    others = _above(name.partition("/")[0])
    owner = next(broker for broker in _above(cloud) if broker in others)
    return not any(owner in _above(child)[1:] for child in cut)


def _above(name: str) -> list[str]:
    """Return the names from this one up to the root."""
    found = [name]
    while found[-1] in PARENTS:
        found.append(PARENTS[found[-1]])
    return found


def answer_of(tree: Parted, one: tuple[str, str], number: int) -> tuple[Outcome, ...]:
    return tree.family.leaves[one[0]].answers.get((f"{one[0]}/centre", number), ())


def end_all(family: Family) -> None:
    for cloud in CLOUDS:
        ask(family, cloud, Unsubscribe())
    assert residue(family) == []


@pytest.mark.feature("S0-122")
@pytest.mark.parametrize("cut", CUTS, ids="+".join)
def test_changes_on_both_sides_of_a_short_cut_are_all_made_when_it_heals(
    tree: Parted, cut: tuple[str, ...]
) -> None:
    family = tree.family
    family.separate(*cut)
    asked = change_both_sides(tree)
    family.settle()
    family.pass_time(SHORT_NS)
    assert any(not answer_of(tree, one, number) for one, number in asked.items())
    family.heal()
    family.pass_time(REST_NS)
    for one, number in asked.items():
        assert [type(found) for found in answer_of(tree, one, number)] == [GrantedOutcome], one
    assert contracts_of(family) == last_wanted()
    assert disagreements(family) == []
    end_all(family)


@pytest.mark.feature("S0-122")
@pytest.mark.parametrize("cut", CUTS, ids="+".join)
def test_what_was_refused_during_a_long_cut_is_as_it_was_and_the_rest_as_wanted(
    tree: Parted, cut: tuple[str, ...]
) -> None:
    family = tree.family
    family.separate(*cut)
    asked = change_both_sides(tree)
    family.settle()
    family.pass_time(LONG_NS)
    answers = {one: answer_of(tree, one, number) for one, number in asked.items()}
    assert all(answers.values()), "everybody was answered"
    refused = {one for one, (found,) in answers.items() if not isinstance(found, GrantedOutcome)}
    assert refused
    assert not {one for one in BEGUN | CHANGED if is_alone(cut, *one)} & refused
    family.heal()
    family.pass_time(REST_NS)
    wanted = last_wanted()
    for one in refused:
        wanted.pop(one, None)
        wanted |= {one: BEFORE[one]} if one in BEFORE else {}
    assert contracts_of(family) == wanted
    assert disagreements(family) == []
    end_all(family)


@pytest.mark.feature("S0-122")
@pytest.mark.parametrize("cut", CUTS[:4], ids="+".join)
def test_a_cut_in_the_middle_of_what_is_asked_changes_nothing_of_what_comes_of_it(
    cut: tuple[str, ...],
) -> None:
    for words in range(CUTS.index(cut), 120, 12):
        tree = at_rest()
        family = tree.family
        asked = change_both_sides(tree)
        for _ in range(words):
            family.step()
        family.separate(*cut)
        family.settle()
        family.pass_time(SHORT_NS)
        family.heal()
        family.pass_time(REST_NS)
        where = f"cut after {words} words"
        for one, number in asked.items():
            (outcome,) = answer_of(tree, one, number)
            assert isinstance(outcome, GrantedOutcome), f"{where}: {one}: {outcome}"
        assert contracts_of(family) == last_wanted(), where
        assert disagreements(family) == [], where
        end_all(family)


# Floods.


@pytest.mark.feature("S0-122")
@pytest.mark.parametrize("cut", [("a",), ("west",), ("d",), ("a", "west")], ids="+".join)
def test_a_flood_whose_variable_goes_during_a_cut_ends_everywhere_when_it_heals(
    cut: tuple[str, ...],
) -> None:
    """Withdraw the variable during a cut; its cloud reports it once, and brokers ask again."""
    family = grid()
    for broker in ("root", "west"):
        answer = family.operate(broker, SetFlooding(request_id=1, name="a/pmu/v"))
        assert answer.refused is None
    assert floods(family) == {"root", "west", "east", *CLOUDS}
    family.separate(*cut)
    family.leaves["a"].send("a/pmu", "a/e", Unpublish(names=("a/pmu/v",)))
    family.settle()
    family.pass_time(SHORT_NS)
    assert "root" in floods(family) or cut == ("d",)
    family.heal()
    family.pass_time(REST_NS)
    assert floods(family) == set()


@pytest.mark.feature("S0-122")
@pytest.mark.parametrize("cut", [("a",), ("west",), ("east",)], ids="+".join)
def test_a_flood_that_is_ended_during_a_cut_ends_everywhere_when_it_heals(
    cut: tuple[str, ...],
) -> None:
    family = grid()
    assert family.operate("root", SetFlooding(request_id=1, name="a/pmu/v")).refused is None
    family.separate(*cut)
    family.ask("root", RemoveFlooding(request_id=2, name="a/pmu/v"))
    family.settle()
    family.pass_time(REST_NS)
    assert floods(family)
    family.heal()
    family.pass_time(REST_NS)
    assert floods(family) == set()


def floods(family: Family) -> set[str]:
    """The brokers that know of a flood, and the clouds of routers that do."""
    found = {name for name, node in family.brokers.items() if node.broker.parts.flooding.floods}
    for cloud, leaf in family.leaves.items():
        orders = [
            one for router in leaf.routers.values() for one in router.table.variables.values()
        ]
        if leaf.broker.floods.variables or any(order.floods for order in orders):
            found.add(cloud)
    return found
