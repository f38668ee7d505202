"""Access rules in one cloud: default deny, run-time changes, restarts, observing."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from gridstat.broker.access.access_operations import AccessGranted
from gridstat.broker.access.leaf_access import SWEEP_TIMER
from gridstat.broker.records.operations import encode
from gridstat.broker.requests.identity_quotas import IdentityQuotas
from gridstat.broker.requests.pattern_matching import MATCH_TIMER
from gridstat.broker.settings import AccessSettings, BrokerSettings
from gridstat.model.access_rules import LOOKED_MAX, AccessRule, Action, Wish
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.model.quota import Quota
from gridstat.model.rate_law import Period
from gridstat.net.command.endpoint_messages import (
    ChangePublication,
    ChangeSubscription,
    FindVariables,
    FoundOutcome,
    GrantedOutcome,
    ListenToFloods,
    PublishedOutcome,
)
from gridstat.net.command.machine import Received
from gridstat.net.command.operator_messages import (
    GrantAccess,
    ListAccess,
    RevokeAccess,
    SetAccessMode,
    SetFlooding,
    Survey,
    WhyAccess,
)
from tests.unit.broker.access.ruled_cloud import (
    LISTENING,
    PUBLISHING,
    READING,
    ended,
    facts,
    grant,
    not_allowed,
    operate,
    revoke,
    ruled,
)
from tests.unit.broker.conversation import Conversation, pair, refusal
from tests.unit.broker.stand_ins import (
    CENTRE,
    CLOUD,
    PMU,
    VOLTAGE,
    publish,
    subscribe,
    variable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

HIDDEN = "c1/south/pmu/voltage"
SOUTH = "c1/south/pmu"


def published(*rules: AccessRule) -> Conversation:
    cloud = ruled(PUBLISHING, *rules)
    cloud.publish(VOLTAGE, "c1/e0")
    return cloud


def with_hidden(*rules: AccessRule) -> Conversation:
    """The reader's rule covers the north, and there is a variable in the south."""
    cloud = published(*rules)
    cloud.attach(SOUTH, "c1/e0", data_port=0)
    cloud.publish(HIDDEN, "c1/e0")
    return cloud


def test_a_new_cloud_without_rules_admits_nobody_and_says_what_to_write() -> None:
    cloud = ruled(is_enforced=None)
    found = not_allowed(cloud.ask(PMU, "c1/e0", publish(variable(VOLTAGE))))
    assert "gridstat access grant c1-north-pmu-publish-" in found.hint
    assert f" --at c1 --who '{PMU}'" in found.hint
    not_allowed(cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE)))
    not_allowed(cloud.ask(CENTRE, "c1/e2", subscribe("c1/**")))
    not_allowed(cloud.ask(CENTRE, "c1/e2", FindVariables(pattern="c1/**")))
    not_allowed(cloud.ask(CENTRE, "c1/e2", ListenToFloods(data_port=9, urgent_port=10)))
    (hint,) = {
        str(dict(note.facts)["hint"])
        for note in cloud.notes
        if note.word == "no_access_rules" and note.is_warning
    }
    assert 'who = "c1/*/*"' in hint
    assert "owner = true" in hint
    cloud.kill_broker()
    cloud.start()
    not_allowed(cloud.ask(PMU, "c1/e0", publish(variable(VOLTAGE))))


def test_rules_allow_what_they_say() -> None:
    cloud = published(READING)
    assert cloud.subscribe(CENTRE, "c1/e2", VOLTAGE).paths
    (found,) = cloud.ask(CENTRE, "c1/e2", FindVariables(pattern="c1/**"))
    assert isinstance(found, FoundOutcome)
    assert [each.name for each in found.variables] == [VOLTAGE]
    not_allowed(cloud.ask(PMU, "c1/e0", subscribe(VOLTAGE)))


def test_who_may_not_have_a_name_does_not_learn_whether_it_exists() -> None:
    cloud = with_hidden(READING)
    there = not_allowed(cloud.ask(CENTRE, "c1/e2", subscribe(HIDDEN)))
    absent = not_allowed(cloud.ask(CENTRE, "c1/e2", subscribe("c1/south/pmu/absent")))
    assert there.reason.replace("voltage", "absent") == absent.reason
    (found,) = cloud.ask(CENTRE, "c1/e2", FindVariables(pattern="c1/**"))
    assert isinstance(found, FoundOutcome)
    assert [each.name for each in found.variables] == [VOLTAGE]


