"""`python -m lab.simulation`: run seeds, replay one, or look for planted bugs."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Final

from lab.simulation.bugs import BUGS
from lab.simulation.campaign import campaign, explain
from lab.simulation.run import run_seed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lab.simulation.campaign import Tally
    from lab.simulation.run import Verdict

TELL_EVERY_S: Final = 2.0
EXPLAINED_MAX: Final = 3


def main(words: Sequence[str] | None = None) -> int:
    """The exit code: 0 if everything held, or every planted bug was found."""
    options = _parser().parse_args(words)
    if options.seed is not None:
        return _replay(options.seed, options.bug, is_traced=options.trace)
    if options.digests:
        return _print_digests(range(options.first, options.first + options.seeds))
    if options.bugs:
        return _find_bugs(range(options.first, options.first + options.seeds), options.jobs)
    return _run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000, help="how many (1,000)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--jobs", type=int, default=1, help="processes at work (1)")
    parser.add_argument("--failures", type=int, default=10, help="stop after so many (10)")
    parser.add_argument("--seed", type=int, help="run this one and say what became of it")
    parser.add_argument("--trace", action="store_true", help="with --seed: tell everything")
    parser.add_argument("--bug", default="", choices=["", *BUGS], help="with a planted bug")
    parser.add_argument("--digests", action="store_true", help="print each seed's trace hash")
    parser.add_argument("--bugs", action="store_true", help="look for each planted bug in turn")
    return parser


def _replay(seed: int, bug: str, *, is_traced: bool) -> int:
    verdict = run_seed(seed, bug=bug, is_told=is_traced)
    for line in verdict.story:
        _say(line)
    _say(
        f"seed {seed}: {verdict.words or 'everything held'}; trace {verdict.digest}, "
        f"{verdict.messages:,} messages, {verdict.steps:,} steps"
    )
    return 0 if verdict.is_good else 1


def _print_digests(seeds: range) -> int:
    for seed in seeds:
        verdict = run_seed(seed)
        _say(f"{seed} {verdict.digest} {verdict.steps} {verdict.messages} {verdict.rule}")
    return 0


def _run(options: argparse.Namespace) -> int:
    began_s = time.monotonic()
    tally = campaign(
        range(options.first, options.first + options.seeds),
        jobs=options.jobs,
        bug=options.bug,
        failures_max=options.failures,
        tell=_progress(options.seeds, began_s),
    )
    _say(tally.words(time.monotonic() - began_s))
    for verdict in tally.failures[:EXPLAINED_MAX]:
        _say("")
        _say(explain(verdict.seed, bug=options.bug))
    for verdict in tally.failures[EXPLAINED_MAX:]:
        _say(f"seed {verdict.seed}: {verdict.words}")
    return 1 if tally.failures else 0


def _find_bugs(seeds: range, jobs: int) -> int:
    """Every planted bug must be found: a tester that finds none may be blind."""
    missed = []
    for name, bug in BUGS.items():
        began_s = time.monotonic()
        found = _found(name, seeds, jobs)
        took_s = time.monotonic() - began_s
        if found is None:
            missed.append(name)
            _say(f"{name}: NOT FOUND in {len(seeds):,} seeds, {took_s:.1f} s; {bug.words}")
        else:
            _say(f"{name}: found at seed {found.seed} ({found.rule}), {took_s:.1f} s; {bug.words}")
    _say(f"{len(BUGS) - len(missed)} of {len(BUGS)} planted bugs found")
    return 1 if missed else 0


def _found(bug: str, seeds: range, jobs: int) -> Verdict | None:
    """The first failure that is the planted bug's own: without it the seed holds."""
    while seeds:
        tally = campaign(seeds, jobs=jobs, bug=bug, failures_max=1)
        for verdict in tally.failures:
            if run_seed(verdict.seed).is_good:
                return verdict
        seeds = seeds[tally.failures[-1].seed - seeds[0] + 1 :] if tally.failures else seeds[:0]
    return None


def _progress(wanted: int, began_s: float) -> Callable[[Tally], None]:
    told_s = began_s

    def tell(tally: Tally) -> None:
        nonlocal told_s
        now_s = time.monotonic()
        if now_s - told_s >= TELL_EVERY_S:
            told_s = now_s
            sys.stderr.write(f"{tally.seeds:,} of {wanted:,}: {tally.words(now_s - began_s)}\n")
            sys.stderr.flush()

    return tell


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
