"""What a rule that is taken away ends: all that rests on it alone, each contract judged once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gridstat.broker.access.leaf_access import SWEEP_TIMER
from gridstat.broker.access.resting_contracts import Ended, RestingContracts, RuleSweep
from gridstat.model.access_rules import AccessRule, AccessRules, Decision, Wish
from gridstat.model.qos import QosRequest
from gridstat.model.rate_law import Period
from gridstat.net.command.machine import Received
from gridstat.net.command.operator_messages import RevokeAccess
from tests.unit.broker.access.ruled_cloud import (
    PUBLISHING,
    READING,
    ended,
    grant,
    not_allowed,
    revoke,
    ruled,
)
from tests.unit.broker.stand_ins import CENTRE, PMU, VOLTAGE, publish, subscribe, variable

if TYPE_CHECKING:
    import pytest

    from tests.unit.broker.conversation import Conversation

WIDE = AccessRule("wide", CENTRE, ("subscribe",), "c1/north/**")
NARROW = replace(WIDE, identifier="narrow", reserved_bytes_per_s=6_000)
"""Room for one variable of 60 events a second."""


def with_contracts(*rules: AccessRule, count: int = 3) -> Conversation:
    """A reader has this many variables, asked for in their order."""
    cloud = ruled(PUBLISHING, *rules)
    for number in range(count):
        cloud.publish(f"{PMU}/v{number}", "c1/e0")
        cloud.subscribe(CENTRE, "c1/e2", f"{PMU}/v{number}")
    return cloud


def held(cloud: Conversation) -> list[str]:
    return sorted(each.record.name for each in cloud.broker.registry.subscriptions.values())


def test_what_exceeds_the_bound_of_the_rule_that_is_left_ends() -> None:
    cloud = with_contracts(WIDE, NARROW)
    assert revoke(cloud, "wide")["ended"] == 2
    assert held(cloud) == [f"{PMU}/v0"], "those granted first are kept"
    reasons = {each.reason for each in ended(cloud, CENTRE)}
    assert all("rule wide was revoked" in each for each in reasons)
    assert all("reserve 6000 bytes/s to subscribe" in each for each in reasons)
    not_allowed(cloud.ask(CENTRE, "c1/e2", subscribe(f"{PMU}/v1")))


def test_what_rests_on_another_rule_keeps_what_it_has_beyond_a_bound() -> None:
    cloud = with_contracts(WIDE, AccessRule("find", CENTRE, ("find",), "**"))
    grant(cloud, replace(WIDE, reserved_bytes_per_s=1))  # For new requests only.
    assert revoke(cloud, "find")["ended"] == 0
    assert len(held(cloud)) == 3


def test_a_rule_replaced_by_one_for_other_names_leaves_the_bounds_of_others() -> None:
    cloud = with_contracts(WIDE, NARROW)
    assert grant(cloud, replace(WIDE, what="c1/south/**"))["ended"] == 2


def test_published_bytes_beyond_the_bound_that_is_left_are_withdrawn() -> None:
    mine = AccessRule("mine", PMU, ("publish",), f"{PMU}/**")
    cloud = ruled(mine, replace(mine, identifier="some", reserved_bytes_per_s=6_000))
    for number in range(2):
        cloud.publish(f"{PMU}/v{number}", "c1/e0")
    assert revoke(cloud, "mine")["ended"] == 1
    assert list(cloud.broker.registry.publications) == [f"{PMU}/v0"]


def test_a_delay_that_only_a_revoked_rule_allowed_ends_the_publication_in_words() -> None:
    plain = AccessRule("plain", PMU, ("publish",), f"{PMU}/**")
    cloud = ruled(replace(plain, identifier="late", delay_ms_max=10_000), plain)
    cloud.publish(VOLTAGE, "c1/e0", delay_ms=9_000)
    cloud.publish(f"{PMU}/current", "c1/e0")
    assert revoke(cloud, "late")["ended"] == 1
    assert list(cloud.broker.registry.publications) == [f"{PMU}/current"]
    (told,) = {each.reason for each in ended(cloud, PMU)}
    assert "up to 100 ms late, not 9000" in told
    not_allowed(cloud.ask(PMU, "c1/e0", publish(variable(VOLTAGE, delay_ms=9_000))))


def test_a_pattern_at_a_priority_that_no_rule_allows_any_more_ends() -> None:
    cloud = ruled(PUBLISHING, replace(WIDE, priority_best=1), READING)
    cloud.subscribe(CENTRE, "c1/e2", "c1/north/**", QosRequest(priority=1))
    assert revoke(cloud, "wide")["ended"] == 1
    assert cloud.broker.registry.patterns == {}


def test_a_revocation_that_a_restart_interrupts_still_counts_the_bounds() -> None:
    cloud = with_contracts(WIDE, NARROW)
    cloud.settings = replace(cloud.settings, revoke_at_once=2)
    cloud.kill_broker()
    cloud.start()
    cloud.advance(10**9)
    cloud.tell(Received("operator/c1/alice", RevokeAccess(request_id=7, identifier="wide")))
    assert cloud.operator_answers[-1].facts["is_ending_more"]
    assert len(held(cloud)) == 3
    cloud.kill_broker()
    cloud.start()
    cloud.advance(10**9)
    assert held(cloud) == [f"{PMU}/v0"]
    assert cloud.broker.access.ending == {}


def test_each_contract_is_judged_once_however_many_turns_a_revocation_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cloud = many_contracts(READING, count=40)
    judged: list[str] = []
    decide = AccessRules.decide

    def counted(self: AccessRules, wish: Wish) -> Decision:
        judged.append(wish.what)
        return decide(self, wish)

    monkeypatch.setattr(AccessRules, "decide", counted)
    revoke(cloud, "desks")
    cloud.advance(10**9)
    assert held(cloud) == []
    assert len(judged) <= 2 * 40, "once to judge it, and once for the reason"


def test_a_rule_that_is_given_to_readers_judges_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = many_contracts(READING, count=4)
    found: list[int] = []
    find = RestingContracts.find

    def counted(self: RestingContracts, sweep: RuleSweep) -> Ended:
        found.append(len(sweep.waiting))
        return find(self, sweep)

    monkeypatch.setattr(RestingContracts, "find", counted)
    grant(cloud, AccessRule("more", "**", ("find", "subscribe"), "c1/x/**"))
    assert found == [0]


def test_a_failed_write_of_a_turn_is_done_again() -> None:
    cloud = many_contracts(READING, count=12)
    cloud.tell(Received("operator/c1/alice", RevokeAccess(request_id=7, identifier="desks")))
    assert held(cloud)
    cloud.is_disk_full = True
    cloud.fire(SWEEP_TIMER)
    cloud.is_disk_full = False
    cloud.failed_epoch = -1
    cloud.advance(3 * 10**9)
    assert held(cloud) == []


def test_a_contract_that_ends_before_it_is_answered_is_refused_by_the_rule() -> None:
    cloud = ruled(PUBLISHING, READING)
    cloud.publish(VOLTAGE, "c1/e0")
    for router in cloud.routers.values():
        router.is_silent = True
    number = cloud.send(CENTRE, "c1/e2", subscribe(VOLTAGE))
    cloud.settle()
    assert (CENTRE, number) not in cloud.answers
    revoke(cloud, "desks")
    for router in cloud.routers.values():
        router.is_silent = False
        cloud.confirm(router.name)
    cloud.advance(10**10)
    found = not_allowed(cloud.answers[CENTRE, number])
    assert "rule desks was revoked" in found.reason


def many_contracts(*rules: AccessRule, count: int) -> Conversation:
    """Few contracts are judged in one turn."""
    cloud = ruled(PUBLISHING, *rules, revoke_at_once=5)
    for number in range(count):
        cloud.publish(f"{PMU}/v{number:02}", "c1/e0", period=Period(1, 1))
        cloud.now_ns += 10**9
    for at in range(0, count, 20):
        names = [f"{PMU}/v{number:02}" for number in range(at, min(count, at + 20))]
        cloud.ask(CENTRE, "c1/e2", subscribe(*names))
        cloud.now_ns += 10**9
    assert len(held(cloud)) == count
    return cloud
