"""`python -m lab.soak`: many faults on one grid under load; `make soak-faults` is this with 300.

The exit code is 1 if any trial lost, doubled or altered an event, or the grid did not recover. The
seed is printed first, and again in the last line, which with --json holds the figures as flat
fields.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
from itertools import islice
from pathlib import Path

from lab.faults import FaultKind, schedule
from lab.grid import Grid
from lab.grid_plan import two_ways
from lab.load import GridLoad, LoadPlan
from lab.trials import Summary, Trials

FOLDER = Path("build/lab/soak")
TRIALS = 300
SEED_MAX = 2**32


def main(argv: list[str] | None = None) -> int:
    asked = _parser().parse_args(argv)
    seed = random.SystemRandom().randrange(SEED_MAX) if asked.seed is None else asked.seed
    kinds = [FaultKind[name.upper().replace("-", "_")] for name in asked.kinds]
    tell(f"seed {seed}, {asked.trials} trials, files in {asked.folder}")
    summary = soak(asked.folder, seed, asked.trials, kinds, is_verbose=not asked.json)
    tell(json.dumps(summary.facts) if asked.json else as_text(summary))
    return 0 if summary.is_passed else 1


def soak(
    folder: Path, seed: int, trials: int, kinds: list[FaultKind], *, is_verbose: bool = True
) -> Summary:
    """Run so many faults, in the seed's order, on a new grid of two ways under load."""
    shutil.rmtree(folder, ignore_errors=True)
    plan = two_ways(publishers=2, subscribers=1)
    with Grid(plan, folder) as grid:
        grid.start()
        load = GridLoad(grid, LoadPlan())
        load.start()
        trials_run = Trials(grid, load, tell=tell if is_verbose else _print_nothing)
        return trials_run.run(islice(schedule(plan, seed, kinds=kinds), trials), seed=seed)


def as_text(summary: Summary) -> str:
    state = "passed" if summary.is_passed else f"FAILED {summary.ended_by}".strip()
    counts = f"{summary.trials} trials, {summary.felt} felt, {len(summary.failed)} failed"
    if summary.unfelt:
        counts += f", never felt: {', '.join(summary.unfelt)}"
    return (
        f"{state}: seed {summary.seed}, {counts}, {summary.verdict}; "
        f"{summary.took_s:.0f} s, processors {summary.busy:.0%} busy"
    )


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _print_nothing(line: str) -> None:
    """Print nothing, since with --json there is only the last line."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.soak", description=__doc__)
    names = [kind.name.lower().replace("_", "-") for kind in FaultKind]
    parser.add_argument("--trials", type=int, default=TRIALS, help="how many faults")
    parser.add_argument("--seed", type=int, help="of an earlier run; else a new one")
    parser.add_argument("--kinds", nargs="+", choices=names, default=names, help="only these")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for files and logs")
    parser.add_argument("--json", action="store_true", help="the figures in the last line")
    return parser


if __name__ == "__main__":
    sys.exit(main())
