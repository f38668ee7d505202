"""Another checkout of gridstat beside this one: the same measurement in both, in turns.

Each run is a process of its own, `gridstat experiment run NAME` of its checkout with that one's
core, daemons and benchmarks. The two take turns, and every other pair begins with the other one;
what is judged is the median of the ratios of adjacent runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.errors import BenchmarkError
from benchmarks.experiments.experiment import Bound, Parameter
from benchmarks.statistics import median_ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.experiments.experiment import Figure, Progress

HERE: Final = Path(__file__).resolve().parent.parent
RATIO_MAX: Final = 1.05
RUN_S_MAX: Final = 1_800
AGAINST: Final = Parameter("against", "", "another built checkout, to compare with it in turns")
PAIRS: Final = Parameter("against_pairs", 5, "runs of each of both checkouts", least=1)


def compared(
    name: str,
    checkout: str,
    settings: Mapping[str, Figure],
    costs: Mapping[str, str],
    pairs: int,
    progress: Progress,
    run: Callable[[Path, str, Mapping[str, Figure]], dict[str, float]] | None = None,
) -> tuple[dict[str, Figure], tuple[Bound, ...]]:
    """Return the ratio of each cost to that of another checkout, and its bounds.

    `costs` are figures of the experiment by the name of their ratio; `1/` before a figure says that
    less of it is slower.
    """
    there = checked(checkout)
    run = run or run_once
    ours, theirs = list[dict[str, float]](), list[dict[str, float]]()
    for pair in range(pairs):
        turns: list[tuple[Path, list[dict[str, float]]]] = [(HERE, ours), (there, theirs)]
        for at, (where, kept) in enumerate(turns if pair % 2 == 0 else turns[::-1]):
            progress((2 * pair + at) / (2 * pairs), f"{name} of {where}")
            kept.append(run(where, name, settings))
    figures: dict[str, Figure] = {"against_pairs": pairs}
    bounds = []
    for cost, figure in costs.items():
        ratio = round(median_ratio(_costs(ours, figure), _costs(theirs, figure)), 3)
        figures[f"{cost}_ratio"] = ratio
        bounds.append(Bound(f"{cost}_ratio", ratio, RATIO_MAX))
    return figures, tuple(bounds)


def checked(checkout: str) -> Path:
    """Return the folder of a checkout that is built; raise `BenchmarkError` otherwise."""
    there = Path(checkout).resolve()
    if not (there / "benchmarks" / "experiments").is_dir():
        raise BenchmarkError(f"{there} is no checkout of gridstat", hint="--set against=../before")
    if not list((there / "gridstat" / "core").glob("_core.*.so")):
        raise BenchmarkError(f"the core of {there} is not built", hint=f"make -C {there} install")
    return there


def run_once(checkout: Path, name: str, settings: Mapping[str, Figure]) -> dict[str, float]:
    """Run an experiment of a checkout in a process of its own; return its figures."""
    given = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    found = subprocess.run(
        [sys.executable, "-P", "-m", "gridstat", "experiment", "run", name, *given, "--json"],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_S_MAX,
    )
    lines = found.stdout.strip().splitlines()
    if not lines:
        raise BenchmarkError(f"{name} of {checkout} failed: {found.stderr.strip()[-500:]}")
    figures: dict[str, float] = json.loads(lines[-1])
    return figures


def _costs(runs: Sequence[Mapping[str, float]], figure: str) -> list[float]:
    is_speed = figure.startswith("1/")
    values = [float(run[figure.removeprefix("1/")]) for run in runs]
    return [1.0 / value for value in values] if is_speed else values
