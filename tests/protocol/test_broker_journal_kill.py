"""kill -9 of a process that writes a broker's journal: all that it acknowledged is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gridstat.console.daemons.stand_by import journal_plan, open_journal

if TYPE_CHECKING:
    from lab.postgres import DatabaseServer

PROGRAM = """
import asyncio, sys
from pathlib import Path
from gridstat.console.daemons.stand_by import journal_plan, open_journal

async def run():
    journal = open_journal(journal_plan(Path(), sys.argv[1], broker=sys.argv[2], lease_s=60))
    assert journal.claim() == 0
    journal.load()
    for token in range(1, 1_000_000):
        await journal.persist(token, (b"%d" % token,))
        print(token, flush=True)

asyncio.run(run())
"""


@pytest.mark.parametrize("kill_after", [1, 17, 60])
@pytest.mark.parametrize("is_shared", [False, True])
def test_a_kill_at_any_moment_loses_nothing_that_was_acknowledged(
    tmp_path: Path, database_server: DatabaseServer, is_shared: bool, kill_after: int
) -> None:
    """A process acknowledges operations on its standard output until it is killed."""
    place = database_server.url() if is_shared else str(tmp_path / "journal.db")
    broker = f"killed-after-{kill_after}"
    command = [sys.executable, "-c", PROGRAM, place, broker]
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

    journal = open_journal(journal_plan(Path(), place, broker=broker, lease_s=60))
    found = [int(operation) for operation in journal.load()]
    journal.close()
    assert found == list(range(1, len(found) + 1))
    assert len(found) >= acknowledged >= kill_after
