"""The law of access: default deny, patterns, bounds, owners and other clouds."""

from __future__ import annotations

import sys
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.model import access_rules
from gridstat.model.access_rules import (
    LOOKED_MAX,
    AccessRule,
    AccessRules,
    Action,
    Wish,
    common_pattern,
    grant_command,
    overlap,
    rule_for,
    settings_of,
    toml_of,
)
from gridstat.model.cloud import matches
from gridstat.model.errors import LayoutError

if TYPE_CHECKING:
    from collections.abc import Callable

HILL = "c1/hill/pmu-1"
FREQUENCY = f"{HILL}/frequency"


def rule(identifier: str = "r", **values: object) -> AccessRule:
    usual: dict[str, object] = {"who": "c1/**", "may": ("subscribe",), "what": "c1/**"}
    return AccessRule(identifier=identifier, **(usual | values))  # type: ignore[arg-type]


def wish(who: str, action: Action = Action.SUBSCRIBE, what: str = FREQUENCY, **more: int) -> Wish:
    return Wish(who=who, action=action, what=what, **more)  # type: ignore[arg-type]


def test_without_a_rule_everything_is_refused_with_the_rule_to_write() -> None:
    decision = AccessRules("c1").decide(wish("c1/desk"))
    assert not decision.is_allowed
    assert decision.reason == f"no rule lets c1/desk subscribe {FREQUENCY}"
    assert f'what = "{FREQUENCY}"' in decision.hint
    assert "gridstat access grant c1-desk-subscribe-" in decision.hint
    assert f" --at c1 --who 'c1/desk' --what '{FREQUENCY}'" in decision.hint


def test_the_rule_that_a_refusal_names_allows_the_wish() -> None:
    for asked in (
        wish("c1/desk", priority=1),
        wish("c2/desk", Action.FIND),
        wish("", Action.SUBSCRIBE),
        wish(HILL, Action.PUBLISH),
    ):
        rules = AccessRules("c1")
        rules.add(rule_for(asked))
        assert rules.decide(asked).is_allowed, asked


def test_the_rules_that_two_refusals_name_do_not_replace_one_another() -> None:
    other = wish("c1/desk", what="c1/hill/pmu-1/voltage")
    rules = AccessRules("c1", [rule_for(wish("c1/desk")), rule_for(other)])
    assert rules.decide(wish("c1/desk")).is_allowed
    assert rules.decide(other).is_allowed
    long = [wish(f"c1/{first}{'x' * 100}") for first in "ab"]
    assert len({rule_for(each).identifier for each in long}) == 2
    assert rule_for(other) == rule_for(other)


def test_a_rule_allows_its_own_actions_on_its_own_names_only() -> None:
    rules = AccessRules("c1", [rule(who="c1/desk", what="c1/hill/**")])
    assert rules.decide(wish("c1/desk")).rule == rules.get("r")
    assert not rules.decide(wish("c1/desk/other")).is_allowed
    assert not rules.decide(wish("c1/desk", what="c1/lake/pmu-1/frequency")).is_allowed
    for action in (Action.PUBLISH, Action.FIND, Action.FLOOD):
        assert not rules.decide(wish("c1/desk", action)).is_allowed


def test_priorities_one_and_two_need_a_rule_that_says_so() -> None:
    rules = AccessRules("c1", [rule()])
    assert rules.decide(wish("c1/desk", priority=3)).is_allowed
    refused = rules.decide(wish("c1/desk", priority=2))
    assert not refused.is_allowed
    assert "priority 3 or below, not at 2" in refused.reason
    assert "priority_best = 2" in refused.hint
    rules.add(rule("better", priority_best=1))
    assert rules.decide(wish("c1/desk", priority=1)).rule == rules.get("better")


def test_reserved_bytes_beyond_the_rule_are_refused() -> None:
    rules = AccessRules("c1", [rule(reserved_bytes_per_s=1_000)])
    assert rules.decide(wish("c1/desk", reserved_bytes_per_s=1_000)).is_allowed
    refused = rules.decide(wish("c1/desk", reserved_bytes_per_s=1_001))
    assert "reserve 1000 bytes/s" in refused.reason


