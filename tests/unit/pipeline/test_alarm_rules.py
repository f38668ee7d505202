"""Files of alarm rules: they become laws, and an error names its place and a remedy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from gridstat.model.alarms.limits import Limits, RateOfChange
from gridstat.model.alarms.oscillation import Oscillation
from gridstat.model.alarms.runs import Finding
from gridstat.model.alarms.silence import Silence
from gridstat.model.errors import ConfigurationError
from gridstat.pipeline.alarm_kinds import KINDS
from gridstat.pipeline.alarm_rules import RULES_MAX, default_text, load_rules, rules_from_text

if TYPE_CHECKING:
    from pathlib import Path

RULE = """[[rule]]
name = "low"
kind = "threshold"
variables = ["c1/*/voltage"]
below = 0.9
"""


def changed(text: str, by: str) -> str:
    assert text in RULE
    return RULE.replace(text, by)


def test_the_shipped_rules_have_every_kind() -> None:
    rules = load_rules()
    assert {rule.kind for rule in rules} == set(KINDS)
    laws = {type(rule.law) for rule in rules}
    assert laws == {Limits, RateOfChange, Silence, Oscillation}


def test_a_rule_watches_what_its_patterns_stand_for() -> None:
    (rule,) = rules_from_text(RULE, file="f")
    assert rule.watches("c1/north/voltage")
    assert not rule.watches("c1/north/frequency")
    assert not rule.watches("c2/north/voltage")


def test_stages_are_rules_of_their_own() -> None:
    names = {rule.name: rule.severity for rule in load_rules()}
    assert names["under-frequency-1"] == "warning"
    assert names["under-frequency-2"] == "critical"


def test_an_alarm_is_put_into_words() -> None:
    (rule,) = rules_from_text(RULE + "hold_s = 0.5\n", file="f")
    assert (
        rule.text("c1/a/voltage", Finding(0, 0.85, 0.9)) == "c1/a/voltage: 0.85 below 0.9 for 0.5 s"
    )


def test_a_file_is_read_and_a_missing_one_named(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text(RULE)
    assert len(load_rules(tmp_path / "rules.toml")) == 1
    with pytest.raises(ConfigurationError, match="no such file"):
        load_rules(tmp_path / "gone.toml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[rule]", "not TOML"),
        ("x = 1", "unknown key `x`"),
        ("rule = 3", "unknown key `rule`"),
        ("rule = [3]", r"rule\[0\]: not a table"),
        (changed('"low"', '"Low Volt"'), "name 'Low Volt'"),
        (changed('"threshold"', '"treshold"'), "did you mean threshold"),
        (changed('["c1/*/voltage"]', "[]"), "variables"),
        (changed("c1/*/", "c1/**/"), "not understood"),
        (changed("below = 0.9", ""), "neither or both"),
        (changed("below = 0.9", 'below = "0.9"'), "without quotes"),
        (changed("below = 0.9", "below = inf"), "a finite number"),
        (changed("below = 0.9", "belo = 0.9"), "did you mean `below`"),
        (RULE + "hold_s = -1\n", "0 to 600"),
        (RULE + "clear_s = 0\n", "0.1 to 3600"),
        (RULE + 'severity = "bad"\n', "one of notice, warning, critical"),
        (RULE + RULE, 'two rules are called "low"'),
        (RULE * (RULES_MAX + 1), f"{RULES_MAX + 1} rules"),
    ],
)
def test_a_mistake_is_told_with_a_hint(text: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        rules_from_text(text, file="f.toml")
    assert str(error.value).startswith("f.toml")
    assert error.value.hint
    assert re.search(told, str(error.value))


@pytest.mark.parametrize(
    ("kind", "text", "told"),
    [
        ("band", "low = 2\nhigh = 1", "not below"),
        ("rate", "window_s = 1", "per_s is missing"),
        ("missing", "slots = 1.5", "whole"),
        ("frequency", "stages = []", "1 to 8"),
        ("frequency", "stages = [3]", "no table"),
        ("frequency", "stages = [{ below = 59, severity = 'x' }]", "severity 'x'"),
        ("oscillation", "amplitude = 1\nwindow_s = 4", "10 or more"),
        ("oscillation", "amplitude = 1\nlow_hz = 2.2", "swap"),
        ("oscillation", "amplitude = 1\ngap_s = 0.1", "1 or more"),
    ],
)
def test_each_kind_checks_its_own_keys(kind: str, text: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        rules_from_text(
            f'[[rule]]\nname = "a"\nkind = "{kind}"\nvariables = ["**"]\n{text}\n', file="f"
        )


def test_every_rule_of_the_shipped_file_says_what_it_is_for() -> None:
    assert default_text().count("[[rule]]") == 7


@pytest.mark.parametrize("value", ["9" * 5_000, "[" * 5_000 + "]" * 5_000])
def test_a_value_without_end_is_one_message(value: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        rules_from_text(f"rule = {value}", file="f")
