"""The example for analysts runs as its own help says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.made_logs import grow, open_log, record_streams, variable

EXAMPLE = Path(__file__).parents[2] / "examples" / "history.py"


@pytest.mark.slow
def test_recorded_seconds_are_shown_in_a_few_lines(tmp_path: Path) -> None:
    record_streams(tmp_path, ["float64"] * 4)
    with open_log(tmp_path) as log:
        grow(log, 30)
    words = [str(tmp_path), "--variable", variable(1), "--since", "2023-11-14T22:13:21Z"]
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), *words, "--count", "2"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    # Records 2,001 to 2,997 and 1,001 to 1,997, every fourth, of which each is an eighth.
    assert done.stdout.splitlines() == [
        f"22:13:22 {variable(1)} 312.375 of 250 events",
        f"22:13:21 {variable(1)} 187.375 of 250 events",
    ]