def test_a_pattern_catches_only_what_rules_allow_and_does_not_say_that_there_is_more() -> None:
    cloud = with_hidden(READING)
    taken = cloud.subscribe(CENTRE, "c1/e2", "c1/**")
    assert taken.degraded == ()
    names = {found.record.name for found in cloud.broker.registry.subscriptions.values()}
    assert names == {VOLTAGE}
    cloud.publish("c1/south/pmu/current", "c1/e0")
    cloud.publish(f"{PMU}/current", "c1/e0")
    cloud.settle()
    names = {found.record.name for found in cloud.broker.registry.subscriptions.values()}
    assert names == {VOLTAGE, f"{PMU}/current"}


def test_a_pattern_that_can_match_nothing_allowed_is_refused() -> None:
    cloud = with_hidden(READING)
    found = not_allowed(cloud.ask(CENTRE, "c1/e2", subscribe("c1/south/**")))
    assert 'what = "c1/south/**"' in found.hint


def test_a_pattern_at_a_priority_that_no_rule_allows_is_refused() -> None:
    cloud = with_hidden(READING)
    urgent = QosRequest(priority=1)
    found = not_allowed(cloud.ask(CENTRE, "c1/e2", subscribe("c1/north/**", urgent)))
    assert "priority 3 or below, not at 1" in found.reason
    not_allowed(cloud.ask(CENTRE, "c1/e2", subscribe("c1/**", urgent)))
    assert cloud.broker.registry.patterns == {}


def test_what_a_pattern_does_not_catch_for_a_bound_is_said() -> None:
    cloud = with_hidden(replace(READING, reserved_bytes_per_s=6_000))
    cloud.publish(f"{PMU}/current", "c1/e0")
    taken = cloud.subscribe(CENTRE, "c1/e2", "c1/**")
    (told,) = taken.degraded
    assert told.startswith(f"{VOLTAGE} was not caught: rule access: rule desks lets ")
    assert told.endswith("(1015)")
    cloud.publish(f"{PMU}/later", "c1/e0")
    reasons = [dict(each.facts)["reason"] for each in cloud.notes if each.word == "pattern_refused"]
    assert f"{PMU}/later was not caught" in str(reasons[-1])
    assert HIDDEN not in str((taken.degraded, reasons)), "no rule names it"


def test_a_new_rule_gives_a_pattern_what_was_withheld() -> None:
    cloud = with_hidden(READING)
    cloud.subscribe(CENTRE, "c1/e2", "c1/**")
    grant(cloud, AccessRule("south", CENTRE, ("subscribe",), "c1/south/**"))
    cloud.advance(10_000_000)
    cloud.settle()
    names = {found.record.name for found in cloud.broker.registry.subscriptions.values()}
    assert names == {VOLTAGE, HIDDEN}


def test_a_new_rule_gives_all_of_a_pattern_that_is_being_matched() -> None:
    cloud = ruled(PUBLISHING, AccessRule("one", CENTRE, ("subscribe",), f"{PMU}/v11"))
    for number in range(12):
        cloud.publish(f"{PMU}/v{number:02}", "c1/e0", period=Period(1, 1))
    cloud.send(CENTRE, "c1/e2", subscribe("c1/north/**"))
    cloud.fire(MATCH_TIMER)
    assert MATCH_TIMER in cloud.timers, "one slice is left"
    cloud.is_journal_held = True
    everything = GrantAccess(request_id=7, rule=replace(READING, identifier="all"))
    cloud.tell(Received("operator/c1/alice", everything))
    cloud.write(len(cloud.held_persists))
    cloud.fire(MATCH_TIMER)  # Before it is durable that the pattern is matched again.
    cloud.is_journal_held = False
    cloud.write()
    cloud.advance(10**9)
    assert len(cloud.broker.registry.subscriptions) == 12


