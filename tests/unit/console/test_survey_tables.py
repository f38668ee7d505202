"""A survey as tables: what an operator reads of a router."""

from __future__ import annotations

import pytest

from gridstat.console.live.tables import router_state, thread_scheduling


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
