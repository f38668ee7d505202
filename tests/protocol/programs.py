"""Programs of `tests/sanitize`, compiled with the core's sources but without the sanitizers."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "gridstat" / "core"


def compiled(name: str, folder: Path) -> Path:
    compiler = sysconfig.get_config_var("CC").split()[0]
    sources = [ROOT / "tests" / "sanitize" / f"{name}.c", *sorted(CORE.glob("*.c"))]
    flags = ["-std=gnu11", "-pthread", f"-I{CORE}"]
    subprocess.run([compiler, *flags, "-o", folder / name, *sources], check=True, timeout=50)
    return folder / name


def run_case(program: Path, case: str) -> tuple[str, str, int]:
    """Return the output, the errors and the exit code of a case."""
    run = subprocess.run([program, case], capture_output=True, text=True, timeout=50, check=False)
    return run.stdout, run.stderr, run.returncode
