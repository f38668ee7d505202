"""Trials: they cause and undo their fault, judge every event once, and report failures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

import lab.trials
from lab.errors import LabError
from lab.faults import Fault, FaultKind
from lab.ledger import Verdict, Window
from lab.trials import TRIED_OFTEN, Trials

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.trials import Summary


class Recorded:
    """Stands for any part of a grid: notes what is done to it, by name."""

    def __init__(self, calls: list[str], name: str) -> None:
        self._calls = calls
        self._name = name

    def __getattr__(self, verb: str) -> Callable[..., None]:
        def note(*arguments: object, **options: object) -> None:
            words = [str(word) for word in (*arguments, *options.values())]
            self._calls.append(" ".join([self._name, verb, *words]))

        return note


class StubGrid:
    """A grid that is whole unless its load complains; it does not wait."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.daemons = {"e0": Recorded(self.calls, "e0")}
        self.network = Recorded(self.calls, "network")

    def restart(self, name: str) -> None:
        self.calls.append(f"restart {name}")

    def complaint_of_state(self) -> str | None:
        return None

    def wait_for(self, complaint: Callable[[], str | None], *, within_s: float) -> None:
        if (last := complaint()) is not None:
            raise LabError(last)
        self.calls.append("whole")


@dataclass
class StubLoad:
    """A load whose verdicts are given; notes the windows that it was asked for."""

    verdicts: list[Verdict]
    windows: list[Window] = field(default_factory=list)
    complaints: list[str | None] = field(default_factory=list)

    def complaint(self) -> str | None:
        return self.complaints.pop(0) if self.complaints else None

    def judge(self, window: Window) -> Verdict:
        self.windows.append(window)
        return self.verdicts.pop(0) if len(self.verdicts) > 1 else self.verdicts[0]

    def forget_before(self, created_ns: int) -> None:
        assert created_ns == self.windows[-1].to_ns


def fault(kind: FaultKind, target: str = "e0") -> Fault:
    return Fault(number=1, kind=kind, target=target, phase_s=0.0, hold_s=0.0, seed=5)


def run(grid: Any, load: StubLoad, *faults: Fault) -> tuple[Summary, list[str]]:
    told: list[str] = []
    return Trials(grid, load, tell=told.append).run(faults, seed=9), told


@pytest.mark.parametrize(
    ("kind", "target", "done"),
    [
        (FaultKind.KILL, "e0", ["e0 kill", "restart e0"]),
        (FaultKind.STOP, "e0", ["e0 pause", "e0 resume"]),
        (FaultKind.CUT, "w", ["network cut w Direction.BOTH", "network heal w"]),
        (FaultKind.CUT_FORWARD, "w", ["network cut w Direction.FORWARD", "network heal w"]),
        (FaultKind.CUT_BACKWARD, "w", ["network cut w Direction.BACKWARD", "network heal w"]),
    ],
)
def test_a_fault_is_done_and_undone_while_the_grid_is_whole_before_and_after(
    kind: FaultKind, target: str, done: list[str]
) -> None:
    grid = StubGrid()
    run(grid, StubLoad([Verdict(expected=3)]), fault(kind, target))
    assert grid.calls == ["whole", *done, "whole"]


def test_a_lossy_wire_gets_the_settings_of_the_fault_and_is_cleared() -> None:
    grid = StubGrid()
    lossy = fault(FaultKind.LOSS, "w")
    run(grid, StubLoad([Verdict()]), lossy)
    assert grid.calls[1:3] == [f"network set_faults w {lossy.link_faults}", "network clear w"]


def test_windows_of_trials_join_without_a_gap() -> None:
    load = StubLoad([Verdict(expected=5)])
    summary, _ = run(StubGrid(), load, *[fault(FaultKind.KILL)] * 3)
    assert [window.from_ns for window in load.windows[1:]] == [
        window.to_ns for window in load.windows[:-1]
    ]
    assert (summary.trials, summary.verdict.expected, summary.is_passed) == (3, 15, True)


def test_a_fault_is_felt_if_a_way_is_missed_at_its_end() -> None:
    load = StubLoad([Verdict()], complaints=[None, "one way"])
    summary, told = run(StubGrid(), load, *[fault(FaultKind.KILL)] * 2)
    assert summary.felt == summary.facts["felt"] == 1
    assert ", felt," in told[0]
    assert "not felt" in told[1]


@pytest.mark.parametrize(
    ("kind", "is_passed"), [(FaultKind.KILL, False), (FaultKind.CUT_BACKWARD, True)]
)
def test_a_run_whose_faults_never_bite_proves_nothing_and_fails(
    kind: FaultKind, is_passed: bool
) -> None:
    summary, _ = run(StubGrid(), StubLoad([Verdict()]), *[fault(kind)] * TRIED_OFTEN)
    assert summary.felt == 0
    assert summary.is_passed is is_passed


def test_a_grid_that_does_not_recover_ends_the_run_as_failed() -> None:
    load = StubLoad([Verdict()], complaints=[None, None, "e0 is not in step"])
    summary, told = run(StubGrid(), load, *[fault(FaultKind.KILL)] * 3)
    assert (summary.trials, told) == (0, [])
    assert not summary.is_passed
    assert "kill -9, then restart e0" in summary.ended_by
    assert "e0 is not in step" in str(summary.facts["ended_by"])


def test_what_arrives_while_it_settles_is_not_lost() -> None:
    load = StubLoad([Verdict(lost=[(1, 2)]), Verdict(expected=1)])
    summary, _ = run(StubGrid(), load, fault(FaultKind.KILL))
    assert summary.verdict == Verdict(expected=1)


def test_a_failed_trial_is_told_with_its_fault_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lab.trials, "SETTLE_S", 0.0)
    load = StubLoad([Verdict(expected=1, lost=[(1, 2)])])
    summary, told = run(StubGrid(), load, fault(FaultKind.KILL))
    assert "kill -9, then restart e0" in told[0]
    assert "FAILED" in told[0]
    assert not summary.is_passed
    facts = summary.facts
    assert (facts["seed"], facts["trials"], facts["failed"], facts["lost"]) == (9, 1, 1, 1)
