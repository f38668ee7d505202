"""C programs around the core, compiled when first needed and kept by the hash of their sources."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.errors import BenchmarkError
from benchmarks.floor.build import COMPILE_S_MAX, FLAGS

MICRO = Path(__file__).parent
CORE = MICRO.parent.parent / "gridstat" / "core"
RUN_S_MAX = 120.0


def run_core_program(name: str, *arguments: str) -> str:
    """Return the output of `benchmarks/micro/NAME.c`, linked with the core."""
    result = subprocess.run(
        [program_path(name), *arguments],
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    if result.returncode != 0:
        raise BenchmarkError(f"{name} {' '.join(arguments)}: {result.stderr.strip()[-400:]}")
    return result.stdout


def program_path(name: str) -> Path:
    """Return the program for exactly these sources; compile it if it is missing."""
    # What Cython makes of its files lies beside them, and begins with an underscore.
    core = [path for path in sorted(CORE.glob("*.c")) if not path.name.startswith("_")]
    sources = [MICRO / f"{name}.c", *core]
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for path in (*sources, *sorted(CORE.glob("*.h"))):
        digest.update(path.read_bytes())
    root = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(root) if root else Path.home() / ".cache") / "gridstat" / "micro"
    binary = folder / f"{name}-{digest.hexdigest()[:16]}"
    if not binary.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _compile(sources, binary)
    return binary


def _compile(sources: list[Path], binary: Path) -> None:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if not compiler or shutil.which(compiler.split()[0]) is None:
        raise BenchmarkError(
            "no C compiler was found",
            hint="install one (Debian: apt-get install gcc libc6-dev) or set CC",
        )
    # Compiled beside its place and then moved, so that two runs at once never see half a file.
    with tempfile.TemporaryDirectory(dir=binary.parent) as folder:
        fresh = Path(folder) / binary.name
        words = ("-pthread", f"-I{CORE}", "-o", str(fresh), *map(str, sources), "-ldl")
        result = subprocess.run(
            [*compiler.split(), *FLAGS, *words],
            capture_output=True,
            text=True,
            timeout=COMPILE_S_MAX,
            check=False,
        )
        if result.returncode != 0:
            raise BenchmarkError(f"{compiler} could not compile: {result.stderr.strip()[-400:]}")
        fresh.rename(binary)
