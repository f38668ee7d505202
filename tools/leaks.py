"""Pytest plugin for `make sanitize`: at the end, no memory that the core allocated is lost.

LeakSanitizer sees CPython's own one-off losses too; only a block whose innermost frames lie in
the core counts. The plugin refuses to run on a core that was built without the sanitizer.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import gridstat.core._core as core

if TYPE_CHECKING:
    import pytest

OURS = re.compile(r"gridstat/core/|/_(?:core|ends)\.cpython")
FRAMES_LOOKED_AT = 6


def core_leaks(report: str) -> list[str]:
    """Return the leaked blocks of a LeakSanitizer report that the core allocated."""
    blocks = re.findall(r"^(?:Direct|Indirect) leak of .*?(?=^$)", report, re.MULTILINE | re.DOTALL)
    return [
        block
        for block in blocks
        if any(OURS.search(frame) for frame in block.splitlines()[1 : FRAMES_LOOKED_AT + 1])
    ]


def pytest_configure() -> None:
    assert "/asan/" in str(core.__file__), f"not the sanitized core: {core.__file__}"


def pytest_sessionfinish(session: pytest.Session) -> None:
    gc.collect()
    check = ctypes.CDLL(None)["__lsan_do_recoverable_leak_check"]
    check()
    log = Path(_log_path())
    reports = [path.read_text() for path in log.parent.glob(f"{log.name}.{os.getpid()}")]
    leaks = [leak for report in reports for leak in core_leaks(report + "\n\n")]
    if leaks:
        print("\n" + "\n".join(leaks))
        print(f"{len(leaks)} blocks that the core allocated were lost")
        session.exitstatus = 1


def _log_path() -> str:
    options = dict(option.split("=", 1) for option in os.environ["ASAN_OPTIONS"].split(":"))
    return options["log_path"]
