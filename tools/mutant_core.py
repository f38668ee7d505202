"""Compiler of the core with one file changed; objects of all other files are shared."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CORE = Path("gridstat") / "core"
DOORS = ("_core", "_ends")
FLAGS = ("-std=gnu11", "-pthread", "-O2")  # As setup.py compiles the core.


class CoreBuild:
    """Objects of the unchanged core, in their own folder."""

    def __init__(self, source: Path, objects: Path, doors: tuple[str, ...] = DOORS) -> None:
        self._source = source
        self._objects = objects
        self._doors = doors
        # Read here, since Python reads these lazily, and concurrent threads may miss some.
        self._compiler = shlex.split(sysconfig.get_config_var("CC"))
        self._linker = shlex.split(sysconfig.get_config_var("LDSHARED"))
        self._suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
        self._headers = sysconfig.get_path("include")

    def prepare(self, jobs: int) -> None:
        """Compile everything once; a failure here is a fault of the machine or of the source."""
        self._objects.mkdir()
        for door in self._doors:
            command = [sys.executable, "-m", "cython", "-3", "-o", str(self._generated(door))]
            self._run([*command, str(CORE / f"{door}.pyx")], self._source)
        files = [*(self._generated(door) for door in self._doors), *self._ours(self._source)]
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(lambda file: self._compile(self._source, file, self._objects), files))

    def build(self, tree: Path, changed: str) -> None:
        """Put into `tree` the two modules of its own core, of which one file was changed."""
        own = tree / "build" / "objects"
        own.mkdir(parents=True, exist_ok=True)
        sources = self._ours(tree)
        files = [tree / changed]
        if changed.endswith(".h"):
            files = [*(self._generated(door) for door in self._doors), *sources]
        try:
            for file in files:
                self._compile(tree, file, own)
            for door in self._doors:
                self._link(tree, door, [self._generated(door), *sources], own)
        finally:
            shutil.rmtree(own)  # Also if it does not compile: the next core must not use them.

    def _compile(self, tree: Path, file: Path, folder: Path) -> None:
        command = [*self._compiler, "-fPIC", "-DNDEBUG", *FLAGS, f"-I{self._headers}"]
        command += [f"-I{tree / CORE}", "-c", str(file), "-o", str(self._object(file, folder))]
        self._run(command, tree)

    def _link(self, tree: Path, door: str, files: list[Path], own: Path) -> None:
        objects = [self._object(file, own) for file in files]
        objects = [it if it.exists() else self._objects / it.name for it in objects]
        module = tree / CORE / f"{door}{self._suffix}"
        module.unlink(missing_ok=True)
        self._run([*self._linker, "-pthread", *map(str, objects), "-o", str(module)], tree)

    def _generated(self, door: str) -> Path:
        return self._objects / f"{door}.c"

    def _ours(self, tree: Path) -> list[Path]:
        return sorted(path for path in (tree / CORE).glob("*.c") if path.stem not in self._doors)

    def _object(self, file: Path, folder: Path) -> Path:
        return folder / f"{file.stem}.o"

    def _run(self, command: list[str], folder: Path) -> None:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BuildError(f"{shlex.join(command)}\n{done.stderr}")


class BuildError(Exception):
    """Failure of the compiler or linker."""
