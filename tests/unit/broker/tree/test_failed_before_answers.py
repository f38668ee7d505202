"""Contracts with another cloud that change while their answer waits for a router of this one."""

from __future__ import annotations

import pytest

from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.endpoint_messages import ContractChanged, GrantedOutcome
from gridstat.net.command.messages import ChannelStateChanged
from tests.unit.broker.stand_ins import subscribe
from tests.unit.broker.tree.family import Family

FAR, NEAR = "a/pmu/voltage", "b/pmu/current"
BORDER = ("a/0", "b/0")
CENTRE = "b/centre"


@pytest.fixture
def family() -> Family:
    """Clouds a and b; one path leads from the border of b to the subscriber at b/1."""
    ways = {
        "a": [("a/0", "a/1"), ("a/1", "a/0")],
        "b": [("b/0", "b/1"), ("b/1", "b/0"), ("b/2", "b/1"), ("b/1", "b/2")],
    }
    found = Family(dict.fromkeys("ab", "root"), ways, {"root": [BORDER, BORDER[::-1]]})
    found.start()
    for publisher, name, edge in (("a/pmu", FAR, "a/0"), ("b/pmu", NEAR, "b/2")):
        leaf = found.leaves[name[0]]
        leaf.attach(publisher, edge, data_port=0)
        leaf.publish(name, edge)
    found.leaves["b"].attach(CENTRE, "b/1")
    found.settle()
    return found


def fail(family: Family) -> None:
    """Fail the only channel from the border of b to the subscriber."""
    leaf = family.leaves["b"]
    (channel,) = [
        each for each in leaf.channels_given if (each.from_router, each.to_router) == ("b/0", "b/1")
    ]
    state = ChannelStateChanged(channel_id=channel.channel_id, is_up=False, silent_ms=100)
    leaf.hear("b/1", state)
    family.settle()


def last_notice(family: Family) -> GrantedOutcome:
    *_, notice = family.leaves["b"].notices[CENTRE]
    assert isinstance(notice, ContractChanged)
    return notice.granted


def test_a_failure_of_a_contract_elsewhere_before_its_answer_is_reported_after_it(
    family: Family,
) -> None:
    """The answer waits for a silent router of another contract of the same request."""
    leaf = family.leaves["b"]
    leaf.routers["b/2"].is_silent = True
    number = leaf.send(CENTRE, "b/1", subscribe(FAR, NEAR))
    family.settle()
    fail(family)
    assert (CENTRE, number) not in leaf.answers
    leaf.notices.clear()
    leaf.confirm("b/2")
    family.settle()

    far, _ = leaf.answers[CENTRE, number]
    assert isinstance(far, GrantedOutcome)
    notice = last_notice(family)
    assert notice.subscription_id == far.subscription_id
    assert notice.paths_down == ("path 1",)


def test_a_contract_elsewhere_that_works_is_answered_without_a_notice(family: Family) -> None:
    leaf = family.leaves["b"]
    leaf.routers["b/2"].is_silent = True
    number = leaf.send(CENTRE, "b/1", subscribe(FAR, NEAR))
    family.settle()
    leaf.confirm("b/2")
    family.settle()
    family.pass_time(NS_PER_S)

    assert len(leaf.answers[CENTRE, number]) == 2
    assert CENTRE not in leaf.notices


def test_a_repeated_answer_is_followed_by_a_failure_of_a_contract_elsewhere_since(
    family: Family,
) -> None:
    """The answer and the notice were lost with the session of the edge."""
    leaf = family.leaves["b"]
    number = leaf.send(CENTRE, "b/1", subscribe(FAR))
    family.settle()
    fail(family)
    leaf.notices.clear()
    assert leaf.ask(CENTRE, "b/1", subscribe(FAR), request_id=number)

    assert last_notice(family).paths_down == ("path 1",)
