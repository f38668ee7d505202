"""Everything has a bound, our source too: files, functions, lines, parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.tidy.caps import functions_of
from tests.tidy.source import ROOT, assert_none, code_files, lines_of, write_sample

if TYPE_CHECKING:
    from pathlib import Path

PYTHON = dict.fromkeys((".py", ".pyi", ".sh"), 400)
FILE_LINES_MAX = {**PYTHON, **dict.fromkeys((".c", ".h", ".pyx", ".pxd"), 500)}
FUNCTION_LINES_MAX = 60
LINE_CHARACTERS_MAX = 100
PARAMETERS_MAX = 6
OPTIONS_ARE_PARAMETERS = "gridstat/console/cli"
"""A command's function takes one parameter per option; a person reads them in `--help`."""


def long_files(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)} has {count} lines, at most {most} are allowed"
        for path in code_files(root, *FILE_LINES_MAX)
        if (count := len(lines_of(path))) > (most := FILE_LINES_MAX[path.suffix])
    ]


def long_lines(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{number} has {len(line)} characters"
        for path in code_files(root, *FILE_LINES_MAX)
        for number, line in enumerate(lines_of(path), start=1)
        if len(line) > LINE_CHARACTERS_MAX
    ]


def long_functions(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{found.line} {found.name} has {found.line_count} lines"
        for path in code_files(root, *FILE_LINES_MAX)
        for found in functions_of(path)
        if found.line_count > FUNCTION_LINES_MAX
    ]


def long_parameter_lists(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{found.line} {found.name} takes {found.parameter_count}"
        for path in code_files(root, ".py", ".c", ".h")
        if not path.is_relative_to(root / OPTIONS_ARE_PARAMETERS)
        for found in functions_of(path)
        if found.parameter_count > PARAMETERS_MAX
    ]


def test_no_file_is_too_long() -> None:
    assert_none(long_files(ROOT))


def test_no_line_is_too_long() -> None:
    assert_none(long_lines(ROOT))


def test_no_function_is_too_long() -> None:
    assert_none(long_functions(ROOT))


def test_no_function_takes_too_many_parameters() -> None:
    assert_none(long_parameter_lists(ROOT))


@pytest.mark.parametrize(("name", "most"), [("a.py", 400), ("a.pyx", 500), ("a.c", 500)])
def test_a_file_one_line_too_long_is_found(tmp_path: Path, name: str, most: int) -> None:
    write_sample(tmp_path, f"gridstat/core/{name}", "\n" * most)
    assert long_files(tmp_path) == []
    write_sample(tmp_path, f"gridstat/core/{name}", "\n" * (most + 1))
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


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", "class A:\n    def f(self, a, b, *, c, d, e, f{}): ...\n"),
        ("a.c", "int f(int a, int b, int c,\n      int d, int e, int (*g)(int, int){})\n{{\n}}\n"),
    ],
)
def test_a_seventh_parameter_is_found(tmp_path: Path, name: str, text: str) -> None:
    write_sample(tmp_path, f"gridstat/core/{name}", text.format(""))
    assert long_parameter_lists(tmp_path) == []
    write_sample(tmp_path, f"gridstat/core/{name}", text.format(", h"))
    assert len(long_parameter_lists(tmp_path)) == 1
