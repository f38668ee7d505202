"""Prints which checklist rows a test verifies and which none does; fails if any is uncovered.

Reads the `pytest.mark.feature("S0-61", ...)` marks from the source of the tests, so that it works
before anything is built, and the required rows from features.toml.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIRED = Path(__file__).with_name("features.toml")


def main() -> int:
    required = required_rows(REQUIRED)
    covered = marked_rows(ROOT / "tests")
    for row, title in required.items():
        tests = covered.get(row, [])
        state = f"covered by {len(tests)}" if tests else "NOT COVERED"
        print(f"{row:<7} {title:<52} {state}")
    missing = [row for row in required if row not in covered]
    print(f"{len(required) - len(missing)} covered, {len(missing)} not covered")
    return 1 if missing else 0


def required_rows(path: Path) -> dict[str, str]:
    sources: dict[str, dict[str, str]] = tomllib.loads(path.read_text(encoding="utf-8"))
    return {
        f"{source}-{number}": title
        for source, rows in sources.items()
        for number, title in rows.items()
    }


def marked_rows(tests: Path) -> dict[str, list[str]]:
    """For each row the places of the marks that claim it."""
    found: dict[str, list[str]] = {}
    for path in sorted(tests.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for row in _rows_of(node, path):
                found.setdefault(row, []).append(f"{path.name}:{getattr(node, 'lineno', 0)}")
    return found


def _rows_of(node: ast.AST, path: Path) -> list[str]:
    if not isinstance(node, ast.Call) or ast.unparse(node.func) != "pytest.mark.feature":
        return []
    rows = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
    if not rows or len(rows) != len(node.args):
        raise SystemExit(f"{path}:{node.lineno}: name the rows of a feature mark as plain strings")
    return [str(row) for row in rows]


if __name__ == "__main__":
    sys.exit(main())
