"""A router behind a bad wire: it survives every fault, accounts for all it met, and recovers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from lab.grid import Grid
from lab.grid_plan import EndPointPlan, GridPlan, LinkPlan, RouterPlan
from lab.ledger import Verdict, Window
from lab.load import GridLoad, LoadPlan
from lab.relay import Direction, LinkFaults
from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
WIRE = "e0-i0"
NS_PER_S = 1_000_000_000
OFTEN = 20
FAULTS = {
    "out": LinkFaults(delay_ms=30.0, jitter_ms=40.0, seed=1),
    "lost": LinkFaults(loss=0.2, burst_min=3, burst_max=5, seed=2),
    "duplicated": LinkFaults(duplicate=0.5, seed=3),
    "reordered": LinkFaults(reorder=0.5, seed=4),
    "corrupted": LinkFaults(corrupt=0.3, seed=5),
    "full": LinkFaults(rate_bytes_per_s=6_000, queue_bytes=2_000, seed=6),
}
"""Faults by the relay's counter that shows their effect."""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Grid, GridLoad]]:
    plan = GridPlan(
        routers=(RouterPlan("e0", is_edge=True), RouterPlan("i0"), RouterPlan("e1", is_edge=True)),
        links=(LinkPlan("e0", "i0"), LinkPlan("i0", "e1")),
        end_points=(EndPointPlan("north/pmu", ("e0",)), EndPointPlan("view", ("e1",))),
    )
    with Grid(plan, tmp_path_factory.mktemp("survival")) as grid:
        grid.start()
        load = GridLoad(grid, LoadPlan(redundancy=1))
        load.start()
        yield grid, load


def complaint_of_counters(grid: Grid) -> str | None:
    """Return None if the router behind the wire accounts for every event that it received."""
    found = next(at for at in grid.survey()["routers"] if at["name"] == "c1/i0")["counters"]
    reasons = ("malformed", "unknown", "policed", "duplicate", "not_due", "dispatched")
    met = sum(found[reason] for reason in reasons)
    return None if found["in"] == met > 0 else f"{found['in']} in, {met} accounted for: {found}"


@pytest.mark.feature("S3-92")
@pytest.mark.parametrize("counter", FAULTS)
def test_a_router_survives_a_bad_wire_and_forwards_all_once_it_is_good(
    loaded: tuple[Grid, GridLoad], counter: str
) -> None:
    grid, load = loaded
    process_id = grid.daemons["i0"].pid
    before = getattr(grid.network.counters(WIRE)[Direction.FORWARD], counter)

    def complaint_of_wire() -> str | None:
        done = getattr(grid.network.counters(WIRE)[Direction.FORWARD], counter) - before
        return None if done >= OFTEN else f"{counter} only {done} times"

    grid.network.set_faults(WIRE, FAULTS[counter])
    eventually(complaint_of_wire)
    grid.network.clear(WIRE)
    eventually(lambda: grid.complaint_of_state() or load.complaint())
    assert grid.daemons["i0"].is_running
    assert grid.daemons["i0"].pid == process_id
    eventually(lambda: complaint_of_counters(grid))

    windows = [Window(time.time_ns(), time.time_ns() + NS_PER_S)]

    def complaint_of_window() -> str | None:
        """Return a complaint about the newest whole second, or None.

        A forged stamp takes the place of an event at most 256 slots ahead, so on an unauthenticated
        channel the first seconds may still lack one.
        """
        if time.time_ns() < windows[-1].to_ns:
            return "the second has not passed"
        verdict: Verdict = load.judge(windows[-1])
        if verdict.is_clean and verdict.expected > OFTEN:
            return None
        if time.time_ns() > windows[-1].to_ns + NS_PER_S:
            windows.append(Window(time.time_ns(), time.time_ns() + NS_PER_S))
        return str(verdict)

    eventually(complaint_of_window)
