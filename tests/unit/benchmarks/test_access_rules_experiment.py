"""The rules and the loss of the experiment on access rules."""

from __future__ import annotations

import pytest

from benchmarks.experiments.access_rules import ONE, OTHERS, OWN, over_both_orders, rules_of
from gridstat.model.access_rules import AccessRules


@pytest.mark.parametrize(("kind", "applying"), [(ONE, 1), (OTHERS, 1), (OWN, 50)])
def test_rules_apply_to_the_clients_in_their_own_lane(kind: str, applying: int) -> None:
    rules = AccessRules("c1", rules_of(kind, 50))
    assert len(rules) == (1 if kind == ONE else 50)
    assert len(rules.rules_of("c1/client-0")) == applying


def test_an_order_of_starting_that_favours_one_cloud_cancels_out() -> None:
    faster_when_last = [1.25, 1.25, 0.8, 0.8]
    assert over_both_orders(faster_when_last, 2) == pytest.approx(1.0)
    assert over_both_orders([0.9 * each for each in faster_when_last], 2) == pytest.approx(0.9)
