"""Memory of a process that holds keys of channels cannot be dumped."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from gridstat.console.config.grid_file import grid_from_text
from gridstat.console.grid_folder import GridFolder
from gridstat.record.manifest import MANIFEST_FILE
from gridstat.record.record_kinds import EVENTS

if TYPE_CHECKING:
    from pathlib import Path

PRINT = """
import ctypes, os, sys
from gridstat.net.core_dumps import PR_GET_DUMPABLE, forbid_core_dumps

def dumpable():
    return ctypes.CDLL(None).prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)

def end(*words, **options):
    print(before, dumpable(), flush=True)
    os._exit(0)

before = dumpable()
"""
RUN = """
from gridstat.console.cli.main import app
app(sys.argv[1:])
"""
RECORDER = """
from gridstat.console.daemons import recorder_daemon
recorder_daemon.connect_async = end
"""
PIPELINE = """
from gridstat.console.daemons import pipeline_daemon
pipeline_daemon.spark_session = end
"""
REPLAY = """
from gridstat.console.cli import pipeline_history
pipeline_history.spark_for = end
"""
TOML = """
cloud = "c1"
[[router]]
name = "e0"
role = "edge"
"""
LOG = "recorded"


def printed(code: str, *words: str, cwd: Path | None = None) -> list[str]:
    """Whether a process could be dumped, before and after what it did."""
    done = subprocess.run(
        [sys.executable, "-c", PRINT + code, *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        cwd=cwd,
    )
    return done.stdout.split()


def test_a_process_that_forbids_core_dumps_is_not_dumpable() -> None:
    assert printed("forbid_core_dumps()\nend()") == ["1", "0"]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        pytest.param(RECORDER, ("recorder",), id="recorder"),
        pytest.param(PIPELINE, ("pipeline", "run", "--log", LOG), id="alarms"),
        pytest.param(
            REPLAY,
            ("pipeline", "replay", "c1/**", "--from", "2026-01-01", "--to", "2026-01-02"),
            id="replay",
        ),
    ],
)
def test_an_end_point_that_is_a_daemon_is_not_dumpable_when_it_attaches(
    tmp_path: Path, code: str, words: tuple[str, ...]
) -> None:
    folder = tmp_path / "grid"
    GridFolder(folder, grid_from_text(TOML, file="test"), TOML).write()
    manifest = tmp_path / LOG / EVENTS.name / MANIFEST_FILE  # A pipeline waits for it.
    manifest.parent.mkdir(parents=True)
    manifest.touch()
    assert printed(code + RUN, *words, "--folder", str(folder), cwd=tmp_path) == ["1", "0"]
