"""Compiler of the floor's one C file: builds it on first use, keeps the binary by its hash."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.errors import BenchmarkError

SOURCE = Path(__file__).with_name("forwarder.c")
FLAGS = ("-O2", "-std=gnu11")
COMPILE_S_MAX = 60.0


def forwarder_path(*, source: Path = SOURCE, cache: Path | None = None) -> Path:
    """Return the floor's binary for exactly this source; compile it if it is missing."""
    folder = cache if cache is not None else _cache_folder()
    digest = hashlib.sha256(" ".join(FLAGS).encode() + source.read_bytes()).hexdigest()[:16]
    binary = folder / f"forwarder-{digest}"
    if not binary.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _compile(source, binary)
    return binary


def _cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "gridstat" / "floor"


def _compile(source: Path, binary: Path) -> None:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if not compiler or shutil.which(compiler.split()[0]) is None:
        raise BenchmarkError(
            "the floors are C programs and no C compiler was found",
            hint="install one (Debian: apt-get install gcc libc6-dev) or set CC",
        )
    # Compiled beside its place and then moved, so that two runs at once never see half a file.
    with tempfile.TemporaryDirectory(dir=binary.parent) as folder:
        fresh = Path(folder) / binary.name
        result = subprocess.run(
            [*compiler.split(), *FLAGS, "-o", str(fresh), str(source)],
            capture_output=True,
            text=True,
            timeout=COMPILE_S_MAX,
            check=False,
        )
        if result.returncode != 0:
            raise BenchmarkError(
                f"{compiler} could not compile {source.name}: {result.stderr.strip()[-400:]}",
                hint="the floors need Linux headers (Debian: apt-get install libc6-dev)",
            )
        fresh.rename(binary)
