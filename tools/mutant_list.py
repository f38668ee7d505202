"""List of small faults, `tools/mutants.toml`: its reader, and the check that it still applies."""

from __future__ import annotations

import ast
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tools" / "mutants.toml"
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
LIMIT_S = 120


@dataclass(frozen=True, slots=True)
class Mutant:
    """One small fault: `old`, which occurs exactly once in `file`, becomes `new`.

    Either `tests` (arguments of pytest) or `command` (arguments of Python, such as a run of the
    simulator) must notice it, within `limit_s`.
    """

    name: str
    file: str
    old: str
    new: str
    breaks: str
    tests: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    limit_s: int = LIMIT_S

    @property
    def area(self) -> str:
        """Return the package of the fault: core, broker and so on."""
        return Path(self.file).parts[1]

    @property
    def is_compiled(self) -> bool:
        return Path(self.file).suffix in {".c", ".h"}


def read_mutants(path: Path = LIST) -> list[Mutant]:
    """Return all mutants in the order of the file."""
    with path.open("rb") as file:
        entries = tomllib.load(file)["mutant"]
    return [msgspec.convert(entry, Mutant) for entry in entries]


def complaints(mutants: list[Mutant], root: Path = ROOT) -> list[str]:
    """Return why mutants cannot be planted or judged any more, a line each."""
    found = [
        f"two mutants are called {mutant.name}"
        for at, mutant in enumerate(mutants)
        if any(other.name == mutant.name for other in mutants[:at])
    ]
    for mutant in mutants:
        found += [f"{mutant.name}: {reason}" for reason in complaints_of(mutant, root)]
    return found


def complaints_of(mutant: Mutant, root: Path = ROOT) -> list[str]:
    """Return why this mutant cannot be planted or judged any more."""
    found = []
    if NAME.fullmatch(mutant.name) is None:
        found.append("a name is small letters and digits, joined by hyphens")
    if mutant.old == mutant.new:
        found.append("the new text is the old one")
    if bool(mutant.tests) == bool(mutant.command):
        found.append("name either the tests that must notice it, or a command")
    path = root / mutant.file
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    count = text.count(mutant.old)
    if count != 1:
        found.append(f"its old text occurs {count} times in {mutant.file}, not once")
    elif path.suffix == ".py" and not is_python(text.replace(mutant.old, mutant.new)):
        found.append(f"{mutant.file} is no Python with its new text")
    found += [f"there is no test {test}" for test in mutant.tests if not has_test(root, test)]
    return found


def is_python(text: str) -> bool:
    """Return whether a text compiles; a fault that does not would be noticed without any test."""
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def has_test(root: Path, test: str) -> bool:
    """Return whether pytest finds `path`, `path::function` or `path::function[parameters]`."""
    file, _, function = test.partition("::")
    path = root / file
    if not function:
        return path.is_file()
    if not path.is_file():
        return False
    tree = ast.parse(path.read_text(encoding="utf-8"))
    name = function.partition("[")[0]
    return any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body)