def test_an_end_point_of_another_cloud_needs_an_export() -> None:
    everyone = rule(who="**")
    rules = AccessRules("c1", [everyone])
    assert rules.decide(wish("c1/desk")).is_allowed
    assert not rules.decide(wish("c2/desk")).is_allowed
    assert not rules.decide(wish("")).is_allowed
    rules.add(rule("named", who="c2/desk"))
    assert rules.decide(wish("c2/desk")).is_allowed
    assert not rules.decide(wish("c2/other")).is_allowed
    assert not rules.decide(wish("")).is_allowed
    rules.add(rule(who="**", is_exported=True))
    assert rules.decide(wish("c2/other")).is_allowed
    assert rules.decide(wish("")).is_allowed


def test_a_name_belongs_to_the_end_point_that_a_rule_names_present_or_not() -> None:
    station = "c1/hill"
    rules = AccessRules("c1", [rule(who="**", may=("publish",), what="**")])
    assert rules.decide(wish(station, Action.PUBLISH)).is_allowed
    rules.add(rule("pmu", who=HILL, may=("publish",), what=f"{HILL}/**"))
    refused = rules.decide(wish(station, Action.PUBLISH))
    assert refused.reason == f"{FREQUENCY} belongs to {HILL}, and {station} may not publish it"
    assert rules.decide(wish(HILL, Action.PUBLISH)).is_allowed
    rules.discard("pmu")
    assert rules.decide(wish(station, Action.PUBLISH)).is_allowed


def test_a_station_that_a_rule_names_does_not_own_what_its_devices_publish() -> None:
    rules = AccessRules("c1", [rule(who="**", may=("publish",), what="**")])
    rules.add(rule("station", who="c1/hill", may=("publish",), what="c1/hill/**"))
    assert rules.decide(wish("c1/hill", Action.PUBLISH)).is_allowed
    assert rules.decide(wish(HILL, Action.PUBLISH)).is_allowed
    assert not rules.decide(wish("c1/lake", Action.PUBLISH)).is_allowed


def test_a_rule_with_owner_reserves_names_for_each_end_point_that_its_pattern_matches() -> None:
    rules = AccessRules("c1", [rule(who="**", may=("publish",), what="**")])
    station = "c1/hill"
    rules.add(rule("pmus", who="c1/*/*", may=("publish",), what="c1/**", is_owner=True))
    assert rules.owner_of(FREQUENCY) == HILL
    assert rules.decide(wish(HILL, Action.PUBLISH)).is_allowed
    assert not rules.decide(wish(station, Action.PUBLISH)).is_allowed
    assert rules.owner_of("c1/hill") == ""
    rules.discard("pmus")
    assert rules.owner_of(FREQUENCY) == ""


@pytest.mark.parametrize(
    "wrong",
    [
        {"may": ()},
        {"may": ("read",)},
        {"may": ("find", "find")},
        {"role": "operator"},
        {"priority_best": 0},
        {"priority_best": 7},
        {"reserved_bytes_per_s": -1},
        {"delay_ms_max": 10_001},
        {"capacity_share": 1.5},
        {"who": "c1/**/x"},
        {"what": "c1//x"},
        {"identifier": "a/b"},
        {"identifier": ""},
        {"is_owner": True},
    ],
)
def test_a_rule_that_means_nothing_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(LayoutError):
        rule(**wrong)  # type: ignore[arg-type]


def test_a_rule_as_text_has_all_that_differs_from_the_defaults() -> None:
    found = rule("x", may=("publish", "find"), who="c1/a", is_owner=True, priority_best=1)
    assert settings_of(found) == {
        "name": "x",
        "who": "c1/a",
        "may": ["publish", "find"],
        "what": "c1/**",
        "priority_best": 1,
        "owner": True,
    }
    assert 'may = ["publish", "find"]\n' in toml_of(found)
    assert "--priority 1" in grant_command(found, "c1")


