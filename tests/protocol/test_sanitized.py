"""The C core as sanitizers see it: a part of what `make fuzz` and `make sanitize-c` run."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIES = 1_000_000
LIES_OVER_A_SOCKET = 100_000
NOT_FOR_THE_PROGRAM = {"MAKEFLAGS", "MFLAGS", "LD_PRELOAD", "ASAN_OPTIONS", "UBSAN_OPTIONS"}
"""A jobserver is for recipes, and the sanitizer of the tests would meet the program's own."""

pytestmark = pytest.mark.timeout(300)


def run(program: str, *arguments: str) -> str:
    """Build a program by the Makefile and return its output; fail if the sanitizer has ended it."""
    environment = {key: text for key, text in os.environ.items() if key not in NOT_FOR_THE_PROGRAM}
    subprocess.run(["make", "-s", program], cwd=ROOT, env=environment, check=True)
    done = subprocess.run(
        [ROOT / program, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.feature("S3-20", "S3-21")
def test_a_million_random_datagrams_of_any_size_only_make_the_core_s_counters_rise() -> None:
    """Up to 9,000 bytes where 6,160 are the most; the program compares counters by reason."""
    told = run("build/fuzz/forwarding", str(LIES))
    (tried,) = re.findall(r"tried (\d+) =", told)
    assert int(tried) >= LIES
    assert "and so it was counted" in told


@pytest.mark.feature("S3-21")
def test_datagrams_of_any_size_over_a_socket_overflow_nothing_in_a_receiver() -> None:
    assert "and so it was counted" in run("build/fuzz/receiving", str(LIES_OVER_A_SOCKET))


@pytest.mark.feature("S3-14")
def test_tables_change_under_traffic_without_a_race() -> None:
    assert "all reconciled" in run("build/sanitize/thread/table_swaps")
