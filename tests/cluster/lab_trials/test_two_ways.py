"""A sample of the soak: two ways, two edges at both ends, and every kind of fault costs nothing.

The same with 300 trials is `make soak-faults`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab.faults import STOP_S, Fault, FaultKind
from lab.grid import Grid
from lab.grid_plan import two_ways
from lab.load import GridLoad, LoadPlan
from lab.trials import Trials

if TYPE_CHECKING:
    from pathlib import Path

    from lab.trials import Summary

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]
SEED = 77
SAMPLE = [
    (FaultKind.KILL, "e0"),
    (FaultKind.KILL, "i3"),
    (FaultKind.KILL, "e2"),
    (FaultKind.CUT, "i0-i1"),
    (FaultKind.CUT_FORWARD, "i2-i3"),
    (FaultKind.CUT_BACKWARD, "e0-i0"),
    (FaultKind.CUT, "north/pmu-0-e1"),
    (FaultKind.CUT_BACKWARD, "centre/view-0-e3"),
    (FaultKind.CUT, "i1-i3"),
    (FaultKind.LOSS, "i3-e3"),
    (FaultKind.LOSS, "centre/view-0-e2"),
    (FaultKind.STOP, "i0"),
]


def faults(*chosen: tuple[FaultKind, str]) -> list[Fault]:
    return [
        Fault(
            number=number,
            kind=kind,
            target=target,
            phase_s=number * 0.0037,
            hold_s=STOP_S if kind is FaultKind.STOP else 1.0,
            seed=SEED + number,
        )
        for number, (kind, target) in enumerate(chosen, start=1)
    ]


def run(folder: Path, load_plan: LoadPlan, *chosen: tuple[FaultKind, str]) -> Summary:
    with Grid(two_ways(), folder) as grid:
        grid.start()
        load = GridLoad(grid, load_plan)
        load.start()
        return Trials(grid, load, tell=print).run(faults(*chosen), seed=SEED)


@pytest.mark.feature("S3-106")
def test_no_single_fault_loses_or_doubles_an_event(tmp_path: Path) -> None:
    summary = run(tmp_path, LoadPlan(), *SAMPLE)
    assert [str(trial) for trial in summary.failed] == []
    assert summary.trials == len(SAMPLE)
    assert summary.verdict.expected > 60 * len(SAMPLE)
    # A rung carries nothing, a way back no events, and a loss of 5 % leaves most: at least the
    # others were felt, or the sample would prove nothing.
    assert summary.felt >= 7


def test_a_single_way_loses_events_and_the_trial_says_so(tmp_path: Path) -> None:
    both = [(FaultKind.CUT, "e0-i0"), (FaultKind.CUT, "e1-i2")]
    summary = run(tmp_path, LoadPlan(redundancy=1), *both)
    assert summary.failed
    assert summary.verdict.lost
    assert not summary.verdict.duplicate
    assert not summary.verdict.altered
