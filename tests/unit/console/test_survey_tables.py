"""A survey as tables: what an operator reads of a router."""

from __future__ import annotations

import pytest

from gridstat.console.live.tables import thread_scheduling


@pytest.mark.parametrize(
    ("counters", "told"),
    [({}, ""), ({"fifo_priority": 0}, "ordinary"), ({"fifo_priority": 10}, "real-time 10")],
)
def test_a_router_tells_how_its_machine_lets_it_forward(
    counters: dict[str, int], told: str
) -> None:
    assert thread_scheduling(counters) == told
