"""A path narrower than the channel's MTU: learnt, counted, and nothing lost on the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys


def run_on(mtu_bytes: int, events: int) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.unit.core.narrow_path", str(mtu_bytes), str(events)]
    # Only a process of one thread may enter a user namespace; NumPy's library would start more.
    alone = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, capture_output=True, timeout=50, env=alone)
    told: dict[str, int] = json.loads(done.stdout)
    return told


def test_a_path_narrower_than_the_channel_is_learnt_and_loses_nothing() -> None:
    told = run_on(600, 180)
    assert told["delivered"] == told["sent"] == told["due"] == 360
    assert told["send_failed"] == 0
    assert told["mtu_changes"] >= 1
    assert told["last_bytes"] <= 600 - 28


def test_a_path_that_is_wide_enough_changes_nothing() -> None:
    told = run_on(1_500, 180)
    assert told["delivered"] == told["sent"] == 360
    assert told["mtu_changes"] == told["fallback"] == told["send_failed"] == 0
