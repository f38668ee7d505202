"""Drivers that are started and killed at instants that a seed chooses.

A driver is its own process group: Python, Java and the Python workers are killed at once, as if
the machine had lost them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from gridstat.pipeline.archive import RECORD
from gridstat.pipeline.delta_tables import StoredTable
from gridstat.pipeline.schemas import EVENTS
from lab.errors import LabError
from lab.pipeline.driver import MORE

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

    from gridstat.pipeline.pipeline_folder import PipelineFolder

END_S_MAX = 300.0
DRIVER_LOG = "driver.log"


@contextmanager
def driver(
    folder: PipelineFolder,
    rows_per_batch: int,
    *,
    rules: Path | None = None,
    is_once: bool = False,
    file_bytes_max: int = 0,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a driver beside the caller; kill its process group at the end of the block.

    The driver finds alarms if there are rules. With `is_once` it leaves the last windows open, so
    that the next driver continues as if there had been only one.
    """
    arguments = [str(folder.path), str(rows_per_batch), str(folder.log)]
    arguments += [] if rules is None else ["--rules", str(rules)]
    arguments += ["--once"] if is_once else []
    arguments += ["--file-bytes-max", str(file_bytes_max)]
    with (folder.path / DRIVER_LOG).open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "lab.pipeline.driver", *arguments],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        kill(process)


def kill_in_the_middle(folder: PipelineFolder, rows_per_batch: int, chance: random.Random) -> int:
    """Start a driver, wait until it has ingested something, and kill it soon after.

    Return how many records were ingested by then.
    """
    before = taken(folder)
    with driver(folder, rows_per_batch) as process:
        deadline = time.monotonic() + END_S_MAX
        while taken(folder) <= before and time.monotonic() < deadline:
            assert process.poll() is None, last_output(folder)
            time.sleep(0.1)
        time.sleep(chance.random() * 1.5)
    return taken(folder)


def finish(
    folder: PipelineFolder,
    rows_per_batch: int,
    *,
    rules: Path | None = None,
    is_once: bool = False,
) -> None:
    """Run a driver to its end; it is the last driver unless it runs once."""
    (folder.path / MORE).unlink(missing_ok=True)
    with driver(folder, rows_per_batch, rules=rules, is_once=is_once) as process:
        try:
            code = process.wait(END_S_MAX)
        except subprocess.TimeoutExpired as error:
            raise LabError(f"a driver is not at its end after {END_S_MAX:.0f} s") from error
        if code:
            raise LabError(f"a driver ended with {code}: {last_output(folder)}")


def last_output(folder: PipelineFolder) -> str:
    """Return the end of the output of the folder's drivers."""
    return (folder.path / DRIVER_LOG).read_text(errors="replace")[-2_000:]


def taken(folder: PipelineFolder) -> int:
    """Return the number of records in the archive."""
    if commits(folder) == 0:  # Else this call would create the table.
        return 0
    return StoredTable(folder.tables, EVENTS).mark(RECORD) or 0


def commits(folder: PipelineFolder) -> int:
    """Return the number of commits of the archive; cheap enough for every poll."""
    versions = (folder.tables / EVENTS.name / "_delta_log").glob("*.json")
    return max((int(path.stem) + 1 for path in versions if path.stem.isdigit()), default=0)


def kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
