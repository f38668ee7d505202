"""Changes of keys under load: epochs of a fraction of a second, and the broker away for some.

Every end of a sealed channel derives the next key by itself, so nothing may be lost or doubled when
keys change, with or without the broker that gives fresh seeds. Keys are counted from a capture of
all datagrams, events from the logs of publisher and subscriber. Every contract has one path, so
that no second copy hides a loss, and an event that could not be sent counts as lost. A capture that
was too slow for some frames proves nothing, so its drops fail the run.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.experiments.experiment import (
    Bound,
    Experiment,
    Figure,
    Options,
    Parameter,
    Progress,
    Result,
)
from lab.attacks.attacked_grid import attacked_plan
from lab.attacks.capture import RECORD, Capture, Finding, judge, rotations_in
from lab.grid import Grid
from lab.grid_plan import BROKER
from lab.ledger import Verdict, Window
from lab.load import GridLoad, LoadPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROUTERS = ("e0", "e1", "e2", "e3")
IDLE = ("south/mallory", "centre/mirror")
SETTLE_S = 3.0
POLL_S = 1.0
RUN_S_MAX = 1_800.0
BOUNDED = (
    "lost",
    "duplicate",
    "altered",
    "rotations_missing",
    "absent_missing",
    "two_contents",
    "capture_dropped",
)
"""Figures that must be 0."""


def measure(options: Options, progress: Progress) -> Result:
    """Let keys change until there were as many changes as asked for."""
    with tempfile.TemporaryDirectory(dir=options.text("folder") or None) as name:
        verdict, figures = _run(Path(name), options, progress)
    progress(1.0, "done")
    figures |= {
        "published": verdict.expected,
        "lost": len(verdict.lost),
        "duplicate": len(verdict.duplicate),
        "altered": len(verdict.altered) + len(verdict.unpublished),
        "rotations_missing": max(0, options.whole("rotations") - int(figures["rotations"])),
        "absent_missing": max(
            0, options.whole("absent") - int(figures["rotations_of_a_channel_without_broker"])
        ),
    }
    bounds = tuple(Bound(name, float(figures[name]), 0) for name in BOUNDED)
    return Result(
        figures=figures,
        title="changes of keys under load",
        columns=("figure", "counted"),
        table=tuple((name, str(value)) for name, value in figures.items()),
        bounds=bounds,
    )


def _run(folder: Path, options: Options, progress: Progress) -> tuple[Verdict, dict[str, Figure]]:
    wanted, epoch_s = options.whole("rotations"), options.real("epoch_s")
    keys = {"epoch_s": epoch_s, "reseed_s": options.real("reseed_s")}
    variables = options.whole("variables")
    plan = LoadPlan(variables=variables, redundancy=1, idle=IDLE, counts_unsent=True)
    with Grid(attacked_plan(), folder, is_relayed=False, keys=keys) as grid, ExitStack() as stack:
        progress(0.0, "starting a grid")
        grid.start()
        load = GridLoad(grid, plan)
        load.start()
        files = {name: folder / f"{name}.capture" for name in ROUTERS}
        captures = [
            stack.enter_context(Capture(grid.namespaces[name], file))
            for name, file in files.items()
        ]
        from_ns, began_s = time.time_ns(), time.monotonic()

        def seen() -> dict[int, int]:
            return _rotations(files)

        _until(lambda: sum(seen().values()) >= wanted // 2, progress, seen, wanted)
        grid.daemons[BROKER].kill()
        before = seen()
        absent = options.whole("absent")
        _until(lambda: _least_since(before, seen()) >= absent, progress, seen, wanted)
        without = _least_since(before, seen())
        grid.restart(BROKER)
        _until(lambda: sum(seen().values()) >= wanted, progress, seen, wanted)
        to_ns, took_s = time.time_ns(), time.monotonic() - began_s
        verdict = _settled(load, Window(from_ns, to_ns))
        found = judged(captures, files.values())
        rotations = seen()
    return verdict, {
        "rotations": sum(rotations.values()),
        "channels": len(rotations),
        "rotations_of_a_channel_without_broker": without,
        "epoch_s": epoch_s,
        "two_contents": found.two_contents,
        "capture_dropped": found.dropped,
        "datagrams": found.datagrams,
        "took_s": round(took_s, 1),
    }


def judged(captures: Iterable[Capture], files: Iterable[Path]) -> Finding:
    """End all captures, and judge their files together, with the frames that any of them lost."""
    dropped = sum(capture.end().dropped for capture in captures)
    records = np.concatenate([np.fromfile(file, dtype=RECORD) for file in files])
    return judge(records, dropped=dropped)


def _rotations(files: dict[str, Path]) -> dict[int, int]:
    """Return the changes of the epoch by channel, as the router that saw most of them did."""
    found: dict[int, int] = {}
    for file in files.values():
        raw = file.read_bytes()
        records = np.frombuffer(raw[: len(raw) // RECORD.itemsize * RECORD.itemsize], RECORD)
        for channel_id, count in rotations_in(records).items():
            found[channel_id] = max(found.get(channel_id, 0), count)
    return found


def _least_since(before: dict[int, int], now: dict[int, int]) -> int:
    """Return the fewest changes of a channel between routers; edges time those of end-points."""
    return min(now[channel_id] - count for channel_id, count in before.items() if count)


def _until(
    condition: Callable[[], bool],
    progress: Progress,
    seen: Callable[[], dict[int, int]],
    wanted: int,
) -> None:
    deadline_s = time.monotonic() + RUN_S_MAX
    while not condition() and time.monotonic() < deadline_s:
        count = sum(seen().values())
        progress(min(1.0, count / wanted), f"{count} of {wanted} changes of keys")
        time.sleep(POLL_S)


def _settled(load: GridLoad, window: Window) -> Verdict:
    deadline_s = time.monotonic() + SETTLE_S
    while not (verdict := load.judge(window)).is_clean and time.monotonic() < deadline_s:
        time.sleep(0.1)
    return verdict


ROTATIONS = Experiment(
    name="rotations",
    summary="changes of keys under load, some of them without the broker: nothing is lost",
    parameters=(
        Parameter("rotations", 1_000, "changes of keys, of all channels together", least=2),
        Parameter("absent", 10, "changes of each channel while the broker is away", least=1),
        Parameter("epoch_s", 0.5, "life of a key", least=0.5),
        Parameter("reseed_s", 5.0, "interval of fresh seeds", least=0.5),
        Parameter("variables", 4, "variables at 60 events a second", least=1),
        Parameter("folder", "", "where the grid's files lie; a temporary one"),
    ),
    measure=measure,
)
