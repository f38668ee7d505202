"""A running grid's log, the real job behind it, and the delay of events to the rollups."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from benchmarks.errors import BenchmarkError
from benchmarks.pipeline_commits import commits_of, first_seen_s
from benchmarks.pipeline_log import record_streams
from gridstat.pipeline.progress import read_progress

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.processes import Processes, RoleProcess

CAUGHT_UP_S_MAX: Final = 300.0
LAG_S_MAX: Final = 5.0
SETTLE_S: Final = 10.0
"""Time for compilation and warm-up, before anything is counted."""
END_S_MAX: Final = 300.0


@dataclass(frozen=True, slots=True)
class LiveRun:
    """Delays of events, and the share of events seen."""

    visible_s_p95: float
    final_s_p95: float
    visible_s_p50: float
    final_s_p50: float
    seen_share: float


@dataclass(frozen=True, slots=True)
class Pace:
    """Rate and duration of the feed."""

    streams: int
    rate: int
    seconds: float
    swinging: int
    """Number of streams that oscillate as if by a fault; checking them takes longest."""


def measure_live(processes: Processes, driver: RoleProcess, folder: Path, pace: Pace) -> LiveRun:
    log, place = folder / "live-log", folder / "live"
    record_streams(log, pace.streams, pace.rate, since_s=int(time.time()))
    arguments = [str(log), *(str(each) for each in (pace.streams, pace.rate, pace.swinging))]
    feeder, _ = processes.start(
        "feed", [sys.executable, "-m", "benchmarks.pipeline_log", *arguments]
    )
    driver.ask({"do": "begin_live", "log": str(log), "folder": str(place)})
    _await_caught_up(place)
    time.sleep(SETTLE_S)
    first_s = int(time.time()) + 1
    time.sleep(pace.seconds + 2.0)
    last_s = first_s + int(pace.seconds)
    # The last seconds become final only while further events arrive.
    _await_final(place, last_s)
    feeder.end()
    driver.ask({"do": "end_live"}, within_s=END_S_MAX)
    return _run_of(place / "tables", pace, range(first_s, last_s))


def _await_caught_up(place: Path) -> None:
    deadline_s = time.monotonic() + CAUGHT_UP_S_MAX
    while read_progress(place).get("lag_s", np.inf) > LAG_S_MAX:
        if time.monotonic() > deadline_s:
            raise _too_slow(read_progress(place))
        time.sleep(0.2)


def _await_final(place: Path, second: int) -> None:
    deadline_s = time.monotonic() + CAUGHT_UP_S_MAX
    while read_progress(place)["watermark_ns"] < second * 1_000_000_000:
        if time.monotonic() > deadline_s:
            raise _too_slow(read_progress(place))
        time.sleep(0.2)


def _too_slow(progress: dict[str, Any]) -> BenchmarkError:
    return BenchmarkError(
        f"the pipeline is {progress.get('lag_s', 'unknown')} s behind the grid",
        hint="the machine is too busy, or --set streams=… asks for too much of it",
    )


def _run_of(tables: Path, pace: Pace, seconds: range) -> LiveRun:
    final = list(commits_of(tables / "rollup_1s"))
    shown = chain(commits_of(tables / "rollup_live"), final)
    visible_s = first_seen_s(shown, rate=pace.rate, seconds=seconds)
    final_s = first_seen_s(final, rate=pace.rate, seconds=seconds)
    if not len(visible_s) or not len(final_s):
        raise BenchmarkError("nothing became visible", hint="give it more --seconds")
    return LiveRun(
        visible_s_p95=float(np.quantile(visible_s, 0.95)),
        final_s_p95=float(np.quantile(final_s, 0.95)),
        visible_s_p50=float(np.quantile(visible_s, 0.5)),
        final_s_p50=float(np.quantile(final_s, 0.5)),
        seen_share=len(final_s) / (pace.streams * pace.rate * len(seconds)),
    )