def test_the_best_priorities_need_a_rule_that_says_so() -> None:
    cloud = published(READING)
    urgent = QosRequest(priority=1)
    found = not_allowed(cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE, urgent)))
    assert "priority 3 or below, not at 1" in found.reason
    taken = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    change = ChangeSubscription(subscription_id=taken.subscription_id, qos=ModalQos({0: urgent}))
    not_allowed(cloud.ask(CENTRE, "c1/e2", change))
    grant(cloud, AccessRule("urgent", CENTRE, ("subscribe",), "c1/**", priority_best=1))
    assert isinstance(cloud.ask(CENTRE, "c1/e2", change)[0], GrantedOutcome)


def test_reserved_bytes_are_bounded_over_all_contracts_and_given_back() -> None:
    bound = AccessRule("desks", CENTRE, ("subscribe",), "c1/**", reserved_bytes_per_s=6_000)
    cloud = published(bound)
    cloud.publish(f"{PMU}/current", "c1/e0")
    taken = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)  # 60 events a second of 68 bytes.
    assert cloud.broker.permissions.reserved
    found = not_allowed(cloud.ask(CENTRE, "c1/e2", subscribe(f"{PMU}/current")))
    assert "reserve 6000 bytes/s" in found.reason
    slower = ModalQos({0: QosRequest(every=6)})
    change = ChangeSubscription(subscription_id=taken.subscription_id, qos=slower)
    assert isinstance(cloud.ask(CENTRE, "c1/e2", change)[0], GrantedOutcome)
    cloud.subscribe(CENTRE, "c1/e2", f"{PMU}/current")
    before = dict(cloud.broker.permissions.reserved)
    cloud.kill_broker()
    assert cloud.broker.permissions.reserved == before


def test_published_bytes_are_bounded_too() -> None:
    bound = AccessRule("pmus", PMU, ("publish",), "c1/**", reserved_bytes_per_s=6_000)
    cloud = ruled(bound)
    cloud.publish(VOLTAGE, "c1/e0")
    not_allowed(cloud.ask(PMU, "c1/e0", publish(variable(f"{PMU}/current"))))
    faster = ChangePublication(name=VOLTAGE, period=Period(1, 120))
    not_allowed(cloud.ask(PMU, "c1/e0", faster))
    slower = ChangePublication(name=VOLTAGE, period=Period(1, 30))
    assert isinstance(cloud.ask(PMU, "c1/e0", slower)[0], PublishedOutcome)


def test_a_name_is_kept_for_the_end_point_that_a_rule_names_while_it_is_away() -> None:
    station = "c1/north"
    everyone = AccessRule("all", "c1/**", ("publish",), "c1/**")
    cloud = ruled(everyone, AccessRule("pmu", SOUTH, ("publish",), f"{SOUTH}/**"))
    cloud.attach("c1/south", "c1/e0", data_port=0)
    found = not_allowed(cloud.ask("c1/south", "c1/e0", publish(variable(HIDDEN))))
    assert f"belongs to {SOUTH}" in found.reason
    cloud.attach(station, "c1/e0", data_port=0)
    assert cloud.ask(station, "c1/e0", publish(variable(f"{station}/load")))
    cloud.attach(SOUTH, "c1/e0", data_port=0)
    assert cloud.publish(HIDDEN, "c1/e0").name == HIDDEN


def test_revoking_a_rule_ends_contracts_and_patterns_in_words() -> None:
    cloud = published(READING)
    by_name = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    cloud.subscribe(CENTRE, "c1/e2", "c1/north/**")
    assert revoke(cloud, "desks")["ended"] == 3
    assert cloud.broker.registry.subscriptions == {}
    assert cloud.broker.registry.patterns == {}
    assert cloud.path_orders("c1/e2") == []
    notices = {each.subscription_id: each for each in ended(cloud, CENTRE)}
    assert notices[by_name.subscription_id].code == 1015
    assert "rule desks was revoked or changed; no rule lets" in (
        notices[by_name.subscription_id].reason
    )
    not_allowed(cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE)))


def test_what_another_rule_allows_too_stays() -> None:
    cloud = published(READING, AccessRule("also", CENTRE, ("subscribe",), "**"))
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    assert revoke(cloud, "desks")["ended"] == 0
    assert len(cloud.broker.registry.subscriptions) == 1


