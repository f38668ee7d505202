"""`gridstat access`: what is asked of which broker, and what a person reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gridstat.console.access import load_access
from gridstat.console.cli.access import (
    mode_line,
    observed_lines,
    questions,
    rule_table,
    why_lines,
)
from gridstat.console.config.grid_file import default_grid_text, grid_from_text
from gridstat.console.grid_folder import GridFolder
from gridstat.console.live.problems import sorted_problems

if TYPE_CHECKING:
    from pathlib import Path

    from gridstat.console.access import Access

FREQUENCY = "c2/coast/pmu-1/frequency"
MODE: dict[str, Any] = {"cloud": "c1", "mode": "enforce", "rule_count": 1, "refused": 2}
NO: dict[str, Any] = {
    **MODE,
    "who": "c1/desk",
    "action": "find",
    "what": FREQUENCY,
    "is_allowed": False,
    "rule": None,
    "reason": "no rule lets c1/desk find it",
    "hint": "an operator of cloud c1 allows it with `x`, or writes into its broker's file: y",
    "needed": '[[access_rule]]\nname = "a"',
}


@pytest.fixture
def access(tmp_path: Path) -> Access:
    text = default_grid_text()
    GridFolder(tmp_path, grid_from_text(text, file="test"), text).write()
    return load_access(tmp_path)


def test_both_clouds_are_asked_about_a_variable_of_another_cloud(access: Access) -> None:
    found = questions(access, "c1/desk", "subscribe", FREQUENCY, priority=2, at="")
    assert [broker.cloud for broker, _ in found] == ["c1", "c2"]
    assert {command.priority for _, command in found} == {2}
    (one,) = questions(access, "c1/desk", "find", "c1/x", priority=0, at="")
    assert one[0].cloud == "c1"
    (only,) = questions(access, "c1/desk", "find", FREQUENCY, priority=0, at="c2")
    assert only[0].cloud == "c2"


def test_an_operator_is_written_with_its_role(access: Access) -> None:
    ((_, command),) = questions(access, "operator/c1/alice", "flood", "c1/x", priority=0, at="")
    assert (command.who, command.role) == ("c1/alice", "operator")


def test_a_decision_names_its_rule_or_what_to_write() -> None:
    yes = NO | {"is_allowed": True, "rule": {"name": "desks"}}
    assert list(why_lines(yes)) == [f"c1: yes, c1/desk may find {FREQUENCY}: by rule desks"]
    assert list(why_lines(NO)) == [
        "c1: no: no rule lets c1/desk find it",
        "  an operator of cloud c1 allows it with `x`",
        "  or in its broker's file:",
        "    [[access_rule]]",
        '    name = "a"',
    ]
    assert "only observes" in list(why_lines(NO | {"mode": "observe"}))[1]


def test_rules_are_shown_with_their_bounds_and_whether_they_hold() -> None:
    rule = {"name": "a", "who": "c1/x", "may": ["find"], "what": "c1/**", "owner": True}
    table = rule_table(
        [
            {**rule, "from": "file", "is_in_force": True},
            {**rule, "from": "run time", "is_in_force": False, "priority_best": 1},
        ]
    )
    assert table.cells_of("from") == ["file", "run time, REVOKED"]
    assert table.cells_of("priority") == ["3", "1"]
    assert table.cells_of("bounds") == ["owner True", "owner True"]


def test_a_cloud_that_observes_says_so_and_lists_what_it_would_refuse() -> None:
    assert mode_line(MODE) == "cloud c1 enforces 1 rule; 2 requests were refused by them"
    observing = MODE | {"mode": "observe", "observed": 7, "rule_count": 0}
    refusal = {"count": 7, "reason": "no rule lets x", "command": "gridstat access grant x"}
    lines = list(observed_lines(observing | {"refusals_observed": [refusal]}))
    assert "does NOT ENFORCE them; 7 requests" in lines[0]
    assert lines[1:] == ["7 times: no rule lets x", "  gridstat access grant x"]
    owned = {"count": 1, "reason": "it belongs to y", "command": "", "hint": "publish other names"}
    most = [{"who": f"c1/m{at}", "count": 10 - at, "last_ns": 1} for at in range(6)]
    facts = observing | {"not_kept": {"refusals": 1_045, "identities": 9, "most": most}}
    lines = list(observed_lines(facts | {"refusals_observed": [owned]}))
    assert lines[1].startswith("1,045 wishes that would be refused NOT LISTED")
    assert lines[1].endswith(
        "10 of c1/m0, 9 of c1/m1, 8 of c1/m2, 7 of c1/m3, 6 of c1/m4 and of 4 more"
    )
    assert lines[-2:] == ["1 times: it belongs to y", "  publish other names"]


def test_what_is_wrong_with_the_access_of_a_cloud_is_a_problem() -> None:
    survey: dict[str, Any] = {
        "cloud": "c1",
        "routers": [],
        "channels": [],
        "subscriptions": [],
        "access": MODE,
    }
    assert sorted_problems(survey) == []
    (observing,) = sorted_problems(survey | {"access": MODE | {"mode": "observe", "observed": 1}})
    assert "cloud c1 does NOT ENFORCE access rules" in observing
    most = [{"who": "c1/mallory", "count": 950, "last_ns": 1}]
    lost = {"refusals": 950, "identities": 1, "most": most}
    access = MODE | {"mode": "observe", "observed": 1, "not_kept": lost}
    assert "NOT LISTED" in sorted_problems(survey | {"access": access})[1]
    (empty,) = sorted_problems(survey | {"access": MODE | {"rule_count": 0}})
    assert "admits nobody" in empty