PARTS = st.sampled_from(["a", "b", "*"])
PATTERNS = st.builds(
    lambda parts, is_open: "/".join([*parts, "**"] if is_open else parts),
    st.lists(PARTS, min_size=1, max_size=3),
    st.booleans(),
)
NAMES = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map("/".join)


@given(PATTERNS, PATTERNS, NAMES)
def test_patterns_that_match_one_name_overlap(one: str, two: str, name: str) -> None:
    if matches(one, name) and matches(two, name):
        assert overlap(one, two)
        assert overlap(two, one)


@given(st.lists(st.tuples(PATTERNS, PATTERNS), max_size=8), NAMES, NAMES)
def test_the_index_decides_as_a_walk_over_all_rules(
    pairs: list[tuple[str, str]], who: str, what: str
) -> None:
    cloud = who.partition("/")[0]
    found = [
        rule(f"r{number}", who=one, what=two) for number, (one, two) in enumerate(pairs, start=1)
    ]
    rules = AccessRules(cloud, found)
    for removed in found[::2]:
        rules.discard(removed.identifier)
    expected = any(matches(each.who, who) and matches(each.what, what) for each in found[1::2])
    assert rules.decide(wish(who, what=what)).is_allowed == expected


@given(st.lists(st.tuples(st.integers(0, 3), NAMES | PATTERNS, PATTERNS), max_size=8), NAMES, NAMES)
def test_rules_that_change_between_decisions_decide_as_new_ones_do(
    changes: list[tuple[int, str, str]], who: str, what: str
) -> None:
    rules = AccessRules(who.partition("/")[0])
    for number, one, two in changes:
        if (before := rules.get(f"r{number}")) is not None and before.what == two:
            rules.discard(f"r{number}")
        else:
            rules.add(rule(f"r{number}", who=one, what=two))
        asked = wish(who, what=what)
        assert rules.decide(asked) == AccessRules(who.partition("/")[0], rules).decide(asked)


def test_a_rule_for_one_end_point_leaves_the_indexes_of_others() -> None:
    rules = AccessRules("c1", [rule(f"r{at}", who="c1/desk") for at in range(5)])
    own = rules.rules_of("c1/desk")
    rules.add(rule("new", who="c1/other"))
    assert rules.rules_of("c1/desk") is own
    rules.add(rule("more", who="c1/desk"))
    assert len(rules.rules_of("c1/desk")) == 6


def test_ten_thousand_rules_cost_a_decision_little() -> None:
    def steps_of(count: int) -> int:
        """Return the lines that decisions execute, which does not depend on the machine."""
        rules = AccessRules(
            "c1",
            [rule(f"r{at}", who=f"c1/*/desk-{at}", what=f"c1/s{at}/**") for at in range(count)],
        )
        asked = [wish(f"c1/room/desk-{at % 5}", what=f"c1/s{at % 5}/x/y") for at in range(20)]
        steps = 0

        def count_step(*_: object) -> Callable[..., Any]:
            nonlocal steps
            steps += 1
            return count_step

        before = sys.gettrace()
        sys.settrace(count_step)
        try:
            decisions = [rules.decide(each) for each in asked]
        finally:
            sys.settrace(before)
        assert all(each.is_allowed for each in decisions)
        return steps

    few = steps_of(5)
    assert few > 100, "steps are counted"
    assert steps_of(10_000) <= 1.05 * few


MANY = 10_000


@pytest.mark.parametrize(
    ("what", "asked", "is_allowed"),
    [
        ("c1/s-{}/**", "c1/*/x7", True),
        ("c1/s-{}/y", "c1/*/x7", True),
        ("c1/s-{}/y", "c1/**", True),
        ("c1/*/{}/y", "c1/s/*/x", True),
        ("c1/s-{}/y", "c1/absent/*", False),
        ("c1/s-{}/**", "c1/s-7/*", True),
    ],
)
def test_ten_thousand_rules_cost_a_pattern_no_more_than_a_few_looks(
    what: str, asked: str, is_allowed: bool
) -> None:
    """A distinct pattern cost 23 ms with 10,000 rules, and 258 ms with 100,000."""
    many = [rule(f"r{at}", what=what.format(at), priority_best=3) for at in range(MANY)]
    rules = AccessRules("c1", many)
    rules.decide(wish("c1/desk"))  # The rules are indexed from now on.
    who, action = "c1/desk", Action.SUBSCRIBE
    assert rules.may_any(who, action, asked, priority=5) == is_allowed
    assert not rules.may_any(who, action, asked, priority=2), "no rule has this priority"
    within = rules.allowed_within(who, action, asked)
    for each in many[:100]:
        common = common_pattern(each.what, asked)
        assert not common or any(overlap(common, part) for part in within)
    assert rules.looked <= 2 * (LOOKED_MAX + 4)