def test_revoking_publishing_withdraws_the_variable_and_tells_everybody() -> None:
    cloud = published(READING)
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    revoke(cloud, "pmus")
    assert cloud.broker.registry.publications == {}
    (told,) = {each.reason for each in ended(cloud, CENTRE)}
    assert "no rule lets c1/north/pmu publish" in told
    assert {(each.subscription_id, each.name) for each in ended(cloud, PMU)} == {(0, VOLTAGE)}
    assert cloud.differing() == []


def test_revoking_flood_ends_the_delivery_of_floods() -> None:
    cloud = published(LISTENING)
    facts(cloud, SetFlooding(request_id=0, name=VOLTAGE))
    cloud.ask(CENTRE, "c1/e2", ListenToFloods(data_port=9, urgent_port=10))
    assert cloud.broker.floods.listeners[CENTRE].channels
    revoke(cloud, "listeners")
    assert CENTRE not in cloud.broker.floods.listeners
    (told,) = {(each.name, each.code, each.reason) for each in ended(cloud, CENTRE)}
    assert told[:2] == ("**", 1015)
    assert "rule listeners was revoked or changed; no rule lets" in told[2]
    assert cloud.differing() == []


def test_listening_to_floods_needs_a_rule_for_everything() -> None:
    cloud = published(AccessRule("some", CENTRE, ("flood",), "c1/**"))
    not_allowed(cloud.ask(CENTRE, "c1/e2", ListenToFloods(data_port=9, urgent_port=10)))


def test_a_rule_granted_at_run_time_survives_a_restart() -> None:
    cloud = published()
    grant(cloud, READING)
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    cloud.kill_broker()
    cloud.start()
    assert len(cloud.broker.registry.subscriptions) == 1
    assert cloud.broker.permissions.rules.get("desks") == READING


def test_a_revoked_rule_of_the_file_stays_revoked_until_the_file_changes() -> None:
    cloud = published(READING)
    revoke(cloud, "desks")
    cloud.kill_broker()
    cloud.start()
    not_allowed(cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE)))
    wider = AccessRule("desks", CENTRE, ("subscribe",), "**")
    cloud.settings = BrokerSettings(CLOUD, access=AccessSettings((PUBLISHING, wider)))
    cloud.kill_broker()
    cloud.start()
    assert cloud.subscribe(CENTRE, "c1/e2", VOLTAGE).paths


def test_a_rule_that_the_file_lost_ends_what_rested_on_it_at_the_start() -> None:
    cloud = published(READING)
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    cloud.settings = BrokerSettings(CLOUD, access=AccessSettings((PUBLISHING,)))
    cloud.kill_broker()
    cloud.start()
    assert cloud.broker.registry.subscriptions == {}
    assert list(cloud.broker.registry.publications) == [VOLTAGE]


def test_a_full_disk_changes_no_rule_and_ends_nothing() -> None:
    cloud = published(READING)
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    cloud.is_disk_full = True
    answer = operate(cloud, RevokeAccess(request_id=0, identifier="desks"))
    assert answer.refused is not None
    assert answer.refused.code == 5001
    answer = operate(cloud, GrantAccess(request_id=0, rule=AccessRule("x", "**", ("find",), "**")))
    assert answer.refused is not None
    answer = operate(cloud, SetAccessMode(request_id=0, is_enforced=True))
    assert [each.identifier for each in cloud.broker.permissions.rules] == ["desks", "pmus"]
    assert len(cloud.broker.registry.subscriptions) == 1
    cloud.is_disk_full = False
    cloud.failed_epoch = -1
    assert len(cloud.broker.permissions.reserved) == 2


