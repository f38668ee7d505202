"""Campaign of many seeds: run in several processes, counted, each failure reported for a replay."""

from __future__ import annotations

import gc
import multiprocessing
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lab.simulation.bugs import BUGS
from lab.simulation.run import run_seed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from lab.simulation.planting import Bug
    from lab.simulation.run import Verdict

CHUNK: Final = 16
"""Seeds that a process takes at once."""
TRACE_LINES_MAX: Final = 60
LINE_COLUMNS: Final = 240


@dataclass(frozen=True, slots=True)
class Simulation:
    """Kind of simulation: its module, the function that runs one seed, and the bugs to plant."""

    module: str
    run_seed: Callable[..., Verdict]
    bugs: Mapping[str, Bug]


ONE_CLOUD: Final = Simulation("lab.simulation", run_seed, BUGS)


@dataclass(slots=True)
class Tally:
    """Totals of all seeds so far; `failures` are the verdicts that are not good."""

    seeds: int = 0
    messages: int = 0
    messages_min: int = 0
    """Messages of the seed with the fewest, of those that held to their end."""
    steps: int = 0
    virtual_ns: int = 0
    busy_s: float = 0.0
    """Processor time of all processes together."""
    failures: list[Verdict] = field(default_factory=list)

    def count(self, verdicts: Iterable[Verdict], busy_s: float) -> None:
        for verdict in verdicts:
            self.seeds += 1
            self.messages += verdict.messages
            if verdict.is_good:
                self.messages_min = min(self.messages_min or verdict.messages, verdict.messages)
            self.steps += verdict.steps
            self.virtual_ns += verdict.virtual_ns
            if not verdict.is_good:
                self.failures.append(verdict)
        self.busy_s += busy_s

    @property
    def seeds_per_min_core(self) -> float:
        """Return the seeds per minute of processor time of one core."""
        return 60 * self.seeds / self.busy_s if self.busy_s else 0.0

    def report(self, wall_s: float) -> str:
        seeds = max(1, self.seeds)
        return (
            f"{self.seeds:,} seeds, {len(self.failures):,} failures; "
            f"{60 * self.seeds / max(wall_s, 1e-9):,.0f} seeds/min, "
            f"{self.seeds_per_min_core:,.0f} a core's minute; a seed: "
            f"{self.messages / seeds:,.0f} messages ({self.messages_min:,} at least), "
            f"{self.steps / seeds:,.0f} steps, {self.virtual_ns / seeds / 1e9:.1f} virtual s"
        )


def campaign(
    seeds: range,
    *,
    jobs: int = 1,
    bug: str = "",
    failures_max: int = 10,
    tell: Callable[[Tally], None] = lambda _: None,
    of: Simulation = ONE_CLOUD,
) -> Tally:
    """Run all seeds, or until so many have failed; `tell` is called with progress."""
    tally = Tally()
    for verdicts, busy_s in _chunks(seeds, of.run_seed, jobs=jobs, bug=bug):
        tally.count(verdicts, busy_s)
        tell(tally)
        if len(tally.failures) >= failures_max:
            break
    return tally


def finding(bug: str, seeds: range, of: Simulation = ONE_CLOUD) -> Verdict | None:
    """Return the first of these seeds that fails with a planted bug and holds without it."""
    for seed in seeds:
        verdict = of.run_seed(seed, bug=bug)
        if not verdict.is_good and of.run_seed(seed).is_good:
            return verdict
    return None


def explain(seed: int, *, bug: str = "", of: Simulation = ONE_CLOUD) -> str:
    """Return a report of a failure: the broken rule, the end of the trace, how to replay it."""
    verdict = of.run_seed(seed, bug=bug, is_traced=True)
    lines = [line[:LINE_COLUMNS] for line in verdict.trace_lines[-TRACE_LINES_MAX:]]
    left_out = len(verdict.trace_lines) - len(lines)
    option = f" --bug {bug}" if bug else ""
    return "\n".join(
        [
            f"seed {seed}: {verdict.complaint or 'nothing broke'}",
            f"... {left_out:,} lines before",
            *lines,
            f"replay: python -m {of.module} --seed {seed}{option} --trace",
        ]
    )


def _chunks(
    seeds: range, run: Callable[..., Verdict], *, jobs: int, bug: str
) -> Iterator[tuple[list[Verdict], float]]:
    pieces = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    if jobs == 1:
        for piece in pieces:
            yield run_chunk((run, piece, bug))
        return
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    with context.Pool(jobs) as pool:
        yield from pool.imap(run_chunk, [(run, piece, bug) for piece in pieces])


def run_chunk(
    work: tuple[Callable[..., Verdict], range, str],
) -> tuple[list[Verdict], float]:
    """Run some seeds; return their verdicts and the processor time."""
    run, seeds, bug = work
    began_s = time.process_time()
    was_collecting = gc.isenabled()
    gc.disable()  # Each seed makes a world and drops all of it; little is garbage before.
    try:
        verdicts = [_run_apart(run, seed, bug) for seed in seeds]
    finally:
        gc.unfreeze()
        if was_collecting:
            gc.enable()
    return verdicts, time.process_time() - began_s


def _run_apart(run: Callable[..., Verdict], seed: int, bug: str) -> Verdict:
    """Run a seed, and collect its garbage while it is still in the processor's caches."""
    gc.freeze()  # The modules and settled clouds of before have no garbage.
    verdict = run(seed, bug=bug)
    gc.collect()
    return verdict
