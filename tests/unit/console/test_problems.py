"""Lines of the page of problems."""

from __future__ import annotations

from typing import Any

from gridstat.console.live.problems import sorted_problems


def survey(ledger: dict[str, int]) -> dict[str, Any]:
    subscription = {"subscriber": "c1/desk", "name": "c1/pmu/voltage", "ledger": ledger}
    return {"routers": [], "channels": [], "subscriptions": [subscription]}


def test_the_operator_is_told_of_slots_that_a_set_clock_has_cost() -> None:
    ledger = {"expected": 6_001, "delivered": 5_900, "lost": 1_101, "lost_to_clock": 1_001}
    assert sorted_problems(survey(ledger)) == [
        "c1/desk with c1/pmu/voltage: 1,101 lost of 6,001; "
        "1,001 of the lost as the publisher's clock was set: look at it"
    ]


def test_nothing_is_said_of_clocks_where_none_was_set() -> None:
    assert sorted_problems(survey({"expected": 60, "lost": 3, "lost_to_clock": 0})) == [
        "c1/desk with c1/pmu/voltage: 3 lost of 60"
    ]


def test_the_operator_is_told_to_compare_clocks_where_a_router_refuses_stamps() -> None:
    counters = {"policed_stamp": 1_200, "policed_slot": 3}
    router = {"name": "c1/e0", "is_up": True, "is_connected": True, "in_step": True}
    facts = {"routers": [{**router, "counters": counters}], "channels": [], "subscriptions": []}
    assert sorted_problems(facts)[-1] == (
        "router c1/e0 has dropped 1,203 events, 1,200 of them with stamps far from its clock: "
        "compare its clock with the publishers'"
    )
