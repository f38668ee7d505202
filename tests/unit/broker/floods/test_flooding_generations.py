"""Generations of a parent's messages on floods: no number is used twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.tree.tree_operations import encode
from gridstat.model.flooding import FloodTerm
from gridstat.net.command.machine import Received
from gridstat.net.command.operator_messages import RemoveFlooding, SetFlooding
from gridstat.net.command.router_messages import FloodOrder
from gridstat.net.command.tree_messages import CommitFlooding, FloodedVariable, ReserveFlooding
from tests.unit.broker.floods.test_flooding_faults import FLOOD, middle
from tests.unit.broker.floods.test_tree_flooding import (
    VOLTAGE,
    flood,
    floods,
    publish,
    six_clouds,
    stop,
)

if TYPE_CHECKING:
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.messages import Message
    from tests.unit.broker.tree.family import Family

OTHER = "a/pmu2/current"


def restart_compacted(family: Family, broker: str) -> None:
    """Restart a broker with the shortest journal of its state."""
    node = family.brokers[broker]
    node.journal[:] = [encode(operation) for operation in node.broker.state.operations()]
    family.kill(broker)
    family.settle()


def test_after_a_compacted_restart_no_generation_is_used_again() -> None:
    family = six_clouds({("b/0", "b/1"): 2_000})  # 60 events a second take 4,080.
    for name in (VOLTAGE, OTHER):
        publish(family, name)
    flood(family, "p", every=10)
    flood(family, "root", every=10)
    stop(family, "root")
    restart_compacted(family, "root")
    other = SetFlooding(request_id=1, name=OTHER, modes=(5,), every=1_000)
    assert family.operate("root", other).refused is None
    refused = flood(family, "root").refused
    assert refused is not None
    assert refused.bottleneck == "channel b/0→b/1"
    assert floods(family) == dict.fromkeys("abc", (FloodOrder(level=1, every=10),))


def test_generations_grow_over_compacted_restarts() -> None:
    family = middle()
    seen = [0]
    for _ in range(3):
        assert family.operate("root", FLOOD).refused is None
        seen.append(family.brokers["p"].broker.parts.flooding.floods[VOLTAGE].generation)
        family.operate("root", RemoveFlooding(request_id=2, name=VOLTAGE))
        restart_compacted(family, "root")
    assert seen == sorted(set(seen))


def say(family: Family, word: Message) -> None:
    """The root says this to p."""
    family.brokers["p"].tell(Received("broker/root", word))
    family.settle()


def variable_of(family: Family) -> StatusVariable:
    return family.leaves["a"].broker.registry.publications[VOLTAGE].variable


def test_the_same_generation_with_other_terms_is_reserved_anew() -> None:
    family = middle()
    held = family.brokers["p"].broker.parts.flooding.floods
    term = family.brokers["root"].broker.state.term
    for every in (10, 1):
        terms = {0: FloodTerm(0, every)}
        wanted = FloodedVariable(variable=variable_of(family), generation=1, terms=terms)
        say(family, ReserveFlooding(term=term, flooded=wanted))
        assert held[VOLTAGE].reserved == terms
        for leaf in family.leaves.values():
            assert leaf.broker.floods.variables[VOLTAGE].reserved == terms


def test_what_a_parent_no_longer_names_has_no_generation_left() -> None:
    """Or the parent's next one might be taken for it."""
    family = middle()
    assert family.operate("p", SetFlooding(request_id=1, name=VOLTAGE, every=10)).refused is None
    assert family.operate("root", FLOOD).refused is None
    term = family.brokers["root"].broker.state.term
    say(family, CommitFlooding(term=term, flooded=(), is_whole=True))
    held = family.brokers["p"].broker.parts.flooding.floods[VOLTAGE]
    assert (held.above, held.generation) == ({}, 0)
    assert held.number
    assert floods(family) == dict.fromkeys("ab", (FloodOrder(level=1, every=10),))
