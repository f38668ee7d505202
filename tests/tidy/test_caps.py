"""Functions and lines have a length that a reader can hold; a very long file states its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.tidy.caps import functions_of
from tests.tidy.source import ROOT, assert_none, code_files, lines_of, write_sample

if TYPE_CHECKING:
    from pathlib import Path

SUFFIXES = (".py", ".pyi", ".sh", ".c", ".h", ".pyx", ".pxd")
FILE_LINES_MAX = 800
LONG_FILES: dict[str, str] = {}
"""Files above the limit, each with the reason why a reader wants to see it whole."""
FUNCTION_LINES_MAX = 60
LINE_CHARACTERS_MAX = 100


def long_files(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)} has {count} lines: give the reason in LONG_FILES, or split it"
        for path in code_files(root, *SUFFIXES)
        if (count := len(lines_of(path))) > FILE_LINES_MAX
        and str(path.relative_to(root)) not in LONG_FILES
    ]


def long_lines(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{number} has {len(line)} characters"
        for path in code_files(root, *SUFFIXES)
        for number, line in enumerate(lines_of(path), start=1)
        if len(line) > LINE_CHARACTERS_MAX
    ]


def long_functions(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{found.line} {found.name} has {found.line_count} lines"
        for path in code_files(root, *SUFFIXES)
        for found in functions_of(path)
        if found.line_count > FUNCTION_LINES_MAX
    ]


def test_a_very_long_file_states_its_reason() -> None:
    assert_none(long_files(ROOT))


def test_no_line_is_too_long() -> None:
    assert_none(long_lines(ROOT))


def test_no_function_is_too_long() -> None:
    assert_none(long_functions(ROOT))


@pytest.mark.parametrize("name", ["a.py", "a.pyx", "a.c"])
def test_a_file_one_line_too_long_is_found(tmp_path: Path, name: str) -> None:
    write_sample(tmp_path, f"gridstat/core/{name}", "\n" * FILE_LINES_MAX)
    assert long_files(tmp_path) == []
    write_sample(tmp_path, f"gridstat/core/{name}", "\n" * (FILE_LINES_MAX + 1))
    assert len(long_files(tmp_path)) == 1


@pytest.mark.parametrize("name", ["a.py", "a.pyx", "a.c", "a.h"])
def test_a_line_one_character_too_long_is_found(tmp_path: Path, name: str) -> None:
    write_sample(tmp_path, f"tools/{name}", "x" * 100 + "\n" + "x" * 101 + "\n")
    assert long_lines(tmp_path) == [f"tools/{name}:2 has 101 characters"]


PYTHON_FUNCTION = "def f():\n" + "    pass\n" * 59
CYTHON_FUNCTION = "cdef int f(\n    int a\n) noexcept:\n" + "    pass\n" * 57
C_FUNCTION = "static int\nf(void)\n{\n" + "    ;\n" * 56 + "}\n"


@pytest.mark.parametrize(
    ("name", "text", "longer"),
    [
        ("a.py", PYTHON_FUNCTION, PYTHON_FUNCTION + "    pass\n"),
        ("a.pyx", CYTHON_FUNCTION, CYTHON_FUNCTION + "\n    pass\n"),
        ("a.c", C_FUNCTION, C_FUNCTION.replace("{\n", "{\n    ;\n")),
    ],
)
def test_a_function_one_line_too_long_is_found(
    tmp_path: Path, name: str, text: str, longer: str
) -> None:
    write_sample(tmp_path, f"gridstat/core/{name}", f"{text}\n\n")
    assert long_functions(tmp_path) == []
    write_sample(tmp_path, f"gridstat/core/{name}", f"\n{longer}\n\nx = 1;\n")
    assert len(long_functions(tmp_path)) == 1
