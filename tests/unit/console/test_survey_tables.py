"""A survey as tables: what an operator reads of a router."""

from __future__ import annotations

import pytest

from gridstat.console.live.survey_tables import (
    router_state,
    subscription_table,
    thread_scheduling,
    worst_path,
)


@pytest.mark.parametrize(
    ("counters", "told"),
    [({}, ""), ({"fifo_priority": 0}, "ordinary"), ({"fifo_priority": 10}, "real-time 10")],
)
def test_a_router_tells_how_its_machine_lets_it_forward(
    counters: dict[str, int], told: str
) -> None:
    assert thread_scheduling(counters) == told


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"refusal": "no room", "refusals": 3}, "refuses its table (3): no room"),
        ({"refused_rows": 2}, "refuses 2 rows"),
        ({}, "catching up"),
    ],
    ids=["table", "rows", "neither"],
)
def test_top_shows_what_a_router_refuses(facts: dict[str, object], words: str) -> None:
    router = {
        "is_up": True,
        "is_connected": True,
        "in_step": False,
        "refusal": "",
        "refused_rows": 0,
        **facts,
    }
    assert router_state(router) == words


def test_top_shows_the_routers_of_a_broker_that_knows_of_no_refusals() -> None:
    router = {"is_up": True, "is_connected": True, "in_step": True}
    assert router_state(router) == "in step"


def path(name: str, expected: int, lost: int, **facts: object) -> dict[str, object]:
    routers = ["c1/e0", f"c1/i{name[-1]}", "c1/e1"]
    return {
        "name": name,
        "routers": routers,
        "expected": expected,
        "lost": lost,
        "is_open": True,
        **facts,
    }


@pytest.mark.parametrize(
    ("paths", "told"),
    [
        ([], ""),
        ([path("path 1", 100, 0), path("path 2", 100, 0)], ""),
        (
            [path("path 1", 1_000, 9), path("path 2", 100, 3)],
            "path 2 (c1/i2): 3 lost, 3.00 %",
        ),
        ([path("path 1", 100, 1), path("path 2", 100, 9, is_open=False)], "path 1 (c1/i1): 1"),
        ([path("path 1", 100, 1, routers=["c1/e0"]), path("path 2", 0, 0)], "path 1: 1 lost"),
        ([path("path 1", 0, 5)], "path 1 (c1/i1): 5 lost, 100.00 %"),
        ([path("path 1", 100, 9, is_counted=False)], ""),
        (
            [path("path 1", 100, 0), path("path 2", 100, 9, channel_names=["", "north"])],
            "path 2 (c1/i2 #north): 9 lost, 9.00 %",
        ),
    ],
)
def test_top_names_the_path_that_has_lost_the_largest_share(
    paths: list[dict[str, object]], told: str
) -> None:
    worst = worst_path(paths)
    assert worst.startswith(told)
    assert bool(worst) == bool(told)


def test_top_shows_what_slow_readers_of_a_subscriber_have_dropped() -> None:
    facts = {
        "subscriber": "c1/desk",
        "name": "c1/pmu/voltage",
        "paths": [["c1/e0"]],
        "ledger": {"expected": 60, "delivered": 60, "dropped": 1_234},
    }
    assert subscription_table([facts]).cells_of("dropped") == ["1,234"]
