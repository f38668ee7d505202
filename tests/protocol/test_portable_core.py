"""The core as a system without Linux's extras has it: strict C11, POSIX calls alone, and it runs.

Two compilers build it, the machine's own and clang: a clang of the machine, or else the one in the
package `ziglang`, which `make install` fetches. The programs are those of `tests/sanitize`: threads
of the core and of the ends, real sockets, and every event accounted for.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.protocol.programs import CORE, ROOT

if TYPE_CHECKING:
    from pathlib import Path

STRICT = ("-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Werror")
PORTABLE = ("-DGS_PORTABLE", "-pthread", "-O1", "-UNDEBUG", f"-I{CORE}")
"""Some compilers leave assertions out of optimised programs; here they are what is checked."""
PROGRAMS = ("end_cases", "ends", "loop_cases", "table_swaps")
MADE_BY_CYTHON = ("_core", "_ends")
BUILD_S_MAX = 200
RUN_S_MAX = 100

pytestmark = pytest.mark.timeout(2 * BUILD_S_MAX)


@dataclass(frozen=True)
class Compiler:
    """Command of a compiler; the one in ziglang keeps a cache, which lies in `build`."""

    words: tuple[str, ...]

    def run(self, *arguments: str | Path) -> str:
        cache = str(ROOT / "build" / "zig")
        caches = {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
        done = subprocess.run(
            [*self.words, *arguments],
            env={**caches, **os.environ},
            capture_output=True,
            text=True,
            timeout=BUILD_S_MAX,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr


def own_compiler() -> Compiler:
    """The compiler that built the core of this installation."""
    return Compiler((sysconfig.get_config_var("CC").split()[0],))


def clang() -> Compiler:
    if (found := shutil.which("clang")) is not None:
        return Compiler((found,))
    assert importlib.util.find_spec("ziglang") is not None, (
        "there is no clang; hint: `make install` fetches the package ziglang, which has one"
    )
    return Compiler((sys.executable, "-m", "ziglang", "cc"))


@pytest.fixture(scope="module", params=[own_compiler, clang], ids=["own", "clang"])
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the programs, each linked with the portable core."""
    compiler: Compiler = request.param()
    if request.param is clang:
        assert "clang version" in compiler.run("--version")
    folder = tmp_path_factory.mktemp("portable")
    sources = [path for path in sorted(CORE.glob("*.c")) if path.stem not in MADE_BY_CYTHON]
    assert len(sources) > 10
    library = folder / "libcore.so"
    compiler.run(*STRICT, *PORTABLE, "-fPIC", "-shared", "-o", library, *sources)
    for name in PROGRAMS:
        source = ROOT / "tests" / "sanitize" / f"{name}.c"
        search = (library, f"-Wl,-rpath,{folder}")
        compiler.run("-std=gnu11", *PORTABLE, "-o", folder / name, source, *search)
    return folder


@pytest.mark.feature("S3-30")
def test_the_portable_core_runs_and_every_event_is_accounted_for(programs: Path) -> None:
    for name in PROGRAMS:
        done = subprocess.run(
            [programs / name], capture_output=True, text=True, timeout=RUN_S_MAX, check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), name


@pytest.mark.feature("S3-30")
def test_the_portable_core_calls_nothing_that_linux_alone_has(programs: Path) -> None:
    """Check the undefined symbols of the built library."""
    said = subprocess.run(
        ["nm", "-D", "--undefined-only", programs / "libcore.so"],
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=True,
    )
    wanted = {line.split()[-1].partition("@")[0] for line in said.stdout.splitlines()}
    assert {"recv", "send", "poll", "pipe"} <= wanted
    extras = {"recvmmsg", "sendmmsg", "ppoll", "pipe2", "eventfd", "epoll_wait", "accept4"}
    extras |= {"pthread_setaffinity_np", "pthread_setname_np", "eventfd_write", "eventfd_read"}
    assert wanted & extras == set()
