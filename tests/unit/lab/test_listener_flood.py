"""The memory of a daemon under attack is what it holds now, and not the most that it ever held."""

from __future__ import annotations

import mmap
import subprocess
import sys
from typing import TYPE_CHECKING

from lab.listener_flood import Daemon

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
TAKEN_MIB = 64
HOLDER = f"""
import mmap, sys
for word in sys.stdin:
    if word == "take\\n":
        held = mmap.mmap(-1, {TAKEN_MIB * MIB})
        for at in range(0, len(held), {mmap.PAGESIZE}):
            held[at] = 1
    elif word == "give\\n":
        held.close()
    print(word, end="", flush=True)
"""


def test_memory_that_is_given_back_counts_no_longer(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        daemon = Daemon(process, tmp_path / "log", {})

        def memory_after(word: str) -> float:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{word}\n")
            process.stdin.flush()
            assert process.stdout.readline() == f"{word}\n"
            return daemon.memory_mib()

        before, most, after = (memory_after(word) for word in ("begin", "take", "give"))
    assert most - before > 0.9 * TAKEN_MIB
    assert after - before < 0.1 * TAKEN_MIB
