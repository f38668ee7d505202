"""The C of the table layouts as a library, compiled when first needed and kept by its hash.

`Layout` is one variable's table; `bench` times many decisions of several tables of one layout.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from benchmarks.errors import BenchmarkError
from benchmarks.floor.build import COMPILE_S_MAX, FLAGS

if TYPE_CHECKING:
    from collections.abc import Sequence

MICRO = Path(__file__).parent
CORE = MICRO.parent.parent / "gridstat" / "core"
SOURCES = (
    MICRO / "table_layouts.c",
    CORE / "channel_keys.c",
    CORE / "copies.c",
    CORE / "duplicates.c",
    CORE / "forwarding_table.c",
    CORE / "memory.c",
    CORE / "newest.c",
    CORE / "platform.c",
    CORE / "rate_law.c",
    CORE / "seal.c",
    CORE / "sources.c",
)
SHARED = ("-shared", "-fPIC", f"-I{CORE}")
DESCRIPTION_BYTES_MAX = 65_536
CHANNELS_MAX = 1_024

Pointer = ctypes.c_void_p


class LayoutKind(IntEnum):
    """Kind of layout, in the order of `layout_kind` in C."""

    CLOSE = 0
    SPARSE = 1
    OURS = 2


class Run(ctypes.Structure):
    """The C structure `layout_run`."""

    _fields_ = (
        ("tables", ctypes.POINTER(Pointer)),
        ("slots", ctypes.POINTER(ctypes.c_int64)),
        ("out", ctypes.POINTER(ctypes.c_uint32)),
        ("table_count", ctypes.c_uint32),
        ("slot_count", ctypes.c_uint32),
        ("repetitions", ctypes.c_uint32),
    )


class RowTooSmallError(Exception):
    """Error of a variable with more distinct divisors than a row of the core holds."""


class Layout:
    """Paths of one variable in one layout; all layouts decide alike for the same paths."""

    def __init__(self, kind: LayoutKind) -> None:
        self.kind = kind
        self._c = library()
        self.table: int = self._c.layout_new(kind)
        self._out = (ctypes.c_uint32 * CHANNELS_MAX)()

    def insert(self, channel: int, every: int) -> None:
        assert 0 <= channel < CHANNELS_MAX
        assert every >= 1, "a divisor counts slots"
        self._c.layout_insert(self.table, channel, every)

    def remove(self, channel: int, every: int) -> bool:
        """Remove one path; return False if there is no such path."""
        return bool(self._c.layout_remove(self.table, channel, every))

    def due(self, slot: int) -> list[int]:
        """Return the channels that get the event of this slot, in the layout's own order."""
        count: int = self._c.layout_due(self.table, slot, self._out)
        if count < 0:
            raise RowTooSmallError
        return self._out[:count]

    def tests(self, slot: int) -> int:
        """Return how many tests of intervals, channels, groups and marks this decision takes."""
        count: int = self._c.layout_tests(self.table, slot, self._out)
        if count < 0:
            raise RowTooSmallError
        return count

    def describe(self) -> str:
        buffer = ctypes.create_string_buffer(DESCRIPTION_BYTES_MAX)
        self._c.layout_describe(self.table, buffer, DESCRIPTION_BYTES_MAX)
        return buffer.value.decode()

    def close(self) -> None:
        if self.table:
            self._c.layout_free(self.table)
            self.table = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def bench(tables: Sequence[Layout], slots: Sequence[int], *, repetitions: int) -> int:
    """Return nanoseconds for `repetitions` times every slot at every table, all of one layout."""
    assert len({table.kind for table in tables}) == 1
    for table in tables:
        table.due(0)  # Raises, which the loop in C cannot.
    run = Run(
        tables=(Pointer * len(tables))(*(table.table for table in tables)),
        slots=(ctypes.c_int64 * len(slots))(*slots),
        out=(ctypes.c_uint32 * CHANNELS_MAX)(),
        table_count=len(tables),
        slot_count=len(slots),
        repetitions=repetitions,
    )
    elapsed_ns: int = library().layout_bench(ctypes.byref(run))
    return elapsed_ns


@cache
def library() -> Any:  # noqa: ANN401  # ctypes types the functions of a library as it goes.
    """Return the loaded library, with declared functions."""
    out = ctypes.POINTER(ctypes.c_uint32)
    loaded = ctypes.CDLL(str(library_path()))
    loaded.layout_new.argtypes, loaded.layout_new.restype = [ctypes.c_uint32], Pointer
    loaded.layout_free.argtypes, loaded.layout_free.restype = [Pointer], None
    loaded.layout_insert.argtypes = [Pointer, ctypes.c_uint32, ctypes.c_uint32]
    loaded.layout_insert.restype = None
    loaded.layout_remove.argtypes = [Pointer, ctypes.c_uint32, ctypes.c_uint32]
    loaded.layout_remove.restype = ctypes.c_bool
    for decision in (loaded.layout_due, loaded.layout_tests):
        decision.argtypes, decision.restype = [Pointer, ctypes.c_int64, out], ctypes.c_int64
    loaded.layout_bench.argtypes = [ctypes.POINTER(Run)]
    loaded.layout_bench.restype = ctypes.c_uint64
    loaded.layout_describe.argtypes = [Pointer, ctypes.c_char_p, ctypes.c_size_t]
    loaded.layout_describe.restype = None
    return loaded


def library_path(*, folder: Path | None = None) -> Path:
    """Return the library for exactly these sources; compile it if it is missing."""
    place = folder if folder is not None else _cache_folder()
    read = sorted({*SOURCES, *MICRO.glob("*.h"), *CORE.glob("*.h")})
    digest = hashlib.sha256(" ".join((*FLAGS, *SHARED)).encode())
    for path in read:
        digest.update(path.read_bytes())
    binary = place / f"table_layouts-{digest.hexdigest()[:16]}.so"
    if not binary.exists():
        place.mkdir(parents=True, exist_ok=True)
        _compile(binary)
    return binary


def _cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "gridstat" / "micro"


def _compile(binary: Path) -> None:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if not compiler or shutil.which(compiler.split()[0]) is None:
        raise BenchmarkError(
            "the table layouts are written in C and no C compiler was found",
            hint="install one (Debian: apt-get install gcc libc6-dev) or set CC",
        )
    # Compiled beside its place and then moved, so that two runs at once never see half a file.
    with tempfile.TemporaryDirectory(dir=binary.parent) as folder:
        fresh = Path(folder) / binary.name
        result = subprocess.run(
            [*compiler.split(), *FLAGS, *SHARED, "-o", str(fresh), *map(str, SOURCES)],
            capture_output=True,
            text=True,
            timeout=COMPILE_S_MAX,
            check=False,
        )
        if result.returncode != 0:
            raise BenchmarkError(f"{compiler} could not compile: {result.stderr.strip()[-400:]}")
        fresh.rename(binary)