@pytest.mark.parametrize("identifier", ["pmus", "more"])
def test_more_ends_than_a_turn_takes_follow_in_further_turns(identifier: str) -> None:
    cloud = ruled(PUBLISHING, end_at_once=2)
    for number in range(7):
        cloud.publish(f"{PMU}/v{number}", "c1/e0")
    cloud.attach("c1/desk/two", "c1/e2", data_port=7_000)
    grant(cloud, AccessRule("more", "c1/**", ("subscribe",), "**"))
    for number in range(7):
        for name in (CENTRE, "c1/desk/two"):
            cloud.subscribe(name, "c1/e2", f"{PMU}/v{number}")
    count, contracts = 0, cloud.broker.registry.subscriptions
    left = [len(contracts)]
    cloud.is_serving = False
    command = RevokeAccess(request_id=7, identifier=identifier)
    cloud.tell(Received("operator/c1/alice", command))
    assert cloud.operator_answers[-1].facts["is_ending_more"]
    left.append(len(contracts))
    while SWEEP_TIMER in cloud.timers:
        cloud.fire(SWEEP_TIMER)
        left.append(len(contracts))
        count += 1
    assert count >= 6, "several turns"
    # A variable ends with its two contracts, which may be one more than the bound.
    assert all(before - after <= 3 for before, after in pairwise(left))
    cloud.settle()
    if identifier == "pmus":
        assert cloud.broker.registry.publications == {}
    assert cloud.broker.registry.subscriptions == {}


def test_a_journal_from_before_there_were_rules_observes_and_lists_what_is_needed() -> None:
    cloud = pair(settings=BrokerSettings(CLOUD))
    cloud.publish(VOLTAGE, "c1/e0")
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    cloud.journal = [
        data for data in cloud.journal if b"AccessModeSet" not in data
    ]  # As an older release wrote it.
    cloud.settings = BrokerSettings(CLOUD)
    cloud.kill_broker()
    cloud.start()
    assert any(note.word == "access_not_enforced" for note in cloud.notes)
    cloud.publish(f"{PMU}/current", "c1/e0")
    cloud.subscribe(CENTRE, "c1/e2", f"{PMU}/current")
    found = facts(cloud, WhyAccess(request_id=0, is_observed=True))
    assert found["mode"] == "observe"
    wishes = {(each["who"], each["action"], each["what"]) for each in found["refusals_observed"]}
    assert wishes == {
        (PMU, "publish", VOLTAGE),
        (PMU, "publish", f"{PMU}/current"),
        (CENTRE, "subscribe", VOLTAGE),
        (CENTRE, "subscribe", f"{PMU}/current"),
    }
    assert facts(cloud, Survey(request_id=0))["access"]["mode"] == "observe"
    grant(cloud, PUBLISHING)
    grant(cloud, AccessRule("some", CENTRE, ("subscribe",), VOLTAGE))
    assert len(cloud.broker.registry.subscriptions) == 2
    assert facts(cloud, SetAccessMode(request_id=0, is_enforced=True))["ended"] == 1
    names = {each.record.name for each in cloud.broker.registry.subscriptions.values()}
    assert names == {VOLTAGE}
    cloud.kill_broker()
    cloud.start()
    not_allowed(cloud.ask(CENTRE, "c1/e2", subscribe(f"{PMU}/current")))


def test_a_journal_from_before_with_rules_in_the_file_enforces_them() -> None:
    cloud = pair(settings=BrokerSettings(CLOUD))
    cloud.journal = [data for data in cloud.journal if b"AccessModeSet" not in data]
    cloud.settings = BrokerSettings(CLOUD, access=AccessSettings((PUBLISHING,)))
    cloud.kill_broker()
    cloud.start()
    not_allowed(cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE)))


def test_a_mode_that_the_file_fixes_is_not_changed_for_a_while() -> None:
    cloud = ruled(PUBLISHING, is_enforced=True)
    answer = operate(cloud, SetAccessMode(request_id=0, is_enforced=False))
    assert answer.refused is not None
    assert 'access = "enforce"' in answer.refused.reason


def test_rules_are_listed_with_where_they_are_from() -> None:
    cloud = ruled(PUBLISHING, READING)
    grant(cloud, AccessRule("more", "c1/x", ("find",), "c1/**", priority_best=1))
    revoke(cloud, "desks")
    found = facts(cloud, ListAccess(request_id=0))
    rows = {row["name"]: row for row in found["rules"]}
    assert (rows["more"]["from"], rows["more"]["is_in_force"]) == ("run time", True)
    assert (rows["desks"]["from"], rows["desks"]["is_in_force"]) == ("file", False)
    assert found["rule_count"] == 2
    assert facts(cloud, ListAccess(request_id=0, after="more"))["rules"] == [rows["pmus"]]


