"""Measures the functions of Python, Cython and C."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from tests.tidy.source import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CYTHON_FUNCTION = re.compile(r"^(\s*)(?:async\s+)?(?:c|cp)?def\s+(?!extern|class|enum|struct)\S")


@dataclass(frozen=True, slots=True)
class Function:
    """One function: what it is called, where it starts, and how much of it there is."""

    name: str
    line: int
    line_count: int


def functions_of(path: Path) -> list[Function]:
    match path.suffix:
        case ".py" | ".pyi":
            return list(_python_functions(path))
        case ".pyx":
            return list(_cython_functions(lines_of(path)))
        case ".c" | ".h":
            return list(_c_functions(lines_of(path)))
    return []


def _python_functions(path: Path) -> Iterator[Function]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            line_count = (node.end_lineno or node.lineno) - node.lineno + 1
            yield Function(node.name, node.lineno, line_count)


def _cython_functions(lines: list[str]) -> Iterator[Function]:
    """The functions of Cython, by indentation."""
    for start, line in enumerate(lines):
        if found := CYTHON_FUNCTION.match(line):
            deeper = re.compile(rf"{found[1]}(\s|\)|$)|^\s*$")
            body = list(takewhile(deeper.match, lines[start + 1 :]))
            while body and not body[-1].strip():
                body.pop()
            yield Function(line.strip(), start + 1, len(body) + 1)


def _c_functions(lines: list[str]) -> Iterator[Function]:
    """C's functions, by the one brace that stands in the first column of a line of its own."""
    for brace, line in enumerate(lines):
        if line == "{":
            start = _signature_start(lines, brace)
            signature = " ".join(lines[start:brace])
            end = next((at for at in range(brace, len(lines)) if lines[at] == "}"), len(lines))
            name = signature.partition("(")[0].split()[-1].lstrip("*")
            yield Function(name, start + 1, end - start + 1)


def _signature_start(lines: list[str], brace: int) -> int:
    start = brace
    while start > 0 and lines[start - 1].strip() and not lines[start - 1].startswith(("}", "#")):
        if lines[start - 1].endswith(("*/", ";")):
            break
        start -= 1
    return start
