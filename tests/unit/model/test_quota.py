"""Quotas of an identity: defaults, bounds, and rules that only ever raise."""

from __future__ import annotations

from fractions import Fraction

import pytest

from gridstat.model.access_rules import AccessRule
from gridstat.model.errors import LayoutError
from gridstat.model.quota import Quota, exact_share, raised


def rule(**figures: float) -> AccessRule:
    return AccessRule("r", "c1/recorder", ("subscribe",), "**", **figures)  # type: ignore[arg-type]


def test_rules_raise_single_figures_and_lower_none() -> None:
    found = raised(Quota(), [rule(capacity_share=1.0), rule(variables=3), rule(sessions=4)])
    assert found == Quota(capacity_share=1.0, sessions=4)
    assert raised(Quota(), [rule(subscriptions=50_000)]).subscriptions == 50_000


def test_a_rule_may_lift_the_bound_on_commands() -> None:
    assert raised(Quota(commands_per_s=10), [rule(commands_per_s=5)]).commands_per_s == 10
    assert raised(Quota(commands_per_s=10), [rule(commands_per_s=0)]).commands_per_s == 0
    assert raised(Quota(commands_per_s=0), [rule(commands_per_s=5)]).commands_per_s == 0


def test_a_share_is_as_exact_as_its_text() -> None:
    assert exact_share(0.1) == Fraction(1, 10)
    assert Quota().share == Fraction(1, 4)


@pytest.mark.parametrize(
    "figures", [{"capacity_share": 1.1}, {"capacity_share": -0.1}, {"variables": -1}]
)
def test_figures_are_bounded(figures: dict[str, float]) -> None:
    with pytest.raises(LayoutError):
        Quota(**figures)  # type: ignore[arg-type]
