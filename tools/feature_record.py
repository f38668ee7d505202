"""Record of a test run for the checklist: build/features.json, written by tests/feature_plugin.py.

The record has the rows, the reach and the outcome of each marked test, and a digest of the tested
source: a record of another source does not count.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "build" / "features.json"
MAKE_IT = "make test"
TESTED_FOLDERS = ("benchmarks", "examples", "gridstat", "lab", "tests", "tools")
TESTED_SUFFIXES = {
    *(".c", ".h", ".pxd", ".py", ".pyx", ".sh"),
    *(".json", ".lst", ".npz", ".toml", ".txt", ".zlib"),
}
TESTED_FILES = ("Makefile", "pyproject.toml", "setup.py")
"""Files beside the folders: how the core is compiled, and how tests are installed and run."""
MADE_BY_CYTHON = {"_core.c", "_ends.c"}


@dataclass(frozen=True, slots=True)
class MarkedTest:
    """One marked test of a run."""

    test: str
    rows: tuple[str, ...]
    reach: str
    has_passed: bool


class NoRecordError(Exception):
    """Error: there is no record of this source; the message has the command that makes one."""


def source_digest(root: Path = ROOT) -> str:
    """Return the digest of all files that tests depend on and people edit."""
    found = hashlib.sha256()
    beside = [root / name for name in TESTED_FILES if (root / name).is_file()]
    inside = [
        path
        for folder in TESTED_FOLDERS
        for path in (root / folder).rglob("*")
        if path.suffix in TESTED_SUFFIXES and path.name not in MADE_BY_CYTHON
    ]
    for path in sorted([*beside, *inside]):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        found.update(f"{path.relative_to(root).as_posix()} {content}\n".encode())
    return found.hexdigest()


def write_record(path: Path, digest: str, tests: list[MarkedTest]) -> None:
    record = {"source": digest, "tests": [asdict(each) for each in tests]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def read_record(path: Path = RECORD, root: Path = ROOT) -> list[MarkedTest]:
    """Return the tests of the last recorded run; raise `NoRecordError` if it is of other source."""
    if not path.is_file():
        raise NoRecordError(f"no test run is recorded in {path}: run `{MAKE_IT}` first")
    record = json.loads(path.read_text(encoding="utf-8"))
    if record["source"] != source_digest(root):
        raise NoRecordError(f"{path} tells of other source than this: run `{MAKE_IT}` again")
    return [
        MarkedTest(each["test"], tuple(each["rows"]), each["reach"], each["has_passed"])
        for each in record["tests"]
    ]