def test_why_names_the_rule_or_what_to_write() -> None:
    cloud = published(READING)
    yes = facts(cloud, WhyAccess(request_id=0, who=CENTRE, action="subscribe", what=VOLTAGE))
    assert (yes["is_allowed"], yes["rule"]["name"]) == (True, "desks")
    no = facts(cloud, WhyAccess(request_id=0, who="c2/x", action="find", what=VOLTAGE))
    assert not no["is_allowed"]
    assert 'who = "c2/x"' in no["needed"]
    command = WhyAccess(request_id=0, who="c1/a", action="flood", what=VOLTAGE, role="operator")
    assert facts(cloud, command)["is_allowed"]
    for wrong in (
        WhyAccess(request_id=0, who=CENTRE, action="read", what=VOLTAGE),
        WhyAccess(request_id=0, who=CENTRE, action="find", what="c1//x"),
        WhyAccess(request_id=0, who="c1/e0", action="find", what=VOLTAGE, role="router"),
        WhyAccess(request_id=0, who=CENTRE, action="find", what=VOLTAGE, role="any"),
    ):
        assert operate(cloud, wrong).refused is not None


def why(cloud: Conversation, action: str, what: str) -> dict[str, Any]:
    return facts(cloud, WhyAccess(request_id=0, who=CENTRE, action=action, what=what))


def test_why_knows_that_floods_are_listened_to_as_a_whole() -> None:
    some = published(AccessRule("some", CENTRE, ("flood",), "c1/**"))
    assert not why(some, "flood", VOLTAGE)["is_allowed"]
    found = why(published(LISTENING), "flood", VOLTAGE)
    assert found["is_allowed"]
    assert "all that floods" in found["bound"]


def test_why_counts_reserved_bytes_as_the_broker_does() -> None:
    cloud = published(replace(READING, reserved_bytes_per_s=10))
    not_allowed(cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE)))
    found = why(cloud, "subscribe", VOLTAGE)
    assert not found["is_allowed"]
    assert "reserve 10 bytes/s to subscribe" in found["reason"]
    grant(cloud, replace(READING, reserved_bytes_per_s=6_000))
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    found = why(cloud, "subscribe", VOLTAGE)
    assert found["is_allowed"], "it has it already"
    assert found["bound"].startswith("up to 6000 bytes/s in all, of which")


@pytest.mark.parametrize(
    ("rule", "word"),
    [
        (AccessRule("some", CENTRE, ("flood",), "c1/**"), 'what = "**"'),
        (replace(READING, role="any"), "role"),
        (replace(READING, sessions=3), "sessions is at most 2"),
    ],
)
def test_a_rule_that_would_do_nothing_is_not_granted_but_read_from_a_journal(
    rule: AccessRule, word: str
) -> None:
    cloud = ruled(PUBLISHING)
    answer = operate(cloud, GrantAccess(request_id=0, rule=rule))
    assert answer.refused is not None
    assert word in answer.refused.reason
    cloud.journal.append(encode(AccessGranted(rule=rule)))
    cloud.kill_broker()
    cloud.start()
    assert cloud.broker.permissions.rules.get(rule.identifier) == rule
    (warned,) = [each for each in cloud.notes if each.word == "access_rules_without_effect"]
    assert word in str(dict(warned.facts)["first"])


def test_observing_from_now_on_is_logged_as_a_warning() -> None:
    cloud = ruled(PUBLISHING, is_enforced=None)
    assert [each for each in cloud.notes if each.word == "access_not_enforced"] == []
    operate(cloud, SetAccessMode(request_id=0, is_enforced=False))
    (warned,) = [each for each in cloud.notes if each.word == "access_not_enforced"]
    assert warned.is_warning


def test_an_unknown_rule_cannot_be_revoked() -> None:
    answer = operate(ruled(), RevokeAccess(request_id=0, identifier="absent"))
    assert answer.refused is not None
    assert answer.refused.code == 4004


def test_a_repeated_grant_changes_nothing() -> None:
    cloud = ruled(PUBLISHING)
    grant(cloud, READING)
    length = len(cloud.journal)
    grant(cloud, READING)
    assert len(cloud.journal) == length


def test_a_rule_that_is_replaced_by_a_narrower_one_ends_the_rest() -> None:
    cloud = published(READING)
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    assert grant(cloud, AccessRule("desks", CENTRE, ("find",), "c1/**"))["ended"] == 1
    assert refusal(cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE))).code == 1015


