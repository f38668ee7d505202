"""`python -m lab.pipeline.soak`: kills of drivers and of the log's writer; `make soak-pipeline`.

A writer appends, a driver ingests, and both are killed again and again at instants that a seed
chooses, with a compaction now and then. In the end a last driver finishes, another one reads the
whole log undisturbed, and their tables must be the same, with every record in them once. Ends with
1 if not.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gridstat.pipeline.folder import PipelineFolder
from gridstat.pipeline.jobs.compact import compact
from gridstat.record.kinds import EVENTS
from gridstat.record.log_reader import LogReader
from lab.pipeline.driver import MORE
from lab.pipeline.killing import driver, finish, kill, taken
from lab.pipeline.same import complaints

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path("build/lab/pipeline-soak")
KILLS = 200
ROWS_PER_S = 1_000
ROWS_PER_BATCH = 2_000
COMPACT_EVERY = 25
START_S_MAX = 120.0
EARLY_SHARE = 0.2
"""So many drivers are killed while they start."""
LATER_S_MAX = 2.0
"""So long after a driver's first batch it is killed at the latest."""


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="lab.pipeline.soak")
    parser.add_argument("--kills", type=int, default=KILLS, help="of drivers, and of writers")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    asked = parser.parse_args(words)
    seed = random.SystemRandom().randrange(2**32) if asked.seed is None else asked.seed
    tell(f"seed {seed}, {asked.kills} kills of drivers and of writers, files in {asked.folder}")
    began = time.monotonic()
    found = soak(asked.folder, asked.kills, random.Random(seed))
    for complaint in found:
        tell(complaint)
    state = "FAILED" if found else "passed"
    tell(f"{state}: seed {seed}, {asked.kills} kills, {time.monotonic() - began:.0f} s")
    return 1 if found else 0


def soak(folder: Path, kills: int, chance: random.Random) -> list[str]:
    shutil.rmtree(folder, ignore_errors=True)
    one, other = PipelineFolder(folder.absolute() / "killed"), folder.absolute() / "undisturbed"
    one.path.mkdir(parents=True)
    other.mkdir()
    (one.path / MORE).touch()
    felt = 0
    for number in range(1, kills + 1):
        felt += _trial(one, chance)
        if number % COMPACT_EVERY == 0:
            compact(one)
            recorded = LogReader(one.log, EVENTS).ends()[1]
            tell(f"{number} kills, {felt} in work, {recorded} recorded, {taken(one)} taken")
    finish(one, 100 * ROWS_PER_BATCH)
    undisturbed = PipelineFolder(other, one.log)
    finish(undisturbed, 100 * ROWS_PER_BATCH)
    found = list(complaints(one, undisturbed))
    return found if felt else [*found, "no driver was killed at work"]


def _trial(folder: PipelineFolder, chance: random.Random) -> bool:
    """A driver and a writer, both killed; whether the driver had brought something in."""
    before = taken(folder)
    with driver(folder, ROWS_PER_BATCH), _writer(folder) as writer:
        time.sleep(chance.random())
        is_early = chance.random() < EARLY_SHARE
        deadline = time.monotonic() + (chance.random() * 10 if is_early else START_S_MAX)
        writer_ends = time.monotonic() + chance.random() * 5
        while taken(folder) <= before and time.monotonic() < deadline:
            if time.monotonic() > writer_ends:
                kill(writer)
            time.sleep(0.05)
        time.sleep(chance.random() * LATER_S_MAX)
    return taken(folder) > before


@contextmanager
def _writer(folder: PipelineFolder) -> Iterator[subprocess.Popen[bytes]]:
    words = [str(folder.log), str(ROWS_PER_S)]
    process = subprocess.Popen(
        [sys.executable, "-m", "lab.pipeline.writer", *words], start_new_session=True
    )
    try:
        yield process
    finally:
        kill(process)


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
