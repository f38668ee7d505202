"""The extension module, and nothing else: all other facts stand in pyproject.toml.

GRIDSTAT_SANITIZE=address (with undefined behaviour) or =thread builds it with a sanitizer.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from Cython.Distutils import build_ext
from setuptools import Extension, setup
from setuptools.errors import CompileError, LinkError

CORE = Path("gridstat/core")
SANITIZERS = {
    "": ["-O2"],
    "address": [
        "-O1",
        "-g",
        "-fno-omit-frame-pointer",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
    ],
    "thread": ["-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=thread"],
}
NO_COMPILER = """
gridstat's event path is written in C, and this machine cannot compile it: {reason}.
hint: install a C compiler and Python's headers, then try again
    Debian, Ubuntu:  apt install gcc libc6-dev python3-dev
    Fedora, RHEL:    dnf install gcc glibc-devel python3-devel
    Alpine:          apk add gcc musl-dev linux-headers python3-dev
or install a wheel built elsewhere with `make wheel`; that needs no compiler.
"""


class BuildCore(build_ext):  # type: ignore[misc]  # Cython ships no types.
    """Builds the core, and says what to install where that cannot work."""

    def initialize_options(self) -> None:
        super().initialize_options()
        self.cython_c_in_temp = (
            True  # Generated C must not lie among the sources, which are globbed.
        )

    def build_extension(self, ext: Extension) -> None:
        command = self.compiler.compiler_so[0]
        if shutil.which(command) is None:
            raise SystemExit(NO_COMPILER.format(reason=f"the C compiler `{command}` is missing"))
        headers = Path(sysconfig.get_path("include"))
        if not (headers / "Python.h").exists():
            raise SystemExit(NO_COMPILER.format(reason=f"there is no Python.h in {headers}"))
        try:
            super().build_extension(ext)
        except (CompileError, LinkError) as error:
            reason = f"`{command}` failed as shown above"
            raise SystemExit(NO_COMPILER.format(reason=reason)) from error


def extension(name: str) -> Extension:
    """One of the two doors; both are built from all the C there is, and link what they use."""
    sanitizer = os.environ.get("GRIDSTAT_SANITIZE", "")
    if sanitizer not in SANITIZERS:
        raise SystemExit(f"GRIDSTAT_SANITIZE={sanitizer}: choose address or thread")
    flags = SANITIZERS[sanitizer]
    return Extension(
        f"gridstat.core.{name}",
        sources=[str(CORE / f"{name}.pyx"), *(str(path) for path in sorted(CORE.glob("*.c")))],
        depends=[str(path) for path in (*sorted(CORE.glob("*.h")), *sorted(CORE.glob("*.pxd")))],
        include_dirs=[str(CORE)],
        extra_compile_args=["-std=gnu11", "-pthread", *flags],
        libraries=["dl"] if sys.platform == "linux" else [],
        extra_link_args=["-pthread", *flags],
    )


setup(
    ext_modules=[extension("_core"), extension("_ends")],
    cmdclass={"build_ext": BuildCore},
)