def test_a_rule_that_is_replaced_by_one_for_others_ends_what_rested_on_it() -> None:
    cloud = published(READING)
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    other = AccessRule("desks", "c1/desk/two", ("subscribe",), "c1/north/**")
    assert grant(cloud, other)["ended"] == 1
    assert cloud.broker.registry.subscriptions == {}
    (told,) = {each.reason for each in ended(cloud, CENTRE)}
    assert "rule desks was revoked or changed" in told


def test_a_publishing_rule_that_is_replaced_by_one_for_others_withdraws_the_variable() -> None:
    cloud = published()
    assert grant(cloud, AccessRule("pmus", SOUTH, ("publish",), f"{SOUTH}/**"))["ended"] == 1
    assert cloud.broker.registry.publications == {}


def test_revoking_a_granted_rule_does_not_put_the_files_rule_of_its_name_in_force() -> None:
    cloud = published(READING)
    grant(cloud, AccessRule("desks", CENTRE, ("subscribe",), VOLTAGE))
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    found = revoke(cloud, "desks")
    assert (found["ended"], found["in_force"]) == (1, None)
    not_allowed(cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE)))
    cloud.kill_broker()
    cloud.start()
    not_allowed(cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE)))
    assert grant(cloud, READING)["in_force"]["name"] == "desks"


def test_to_find_looks_only_at_names_that_a_rule_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    second = AccessRule("more", CENTRE, ("find",), "c1/*/pmu/current")
    cloud = with_hidden(READING, second)
    for number in range(50):
        cloud.publish(f"{SOUTH}/v{number}", "c1/e0")
    cloud.publish(f"{SOUTH}/current", "c1/e0")
    cloud.publish(f"{PMU}/current", "c1/e0")
    looked_at: list[str] = []
    permissions = cloud.broker.permissions
    allows = permissions.allows

    def noted(wish: Wish) -> bool:
        looked_at.append(wish.what)
        return allows(wish)

    monkeypatch.setattr(permissions, "allows", noted)
    (found,) = cloud.ask(CENTRE, "c1/e2", FindVariables(pattern="c1/**"))
    assert isinstance(found, FoundOutcome)
    names = [f"{PMU}/current", VOLTAGE, f"{SOUTH}/current"]
    assert [each.name for each in found.variables] == looked_at == names
    (found,) = cloud.ask(CENTRE, "c1/e2", FindVariables(pattern="c1/**", after=names[0], limit=1))
    assert isinstance(found, FoundOutcome)
    assert ([each.name for each in found.variables], found.is_complete) == ([VOLTAGE], False)


class Unwalked(tuple[AccessRule, ...]):
    """Rules of an end-point, of which nobody looks at each."""

    __slots__ = ()

    def __iter__(self) -> Iterator[AccessRule]:
        raise AssertionError("all rules of an end-point were looked at")


def test_a_request_does_not_look_at_all_rules_of_its_end_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cloud = published(READING, *(replace(READING, identifier=f"r{at}") for at in range(20)))
    cloud.publish(f"{PMU}/late", "c1/e0")
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    cloud.ask(CENTRE, "c1/e2", FindVariables(pattern="c1/**"))  # The rules are indexed from now on.
    rules = cloud.broker.permissions.rules
    monkeypatch.setattr(rules._own(CENTRE, "endpoint"), "rules", Unwalked())
    monkeypatch.setattr(cloud.broker.permissions.rules, "rules_of", lambda _: Unwalked())
    monkeypatch.setattr(IdentityQuotas, "ruled", lambda *_: Quota())
    cloud.subscribe(CENTRE, "c1/e2", f"{PMU}/late")
    cloud.subscribe(CENTRE, "c1/e2", "c1/**")
    (found,) = cloud.ask(CENTRE, "c1/e2", FindVariables(pattern="c1/**"))
    assert isinstance(found, FoundOutcome)
    assert len(found.variables) == 2