@pytest.mark.parametrize(
    ("one", "two", "both"),
    [
        ("**", "c1/**", "c1/**"),
        ("c1/*/x", "c1/a/*", "c1/a/x"),
        ("c1/**", "*/a/b", "c1/a/b"),
        ("c1/a/**", "c1/*/*/x", "c1/a/*/x"),
        ("c1/a", "c1/a", "c1/a"),
        ("c1/a", "c1/b", ""),
        ("c1/*", "c1/a/b", ""),
        ("c1/a/**", "c1/a", ""),
    ],
)
def test_what_two_patterns_have_in_common_is_one_pattern(one: str, two: str, both: str) -> None:
    assert common_pattern(one, two) == common_pattern(two, one) == both


def test_a_hint_is_made_only_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Wish] = []

    def needed(asked: Wish, cloud: str) -> str:
        made.append(asked)
        return cloud

    monkeypatch.setattr(access_rules, "needed", needed)
    decision = AccessRules("c1").decide(wish("c1/desk"))
    assert not made
    assert decision.hint
    assert made == [wish("c1/desk")]


def test_a_rule_for_one_part_does_not_allow_everything() -> None:
    rules = AccessRules("c1", [rule(what="*", may=("flood",)), rule("below", what="c1/*")])
    assert not rules.decide(wish("c1/desk", Action.FLOOD, "**")).is_allowed
    assert not rules.decide(wish("c1/desk", what="c1/**")).is_allowed


@pytest.mark.parametrize("key", ["who", "what"])
@pytest.mark.parametrize("name", ["c1/a'b", 'c1/a"b', "c1/[/x]", "c1/..", "c1/a\u200bb", "c1//x"])
def test_a_rule_names_legal_names_only(key: str, name: str) -> None:
    with pytest.raises(LayoutError, match=f"access rule r: {key}"):
        rule(**{key: name})


def test_a_name_of_an_earlier_release_is_allowed_by_a_pattern() -> None:
    asked = wish("c1/o'hare", what="c1/[/x]/frequency")
    found = rule_for(asked)
    assert (found.who, found.what) == ("c1/*", "c1/*/*/frequency")
    assert AccessRules("c1", [found]).decide(asked).is_allowed


def test_rules_found_by_the_parts_of_a_pattern_are_those_that_overlap_with_it() -> None:
    random = Random(1)
    parts = ("a", "b", "*")

    def drawn() -> str:
        found = "/".join(random.choice(parts) for _ in range(random.randint(1, 3)))
        return f"{found}/**" if random.random() < 0.3 else found

    patterns = [*dict.fromkeys(drawn() for _ in range(200)), "**"]
    rules = AccessRules("c1", [rule(f"r{at}", what=each) for at, each in enumerate(patterns)])
    for asked in patterns:
        common = {common_pattern(each, asked) for each in patterns if overlap(each, asked)}
        found = rules.allowed_within("c1/desk", Action.SUBSCRIBE, asked)
        assert sorted(found) == ([asked] if asked in common else sorted(common))
    few = AccessRules("c1", [rule(what="a/b"), rule("r2", what="b/*", priority_best=1)])
    assert few.may_any("c1/desk", Action.SUBSCRIBE, "*/b", priority=1)
    assert not few.may_any("c1/desk", Action.SUBSCRIBE, "a/*", priority=1)
    assert few.may_any("c1/desk", Action.SUBSCRIBE, "a/*")
    assert not few.may_any("c1/desk", Action.SUBSCRIBE, "a/b/**")
