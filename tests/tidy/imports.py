"""Reads which module imports which, from Python by its syntax tree and from Cython by line."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CYTHON_IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+c?import\b|c?import\s+([\w.]+))")


@dataclass(frozen=True, slots=True)
class Import:
    """One name brought into a module: its dotted path, and where."""

    target: str
    line: int
    is_in_function: bool


def imports_of(path: Path) -> list[Import]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".pyx":
        return list(_cython_imports(text))
    return list(_python_imports(ast.parse(text), is_in_function=False))


def module_name(path: Path, root: Path) -> str:
    parts = list(path.relative_to(root).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_graph(root: Path, package: str) -> dict[str, set[str]]:
    """Module to the modules of the same package that it imports by name.

    That Python also runs the `__init__` of each parent on the way is not counted: the package's
    own front door may re-export what lies behind it.
    """
    paths = {
        module_name(path, root): path
        for suffix in ("*.pyi", "*.py", "*.pyx")
        for path in sorted((root / package).rglob(suffix))
    }
    return {
        name: {_nearest(found.target, set(paths)) for found in imports_of(path)} - {"", name}
        for name, path in paths.items()
    }


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    """Some cycle, as the list of its modules, or nothing."""
    done: set[str] = set()
    for start in sorted(graph):
        if found := _cycle_from(start, graph=graph, done=done, trail=[]):
            return found
    return []


def _cycle_from(
    module: str, *, graph: dict[str, set[str]], done: set[str], trail: list[str]
) -> list[str]:
    if module in trail:
        return [*trail[trail.index(module) :], module]
    if module in done:
        return []
    for target in sorted(graph[module]):
        if found := _cycle_from(target, graph=graph, done=done, trail=[*trail, module]):
            return found
    done.add(module)
    return []


def _nearest(target: str, modules: set[str]) -> str:
    """The module that `from a.b import c` reaches: a.b.c if that is one, else a.b, else none."""
    parent = target.rpartition(".")[0]
    return target if target in modules else parent if parent in modules else ""


def _python_imports(tree: ast.AST, *, is_in_function: bool) -> Iterator[Import]:
    for node in ast.iter_child_nodes(tree):
        inside = is_in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, is_in_function)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield Import(f"{node.module}.{alias.name}", node.lineno, is_in_function)
        else:
            yield from _python_imports(node, is_in_function=inside)


def _cython_imports(text: str) -> Iterator[Import]:
    for number, line in enumerate(text.splitlines(), start=1):
        if found := CYTHON_IMPORT.match(line):
            yield Import(found[1] or found[2], number, line[0].isspace())
