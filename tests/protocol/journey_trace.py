"""Records which files of `gridstat` run: Python functions by a profile hook, C by gcov."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "gridstat" / "core"
PACKAGE = f"{ROOT / 'gridstat'}/"


@contextmanager
def traced_modules() -> Iterator[list[str]]:
    """Collect the modules whose functions run, below `gridstat`, in the order of first calls."""
    found: dict[str, None] = {}

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            found.setdefault(frame.f_code.co_filename.removeprefix(PACKAGE))

    modules: list[str] = []
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield modules
    finally:
        sys.setprofile(before)
        modules += found


def traced_core_files(folder: Path) -> set[str]:
    """Return the C files of which a function runs for one event, by a program built for gcov."""
    compiler = sysconfig.get_config_var("CC").split()[0]
    sources = [ROOT / "tests" / "sanitize" / "journey.c", *sorted(CORE.glob("*.c"))]
    flags = ["-O0", "--coverage", "-DGS_TRACED=1", "-std=gnu11", "-pthread", f"-I{CORE}"]
    program = folder / "journey"
    subprocess.run([compiler, *flags, "-o", program, *sources], cwd=folder, check=True, timeout=50)
    subprocess.run([program], cwd=folder, check=True, timeout=50, capture_output=True)
    counted = subprocess.run(
        ["gcov", "--json-format", "--stdout", *folder.glob("*.gcda")],
        cwd=folder,
        check=True,
        timeout=50,
        capture_output=True,
        text=True,
    )
    return {
        f"core/{Path(file['file']).name}"
        for line in counted.stdout.splitlines()
        for file in json.loads(line)["files"]
        if Path(file["file"]).parent == CORE
        and any(function["execution_count"] for function in file["functions"])
    }
