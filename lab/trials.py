"""Trials: one fault after another on a grid under load, each judged separately by the ledger.

The windows of the trials join without a gap, so that every event of the whole run is judged, also
during a recovery. A trial begins only when both ways are whole again: two ways do not promise to
mask two faults at once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, assert_never

from lab.errors import LabError
from lab.faults import Fault, FaultKind
from lab.ledger import Verdict, Window
from lab.relay import Direction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lab.grid import Grid

SETTLE_S: Final = 3.0
"""Time after which a missing event counts as lost."""

POLL_S: Final = 0.05
TRIED_OFTEN: Final = 8
BITING: Final = {FaultKind.KILL, FaultKind.STOP, FaultKind.CUT, FaultKind.CUT_FORWARD}
"""Kinds that remove copies of every used way; streams go forward, and loss spares most copies."""
WHOLE_S_MAX: Final = 60.0
DIRECTIONS: Final = {
    FaultKind.CUT: Direction.BOTH,
    FaultKind.CUT_FORWARD: Direction.FORWARD,
    FaultKind.CUT_BACKWARD: Direction.BACKWARD,
}


class Load(Protocol):
    """Publishers and subscribers that run all the time, as far as trials use them."""

    def complaint(self) -> str | None:
        """Return None if every subscription gets its copies over every way."""

    def judge(self, window: Window) -> Verdict:
        """Judge the events created in the window, up to now."""

    def forget_before(self, created_ns: int) -> None:
        """Drop events from before that time, since no later window reaches back to them."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One fault, and the verdict on the events from the last trial's end to its own.

    It was felt if, at the end of the fault, some subscription lacked the copies of a way.
    """

    fault: Fault
    verdict: Verdict
    is_felt: bool
    recovered_s: float

    def __str__(self) -> str:
        state = "clean" if self.verdict.is_clean else "FAILED"
        felt = "felt" if self.is_felt else "not felt"
        whole = f"whole after {self.recovered_s:.2f} s"
        return f"{self.fault}: {state}, {felt}, {whole}, {self.verdict}"


@dataclass(frozen=True, slots=True)
class Summary:
    """Totals of a whole run; `busy` is the share of the machine's processors that was in use.

    `ended_by` is the reason of an early end: a grid that does not become whole again fails the run.
    """

    seed: int
    trials: int = 0
    took_s: float = 0.0
    busy: float = 0.0
    felt: int = 0
    ended_by: str = ""
    verdict: Verdict = field(default_factory=Verdict)
    failed: tuple[Trial, ...] = ()
    unfelt: tuple[str, ...] = ()
    """Kinds of faults that were tried often and never felt: they prove nothing."""

    @property
    def is_passed(self) -> bool:
        return not self.failed and not self.ended_by and not self.unfelt

    @property
    def facts(self) -> dict[str, float | str]:
        """Return the totals as flat fields, for a line of JSON."""
        return {
            "seed": self.seed,
            "ended_by": self.ended_by,
            "trials": self.trials,
            "failed": len(self.failed),
            "felt": self.felt,
            "unfelt_kinds": ",".join(self.unfelt),
            "expected": self.verdict.expected,
            "lost": len(self.verdict.lost),
            "duplicate": len(self.verdict.duplicate),
            "altered": len(self.verdict.altered),
            "unpublished": len(self.verdict.unpublished),
            "late": self.verdict.late,
            "latency_ms_max": self.verdict.latency_ns_max / 1e6,
            "took_s": round(self.took_s, 1),
            "busy": round(self.busy, 2),
        }


class Trials:
    """A grid under load, and the time up to which everything is judged."""

    def __init__(self, grid: Grid, load: Load, *, tell: Callable[[str], None]) -> None:
        self._grid = grid
        self._load = load
        self._tell = tell
        self._from_ns = 0

    def run(self, faults: Iterable[Fault], *, seed: int) -> Summary:
        """Run all faults in order; a failed trial is reported and does not end the run."""
        self._grid.wait_for(self._complaint, within_s=WHOLE_S_MAX)
        self._from_ns = time.time_ns()
        started_s, before = time.monotonic(), processor_ticks()
        done: list[Trial] = []
        ended_by = ""
        for fault in faults:
            try:
                done.append(self._run_one(fault))
            except LabError as error:
                ended_by = f"{fault}: {error}"
                break
            self._tell(str(done[-1]))
        after = processor_ticks()
        return Summary(
            seed=seed,
            trials=len(done),
            took_s=time.monotonic() - started_s,
            busy=(after[0] - before[0]) / max(after[1] - before[1], 1),
            ended_by=ended_by,
            felt=sum(trial.is_felt for trial in done),
            verdict=sum((trial.verdict for trial in done), Verdict()),
            failed=tuple(trial for trial in done if not trial.verdict.is_clean),
            unfelt=unfelt_kinds(done),
        )

    def _run_one(self, fault: Fault) -> Trial:
        time.sleep(fault.phase_s)
        is_felt = self._harm(fault)
        restored_s = time.monotonic()
        self._grid.wait_for(self._complaint, within_s=WHOLE_S_MAX)
        recovered_s = time.monotonic() - restored_s
        window = Window(self._from_ns, time.time_ns())
        verdict = self._settled(window)
        self._load.forget_before(window.to_ns)
        self._from_ns = window.to_ns
        return Trial(fault, verdict, is_felt, recovered_s)

    def _harm(self, fault: Fault) -> bool:
        """Cause the fault, hold it, and repair it; return whether it was felt."""
        grid, target = self._grid, fault.target
        match fault.kind:
            case FaultKind.KILL:
                grid.daemons[target].kill()
                is_felt = self._hold(fault)
                grid.restart(target)
            case FaultKind.STOP:
                grid.daemons[target].pause()
                is_felt = self._hold(fault)
                grid.daemons[target].resume()
            case FaultKind.LOSS:
                grid.network.set_faults(target, fault.link_faults)
                is_felt = self._hold(fault)
                grid.network.clear(target)
            case FaultKind.CUT | FaultKind.CUT_FORWARD | FaultKind.CUT_BACKWARD:
                grid.network.cut(target, direction=DIRECTIONS[fault.kind])
                is_felt = self._hold(fault)
                grid.network.heal(target)
            case _:
                assert_never(fault.kind)
        return is_felt

    def _hold(self, fault: Fault) -> bool:
        time.sleep(fault.hold_s)
        return self._load.complaint() is not None

    def _settled(self, window: Window) -> Verdict:
        """Return the verdict once it is clean, or once all events in transit are overdue."""
        deadline = time.monotonic() + SETTLE_S
        while not (verdict := self._load.judge(window)).is_clean:
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_S)
        return verdict

    def _complaint(self) -> str | None:
        return self._grid.complaint_of_state() or self._load.complaint()


def unfelt_kinds(trials: Iterable[Trial]) -> tuple[str, ...]:
    """Return the kinds that must be felt, were tried often, and never were."""
    felt_by_kind: dict[FaultKind, list[bool]] = {}
    for trial in trials:
        felt_by_kind.setdefault(trial.fault.kind, []).append(trial.is_felt)
    return tuple(
        sorted(
            kind.name.lower()
            for kind, felt in felt_by_kind.items()
            if kind in BITING and len(felt) >= TRIED_OFTEN and not any(felt)
        )
    )


def processor_ticks() -> tuple[int, int]:
    """Return the ticks of all processors since the start: busy, and in total."""
    first = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    ticks = [int(word) for word in first.split()[1:9]]
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, sum(ticks)
