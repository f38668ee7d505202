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


def test_the_operator_is_told_of_channels_without_a_fresh_seed() -> None:
    router = {"name": "c1/e0", "is_up": True, "is_connected": True, "in_step": True}
    facts: dict[str, Any] = {
        "routers": [{**router, "counters": {"seeds_overdue": 2}}],
        "channels": [],
        "subscriptions": [],
        "keys": {"overdue": ["c1/e0→c1/i0"], "closed": ["channel c1/a→c1/b is to be sealed"]},
    }
    assert sorted_problems(facts) == [
        "channel c1/a→c1/b is to be sealed",
        "channel c1/e0→c1/i0 has had no fresh seed for long: it stops 24 h after its last one",
        "router c1/e0: 2 channels without a fresh seed",
    ]
    facts["routers"][0]["counters"]["seeds_overdue"] = 0
    facts["keys"] = {"overdue": [], "closed": []}
    assert sorted_problems(facts) == []


def test_end_points_that_do_not_seal_are_named_by_their_edge() -> None:
    facts = {
        "routers": [],
        "channels": [],
        "subscriptions": [],
        "keys": {"plain_end_points": {"c1/e0": 1, "c1/e2": 3}},
    }
    assert sorted_problems(facts) == [
        f"router {ends}, whose events anybody can read and forge"
        for ends in (
            "c1/e0: 1 end-point with security none",
            "c1/e2: 3 end-points with security none",
        )
    ]


def test_channels_that_get_no_key_are_among_the_worst_problems() -> None:
    router = {"name": "c1/e0", "is_up": True, "is_connected": True, "in_step": True}
    counters = {"channels_long_without_key": 2, "channels_without_key": 3, "seeds_overdue": 1}
    facts = {"routers": [{**router, "counters": counters}], "channels": [], "subscriptions": []}
    assert sorted_problems(facts)[:1] == [
        "router c1/e0: 2 channels without a key, which carry no events: check the sessions of "
        "their ends"
    ]
    counters["channels_long_without_key"] = 0
    assert not any("without a key" in line for line in sorted_problems(facts))
