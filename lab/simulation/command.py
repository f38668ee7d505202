"""Command line of a simulation: run seeds, replay one, or look for planted bugs."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Final

from lab.simulation.bug_hunt import hunt
from lab.simulation.campaign import campaign, explain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lab.simulation.campaign import Simulation, Tally

REPORT_EVERY_S: Final = 2.0
EXPLAINED_MAX: Final = 3


def run_command(of: Simulation, argv: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 if everything held, or enough planted bugs were found."""
    options = parser(of).parse_args(argv)
    return obey(of, options)


def obey(of: Simulation, options: argparse.Namespace) -> int:
    seeds = range(options.first, options.first + options.seeds)
    if options.seed is not None:
        return _replay(of, options.seed, options.bug, is_traced=options.trace)
    if options.digests:
        return _print_digests(of, seeds)
    if options.bugs:
        return hunt(of, seeds, options.jobs, print_line)
    return _run(of, options)


def parser(of: Simulation) -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog=f"python -m {of.module}", description=__doc__)
    found.add_argument("--seeds", type=int, default=1_000, help="how many (1,000)")
    found.add_argument("--first", type=int, default=0, help="the first of them (0)")
    found.add_argument("--jobs", type=int, default=1, help="processes at work (1)")
    found.add_argument("--failures", type=int, default=10, help="stop after so many (10)")
    found.add_argument(
        "--per-minute-min", type=float, default=0.0, help="least seeds a core's minute (any)"
    )
    found.add_argument("--seed", type=int, help="run this one and print its outcome")
    found.add_argument("--trace", action="store_true", help="with --seed: tell everything")
    found.add_argument("--bug", default="", choices=["", *of.bugs], help="with a planted bug")
    found.add_argument("--digests", action="store_true", help="print each seed's trace hash")
    found.add_argument("--bugs", action="store_true", help="look for each planted bug in turn")
    return found


def _replay(of: Simulation, seed: int, bug: str, *, is_traced: bool) -> int:
    verdict = of.run_seed(seed, bug=bug, is_traced=is_traced)
    for line in verdict.trace_lines:
        print_line(line)
    print_line(
        f"seed {seed}: {verdict.complaint or 'everything held'}; trace {verdict.digest}, "
        f"{verdict.messages:,} messages, {verdict.steps:,} steps"
    )
    return 0 if verdict.is_good else 1


def _print_digests(of: Simulation, seeds: range) -> int:
    for seed in seeds:
        verdict = of.run_seed(seed)
        print_line(f"{seed} {verdict.digest} {verdict.steps} {verdict.messages} {verdict.rule}")
    return 0


def _run(of: Simulation, options: argparse.Namespace) -> int:
    began_s = time.monotonic()
    tally = campaign(
        range(options.first, options.first + options.seeds),
        jobs=options.jobs,
        bug=options.bug,
        failures_max=options.failures,
        tell=_progress(options.seeds, began_s),
        of=of,
    )
    print_line(tally.report(time.monotonic() - began_s))
    for verdict in tally.failures[:EXPLAINED_MAX]:
        print_line("")
        print_line(explain(verdict.seed, bug=options.bug, of=of))
    for verdict in tally.failures[EXPLAINED_MAX:]:
        print_line(f"seed {verdict.seed}: {verdict.complaint}")
    is_slow = tally.seeds_per_min_core < options.per_minute_min
    if is_slow:
        print_line(
            f"too slow: {tally.seeds_per_min_core:,.0f} seeds a core's minute, at least "
            f"{options.per_minute_min:,.0f} wanted"
        )
    return 1 if tally.failures or is_slow else 0


def _progress(wanted: int, began_s: float) -> Callable[[Tally], None]:
    reported_s = began_s

    def tell(tally: Tally) -> None:
        nonlocal reported_s
        now_s = time.monotonic()
        if now_s - reported_s >= REPORT_EVERY_S:
            reported_s = now_s
            sys.stderr.write(f"{tally.seeds:,} of {wanted:,}: {tally.report(now_s - began_s)}\n")
            sys.stderr.flush()

    return tell


def print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
