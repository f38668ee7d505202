"""What a cloud that observes lists: rules for all that was asked for, and nobody hides another."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from gridstat.broker import observed_refusals
from gridstat.broker.permissions import Permissions
from gridstat.console.config.access_section import AccessRuleSection
from gridstat.model.access_rules import AccessRule, Action, Wish
from gridstat.model.qos import QosRequest
from gridstat.net.command.endpoint_messages import FindVariables, FoundOutcome, GrantedOutcome
from gridstat.net.command.operator_messages import SetAccessMode, Survey, WhyAccess
from tests.unit.broker.access.ruled_cloud import PUBLISHING, facts, grant, operate, ruled
from tests.unit.broker.stand_ins import CENTRE, PMU, VOLTAGE, publish, subscribe, variable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.unit.broker.conversation import Conversation

OBSERVED = WhyAccess(request_id=0, is_observed=True)
OTHER = "c1/desk"


def listed(cloud: Conversation) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = facts(cloud, OBSERVED)["refusals_observed"]
    return found


def grant_listed(cloud: Conversation) -> None:
    for row in listed(cloud):
        grant(cloud, AccessRuleSection(**row["rule"]).rule())


def test_the_suggested_rule_allows_the_best_priority_that_was_asked_for() -> None:
    cloud = ruled(PUBLISHING, is_enforced=None)
    operate(cloud, SetAccessMode(request_id=0, is_enforced=False))
    cloud.publish(VOLTAGE, "c1/e0")
    for priority in (1, 5):
        cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(priority=priority))
    (row,) = listed(cloud)
    assert "--priority 1" in row["command"]
    grant_listed(cloud)
    assert facts(cloud, SetAccessMode(request_id=0, is_enforced=True))["ended"] == 0
    assert len(cloud.broker.registry.subscriptions) == 2


@pytest.mark.parametrize("seed", range(12))
def test_a_cloud_whose_listed_rules_are_granted_enforces_without_a_refusal(seed: int) -> None:
    random = Random(seed)
    cloud = ruled(is_enforced=None)
    operate(cloud, SetAccessMode(request_id=0, is_enforced=False))
    cloud.attach(OTHER, "c1/e1", "c1/e3", data_port=0)
    readers = {CENTRE: "c1/e2", OTHER: "c1/e3"}
    names = [f"{PMU}/v{at}" for at in range(random.randint(1, 12))]
    if random.random() < 0.5:
        grant(cloud, AccessRule("some", CENTRE, ("subscribe",), "c1/**", reserved_bytes_per_s=99))
    asked: list[tuple[str, str, Any]] = []

    def ask(who: str, edge: str, question: Any) -> None:
        asked.append((who, edge, question))
        for outcome in cloud.ask(who, edge, question):
            assert getattr(outcome, "code", 0) != 1015, outcome

    for name in names:
        delay_ms = random.choice((100, 100, 200, 5_000))
        ask(PMU, "c1/e0", publish(replace(variable(name), delay_ms=delay_ms)))
    for _ in range(random.randint(1, 25)):
        who, edge = random.choice([*readers.items()])
        name = random.choice([*names, "c1/**", f"{PMU}/*"])
        if random.random() < 0.2:
            ask(who, edge, FindVariables(pattern=name))
        else:
            qos = QosRequest(priority=random.randint(1, 6))
            ask(who, edge, subscribe(name, qos))
    contracts = set(cloud.broker.registry.subscriptions)
    patterns = set(cloud.broker.registry.patterns)
    grant_listed(cloud)
    assert listed(cloud) == []
    assert facts(cloud, SetAccessMode(request_id=0, is_enforced=True))["ended"] == 0
    assert set(cloud.broker.registry.subscriptions) == contracts
    assert set(cloud.broker.registry.patterns) == patterns
    for who, edge, question in asked:
        for outcome in cloud.ask(who, edge, question):
            assert getattr(outcome, "code", 0) != 1015, outcome
            if isinstance(outcome, GrantedOutcome):
                assert not [text for text in outcome.degraded if "1015" in text]
            if isinstance(outcome, FoundOutcome) and "*" in question.pattern:
                assert {each.name for each in outcome.variables} == set(names)


def observing() -> Permissions:
    found = Permissions("c1", lambda: 7)
    found.is_enforced = False
    return found


def ask_for(permissions: Permissions, who: str, names: Iterable[str], **facts: Any) -> None:
    for name in names:
        permissions.check(Wish(who, Action.SUBSCRIBE, name, **facts))


def of(permissions: Permissions, who: str) -> list[str]:
    return [each.wish.what for each in permissions.observed_refusals() if each.wish.who == who]


def test_wishes_of_one_end_point_hide_those_of_nobody_else() -> None:
    permissions = observing()
    ask_for(permissions, "c1/mallory", (f"c1/x{at}/none" for at in range(1_000)))
    ask_for(permissions, "c1/ems", [VOLTAGE])
    assert of(permissions, "c1/ems") == [VOLTAGE]
    assert len(of(permissions, "c1/mallory")) == observed_refusals.SHARE_ROWS
    assert permissions.observed.not_kept["c1/mallory"].count == 950
    assert permissions.observed.count == 1_001


def test_end_points_of_another_cloud_share_a_part_whatever_their_names() -> None:
    permissions = observing()
    for at in range(3_000):
        ask_for(permissions, f"c2/x{at}", [VOLTAGE])
    ask_for(permissions, "c1/ems", [VOLTAGE])
    assert of(permissions, "c1/ems") == [VOLTAGE]
    assert len(permissions.observed) == observed_refusals.CLOUD_SHARE_ROWS + 1
    assert permissions.observed.not_kept["c2/**"].count == 2_500


def test_a_full_list_takes_rows_from_those_with_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed_refusals, "ROWS_MAX", 60)
    permissions = observing()
    ask_for(permissions, "c1/few", ["c1/a/v", "c1/b/v"])
    for who in ("c1/one", "c1/two", "c1/three"):
        ask_for(permissions, who, (f"c1/x{at}/v" for at in range(40)))
    rows = [len(of(permissions, f"c1/{who}")) for who in ("few", "one", "two", "three")]
    assert sum(rows) == len(permissions.observed) == 60
    assert rows[0] == 2
    assert max(rows[1:]) - min(rows[1:]) <= 1
    lost = permissions.observed.not_kept_facts()
    assert lost["refusals"] == 122 - 60
    assert {each["who"] for each in lost["most"]} == {"c1/one", "c1/two", "c1/three"}


def test_names_side_by_side_take_one_row_however_many_there_are() -> None:
    permissions = observing()
    ask_for(permissions, "c1/ems", (f"{PMU}/v{at}" for at in range(500)), priority=4)
    ask_for(permissions, "c1/ems", [f"{PMU}/v3"], priority=2)
    (row,) = permissions.observed_refusals()
    assert (len(permissions.observed), permissions.observed.not_kept) == (1, {})
    assert (row.wish.what, row.wish.priority, row.count) == (f"{PMU}/*", 2, 501)
    assert "more than 8 variables" in row.reason
    permissions.rules.add(replace(row.rule(), priority_best=3))
    assert permissions.observed_refusals(), "not all of it is allowed"
    permissions.rules.add(row.rule())
    assert permissions.observed_refusals() == []


def test_a_rule_for_each_of_a_few_names_side_by_side_is_enough() -> None:
    permissions = observing()
    names = [f"{PMU}/v{at}" for at in range(4)]
    ask_for(permissions, "c1/ems", names)
    for at, name in enumerate(names):
        assert len(of(permissions, "c1/ems")) == (1, 1, 2, 1)[at]
        permissions.rules.add(AccessRule(f"r{at}", "c1/ems", ("subscribe",), name))
    assert permissions.observed_refusals() == []
    assert len(permissions.observed) == 0


def test_a_wish_that_no_rule_allows_is_listed_with_what_to_do_instead() -> None:
    cloud = ruled(
        AccessRule("all", "c1/**", ("publish",), "**"),
        AccessRule("own", f"{PMU}/unit", ("publish",), f"{PMU}/unit/*"),
        is_enforced=False,
    )
    cloud.ask(PMU, "c1/e0", publish(variable(f"{PMU}/unit/v")))
    (row,) = listed(cloud)
    assert row["command"] == ""
    assert "have the rule changed that reserves this one" in row["hint"]


def test_a_delay_and_the_variable_itself_are_two_rules_of_different_names() -> None:
    cloud = ruled(is_enforced=False)
    cloud.ask(PMU, "c1/e0", publish(replace(variable(VOLTAGE), delay_ms=5_000)))
    rows = listed(cloud)
    assert len({row["rule"]["name"] for row in rows}) == len(rows) == 2


def test_a_survey_says_whose_wishes_are_not_listed() -> None:
    cloud = ruled(is_enforced=False)
    assert facts(cloud, Survey(request_id=0))["access"]["not_kept"]["refusals"] == 0
    ask_for(cloud.broker.permissions, "c1/mallory", (f"c1/x{at}/none" for at in range(60)))
    for found in (facts(cloud, Survey(request_id=0))["access"], facts(cloud, OBSERVED)):
        assert found["not_kept"]["refusals"] == 10
        (most,) = found["not_kept"]["most"]
        assert (most["who"], most["count"]) == ("c1/mallory", 10)
