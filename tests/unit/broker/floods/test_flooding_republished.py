"""A variable that is published anew under its old name floods on its own (A12).

A broker that was away may still speak of the old one: that ends and silences nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.endpoint_messages import Unpublish
from gridstat.net.command.machine import Received
from gridstat.net.command.operator_messages import ListFlooding, RemoveFlooding, SetFlooding
from tests.unit.broker.floods.test_flooding_faults import (
    BOTH,
    FLOOD,
    VOLTAGE,
    SlowDisk,
    flooding_clouds,
    middle,
    two_clouds,
)

if TYPE_CHECKING:
    import pytest

    from tests.unit.broker.tree.family import Family

OWN = SetFlooding(request_id=7, name=VOLTAGE)


def publish_anew(family: Family) -> int:
    """Publish a variable again and return its new identifier."""
    leaf = family.leaves["a"]
    leaf.ask("a/pmu", "a/0", Unpublish(names=(VOLTAGE,)))
    family.settle()
    leaf.publish(VOLTAGE, "a/0")
    family.settle()
    return leaf.broker.registry.publications[VOLTAGE].variable.variable_id


def test_a_cloud_that_comes_back_floods_what_was_published_anew_while_its_parent_ends_the_old() -> (
    None
):
    family = two_clouds(dict.fromkeys("ab", "root"))
    assert family.operate("root", FLOOD).refused is None
    leaf = family.leaves["a"]
    family.disconnect("a")
    number = publish_anew(family)
    leaf.tell(Received("operator/a/x", OWN))
    leaf.settle()
    assert leaf.operator_answers[-1].refused is None
    family.connect("a")
    family.settle()
    assert family.brokers["root"].broker.parts.flooding.floods == {}
    found = leaf.broker.floods.variables[VOLTAGE]
    assert (found.variable.variable_id, bool(found.own)) == (number, True)
    assert flooding_clouds(family) == {"a"}


def test_all_clouds_flood_what_their_broker_lists_after_the_root_spoke_of_an_old_publication() -> (
    None
):
    family = middle()
    assert family.operate("root", FLOOD).refused is None
    family.disconnect("p")
    number = publish_anew(family)
    assert family.operate("p", OWN).refused is None
    assert flooding_clouds(family) == BOTH
    family.connect("p")
    family.settle()
    (listed,) = family.operate("p", ListFlooding(request_id=8)).facts["floods"]
    assert listed["variable_id"] == number
    assert flooding_clouds(family) == BOTH
    assert family.brokers["root"].broker.parts.flooding.floods == {}
    assert family.operate("p", RemoveFlooding(request_id=9, name=VOLTAGE)).refused is None
    assert flooding_clouds(family) == set()


def long_chain() -> Family:
    """Broker q is above both clouds, p above q, and the root above p."""
    return two_clouds({**dict.fromkeys("ab", "q"), "q": "p", "p": "root"})


def test_a_broker_between_two_others_keeps_what_counts_while_an_old_publication_is_asked_for() -> (
    None
):
    """Flood the new publication at p while it is separated; the root then sends the old one."""
    family = long_chain()
    assert family.operate("root", FLOOD).refused is None
    family.disconnect("p")
    number = publish_anew(family)
    assert family.operate("p", OWN).refused is None
    assert flooding_clouds(family) == BOTH
    family.connect("p")
    family.settle()
    for broker in "pq":
        held = family.brokers[broker].broker.parts.flooding.floods[VOLTAGE]
        assert held.variable.variable_id == number
        assert not held.reserved_generation
    assert flooding_clouds(family) == BOTH
    assert family.brokers["root"].broker.parts.flooding.floods == {}


def test_the_end_of_a_publication_that_could_not_be_written_is_written_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    family = two_clouds(dict.fromkeys("ab", "root"))
    assert family.operate("root", FLOOD).refused is None
    root = family.brokers["root"]
    with monkeypatch.context() as patch:
        disk = SlowDisk(root, patch)
        publish_anew(family)
        disk.fail()
        assert VOLTAGE in root.broker.parts.flooding.floods
    family.pass_time(60 * NS_PER_S)
    family.settle()
    assert root.broker.parts.flooding.floods == {}
    assert family.leaves["b"].broker.floods.variables == {}
    assert family.operate("root", FLOOD).refused is None
    assert flooding_clouds(family) == BOTH
