"""Marks `@pytest.mark.feature("S0-61")` of tests, and the reach of each marked test.

A test reaches a row through an interface of users (the API, the CLI or a file), or it tests an
internal part. The folder decides, by what its tests drive: those of tests/cluster start real
processes and use the public API, or the commands where the folder is about commands; those of
tests/spark read and write logs and tables. All others call parts, even classes of the API on a
simulated grid. A test with another reach than its folder says so: `feature("S0-11", reach="file")`.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, Literal, get_args

Reach = Literal["api", "cli", "file", "internal"]
REACHES: Final = get_args(Reach)

REACH_OF_FOLDER: Final[dict[str, Reach]] = {
    "tests": "internal",
    "tests/cluster": "api",
    "tests/cluster/chain_of_four": "internal",
    "tests/cluster/lab_grid": "internal",
    "tests/cluster/lab_namespaces": "internal",
    "tests/cluster/lab_relay": "internal",
    "tests/cluster/lab_trials": "internal",
    "tests/cluster/managed_router": "cli",
    "tests/cluster/walk_through": "cli",
    "tests/cluster/whole_cloud": "cli",
    "tests/spark": "file",
}
"""Reach of the tests in a folder; the nearest folder above a test decides."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One mark in the source: its place, the rows that it names, and their reach."""

    place: str
    rows: tuple[str, ...]
    reach: str


def reach_of(path: str, given: object = None) -> str:
    """Return how a test of this file, such as `tests/unit/test_a.py`, reaches its rows."""
    if given is not None:
        if given not in REACHES:
            raise ValueError(f"reach={given!r} is none of {', '.join(REACHES)}")
        return str(given)
    folders = (str(folder) for folder in PurePosixPath(path).parents)
    return next(
        (REACH_OF_FOLDER[folder] for folder in folders if folder in REACH_OF_FOLDER), "internal"
    )


def marks_in(root: Path) -> list[Mark]:
    """Return all marks under `tests/` of a checkout, read from the source without a build."""
    return [
        mark
        for path in sorted((root / "tests").rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for mark in _marks_of(node, path.relative_to(root).as_posix())
    ]


def _marks_of(node: ast.AST, path: str) -> list[Mark]:
    if not isinstance(node, ast.Call) or ast.unparse(node.func) != "pytest.mark.feature":
        return []
    place = f"{path}:{node.lineno}"
    values = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
    rows = tuple(value for value in values if isinstance(value, str))
    options = {
        keyword.arg: keyword.value.value
        for keyword in node.keywords
        if isinstance(keyword.value, ast.Constant)
    }
    is_plain = len(rows) == len(node.args) and len(options) == len(node.keywords)
    if not rows or not is_plain or options.keys() - {"reach"}:
        raise SystemExit(
            f"{place}: name the rows of a feature mark as plain strings, and its reach"
        )
    try:
        return [Mark(place, rows, reach_of(path, options.get("reach")))]
    except ValueError as error:
        raise SystemExit(f"{place}: {error}") from error