def test_to_find_looks_at_no_more_patterns_than_there_are_names() -> None:
    many = [replace(READING, identifier=f"r{at}", what=f"{PMU}/v{at}") for at in range(20)]
    cloud = published(*many)
    permissions = cloud.broker.permissions
    assert permissions.patterns_within(CENTRE, Action.FIND, "c1/**", names=5) == ("c1/**",)
    assert len(permissions.patterns_within(CENTRE, Action.FIND, "c1/**", names=20)) == 20
    cloud.publish(f"{PMU}/v7", "c1/e0")
    (found,) = cloud.ask(CENTRE, "c1/e2", FindVariables(pattern="c1/**"))
    assert isinstance(found, FoundOutcome)
    assert [each.name for each in found.variables] == [f"{PMU}/v7"]


def test_to_find_with_ten_thousand_rules_of_its_own_costs_little_and_is_charged() -> None:
    def cloud_of(count: int) -> Conversation:
        many = (
            AccessRule(f"r{at}", CENTRE, ("subscribe", "find"), f"c1/s-{at}/**")
            for at in range(count)
        )
        cloud = published(READING, *many)
        cloud.ask(CENTRE, "c1/e2", FindVariables(pattern="c1/**"))  # Indexed from now on.
        cloud.ask(CENTRE, "c1/e2", subscribe("c1/s-1/v"))
        return cloud

    def steps_of(cloud: Conversation, question: Any) -> int:
        """Return the lines that a request executes, which does not depend on the machine."""
        steps = 0

        def count_step(*_: object) -> Any:
            nonlocal steps
            steps += 1
            return count_step

        before = sys.gettrace()
        sys.settrace(count_step)
        try:
            cloud.ask(CENTRE, "c1/e2", question)
        finally:
            sys.settrace(before)
        return steps

    few, many = cloud_of(1), cloud_of(10_000)
    search_times = many.broker._commands.queue.search_times
    for question in (FindVariables(pattern="c1/*/x7"), subscribe("c1/*/x7")):
        charged_ns = search_times.total_ns
        assert steps_of(many, question) <= steps_of(few, question) + 20 * LOOKED_MAX
        assert 0 < search_times.total_ns - charged_ns < 1_000_000
    (found,) = many.ask(CENTRE, "c1/e2", FindVariables(pattern="c1/*/pmu/*"))
    assert isinstance(found, FoundOutcome)
    assert [each.name for each in found.variables] == [VOLTAGE]


def test_what_a_new_rule_allows_is_listed_as_observed_no_more() -> None:
    cloud = ruled(PUBLISHING, is_enforced=False)
    cloud.publish(VOLTAGE, "c1/e0")
    for name in (VOLTAGE, "c1/north/**"):
        cloud.subscribe(CENTRE, "c1/e2", name)
    late = replace(variable(f"{PMU}/late"), delay_ms=5_000)
    cloud.ask(PMU, "c1/e0", publish(late))
    command = WhyAccess(request_id=0, is_observed=True)
    rows = facts(cloud, command)["refusals_observed"]
    assert len(rows) == 4
    assert any(row["command"].endswith(" --delay-ms 5000") for row in rows)
    grant(cloud, READING)
    grant(cloud, replace(PUBLISHING, delay_ms_max=5_000))
    assert facts(cloud, command)["refusals_observed"] == []


def test_names_side_by_side_are_listed_as_one_observed_refusal() -> None:
    cloud = ruled(PUBLISHING, is_enforced=False)
    for number in range(7):
        cloud.publish(f"{PMU}/v{number}", "c1/e0")
        cloud.subscribe(CENTRE, "c1/e2", f"{PMU}/v{number}")
    (row,) = facts(cloud, WhyAccess(request_id=0, is_observed=True))["refusals_observed"]
    assert (row["what"], row["names"], row["count"] >= 7) == (f"{PMU}/*", 7, True)
    grant(cloud, AccessRule("all", CENTRE, ("subscribe",), row["rule"]["what"]))
    found = facts(cloud, WhyAccess(request_id=0, is_observed=True))
    assert found["refusals_observed"] == []


def test_the_answer_says_that_closer_bounds_end_nothing() -> None:
    cloud = published(READING)
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    found = grant(cloud, replace(READING, reserved_bytes_per_s=1))
    assert found["ended"] == 0
    assert "bound new requests" in found["note"]
    assert "note" not in grant(cloud, READING)
    grant(cloud, replace(PUBLISHING, delay_ms_max=500))
    assert "note" in grant(cloud, PUBLISHING)
