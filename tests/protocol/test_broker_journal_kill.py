"""kill -9 of a process that writes a broker's journal: all that it acknowledged is there."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from gridstat.broker.records.journal import Journal

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("kill_after", [1, 17, 60])
def test_a_kill_at_any_moment_loses_nothing_that_was_acknowledged(
    tmp_path: Path, kill_after: int
) -> None:
    """A process acknowledges operations on its standard output until it is killed."""
    path = tmp_path / "journal.db"
    program = f"""
import asyncio, sys
from pathlib import Path
from gridstat.broker.records.journal import Journal

async def run():
    journal = Journal(Path({str(path)!r}))
    journal.load()
    for token in range(1, 1_000_000):
        await journal.persist(token, (b"%d" % token,))
        print(token, flush=True)

asyncio.run(run())
"""
    command = [sys.executable, "-c", program]
    acknowledged = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            acknowledged = int(line)
            if acknowledged >= kill_after:
                process.kill()
                break
        rest = process.stdout.read().split()
    acknowledged = max([acknowledged, *(int(found) for found in rest if found.isdigit())])

    journal = Journal(path)
    found = [int(operation) for operation in journal.load()]
    journal.close()
    assert found == list(range(1, len(found) + 1))
    assert len(found) >= acknowledged
