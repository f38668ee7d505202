"""Compiler of the relay: builds it on first use, keeps the binary by the hash of its sources."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from lab.errors import LabError

FOLDER = Path(__file__).parent
BINARIES = FOLDER.parents[1] / "build" / "lab"
PLAIN = ("-O2", "-std=gnu11")
SANITIZED = ("-O1", "-g", "-std=gnu11", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
COMPILE_S_MAX = 120.0


def relay_path(*, is_sanitized: bool = False, folder: Path | None = None) -> Path:
    """Return the relay's binary for exactly these sources; compile it if it is missing."""
    flags = SANITIZED if is_sanitized else PLAIN
    digest = hashlib.sha256(" ".join(flags).encode())
    for path in sorted([*FOLDER.glob("*.c"), *FOLDER.glob("*.h")]):
        digest.update(path.read_bytes())
    folder = folder or BINARIES
    binary = folder / f"relay-{digest.hexdigest()[:16]}"
    if not binary.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _compile(binary, flags)
    return binary


def _compile(binary: Path, flags: tuple[str, ...]) -> None:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if not compiler or shutil.which(compiler.split()[0]) is None:
        raise LabError(
            "the relay is a C program and no C compiler was found",
            hint="install one (Debian: apt-get install gcc libc6-dev) or set CC",
        )
    # Compiled beside its place and then moved, so that two runs at once never see half a file.
    with tempfile.TemporaryDirectory(dir=binary.parent) as folder:
        fresh = Path(folder) / binary.name
        sources = [str(path) for path in sorted(FOLDER.glob("*.c"))]
        result = subprocess.run(
            [*compiler.split(), *flags, "-o", str(fresh), *sources],
            capture_output=True,
            text=True,
            timeout=COMPILE_S_MAX,
            check=False,
        )
        if result.returncode != 0:
            raise LabError(
                f"{compiler} could not compile the relay: {result.stderr.strip()[-400:]}",
                hint="it needs Linux headers (Debian: apt-get install libc6-dev)",
            )
        fresh.rename(binary)
