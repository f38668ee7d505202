"""Names that say nothing are banned, and every module says what it is."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from tests.tidy.source import ROOT, assert_none, code_files, lines_of, write_sample

if TYPE_CHECKING:
    from pathlib import Path

BANNED_MODULES = {"common", "helpers", "misc", "types", "util", "utils"}
ENDINGS = "Helpers?|Utils?|Impl"
CLASS_ENDING = re.compile(rf"(?:^|[a-z0-9])(?:{ENDINGS})$")
SNAKE_ENDING = re.compile(rf"_(?:{ENDINGS.lower()})(?:_t)?$")
C_TYPE = re.compile(r"(?:^\s*(?:typedef\s+)?(?:struct|enum|union)\s+(\w+)|^}\s*(\w+)\s*;)")
C_PUBLIC = re.compile(r"^(?!static\b|typedef\b|extern\b|return\b|else\b)[a-z]\w*[\w\s*]*?\b(\w+)\(")
BANNED_PREFIXES = ("get_", "m_")
NAMED_ELSEWHERE = {"get_command"}
"""Methods of a library's class that we override."""
DOCSTRING_LINES_MAX = 30
PACKAGE_DOCSTRING_LINES_MAX = 15
DRAWN = re.compile(r"^\s|^$|[├└│┌─]|\|.*\|")
"""A line of a picture, a table or an example: those do not count as prose."""


def banned_modules(root: Path) -> list[str]:
    """Files and folders whose name says nothing, or that borrow the name of the core."""
    return [
        f"{path.relative_to(root)}: choose a word for what is in it"
        for path in code_files(root, ".py", ".pyx", ".c", ".h")
        for part in [*path.relative_to(root).parts[:-1], path.stem]
        if part in BANNED_MODULES
        or SNAKE_ENDING.search(part)
        or (part == "core" and "core" not in path.relative_to(root).parts[1:-1])
    ]


def banned_names(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{node.lineno} {node.name}"
        for path in code_files(root, ".py", ".pyi")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.ClassDef) and CLASS_ENDING.search(node.name))
        or (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and not node.name.startswith("test_")  # A sentence may end in any word.
            and node.name not in NAMED_ELSEWHERE
            and (node.name.startswith(BANNED_PREFIXES) or SNAKE_ENDING.search(node.name))
        )
    ]


def banned_c_types(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{number} {found[1] or found[2]}"
        for path in code_files(root, ".c", ".h")
        for number, line in enumerate(lines_of(path), start=1)
        if (found := C_TYPE.search(line)) and SNAKE_ENDING.search(found[1] or found[2])
    ]


def bare_c_symbols(root: Path) -> list[str]:
    """Return symbols in the core's headers without `gs_`, since C has one namespace."""
    return [
        f"{path.relative_to(root)}:{number} {found[1]}"
        for path in sorted((root / "gridstat" / "core").glob("*.h"))
        for number, line in enumerate(lines_of(path), start=1)
        if (found := C_PUBLIC.match(line)) and not found[1].startswith("gs_")
    ]


def bad_docstrings(root: Path) -> list[str]:
    found = []
    for path in code_files(root, ".py"):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        is_package = path.name == "__init__.py"
        most = PACKAGE_DOCSTRING_LINES_MAX if is_package else DOCSTRING_LINES_MAX
        prose = [line for line in (text or "").splitlines() if not DRAWN.search(line)]
        if not prose:
            found.append(f"{path.relative_to(root)} does not say what it is")
        elif len(prose) > most:
            found.append(f"{path.relative_to(root)} opens with {len(prose)} lines, {most} do")
    return found


def headers_without_a_word(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)} does not say what it is"
        for path in code_files(root, ".h")
        if not path.read_text(encoding="utf-8").startswith("/* ")
    ]


def test_no_module_is_an_attic() -> None:
    assert_none(banned_modules(ROOT))


def test_names_of_classes_and_functions_say_something() -> None:
    assert_none(banned_names(ROOT))


def test_names_of_c_types_say_something() -> None:
    assert_none(banned_c_types(ROOT))


def test_public_c_symbols_carry_our_prefix() -> None:
    assert_none(bare_c_symbols(ROOT))


def test_every_module_opens_with_a_short_docstring() -> None:
    assert_none(bad_docstrings(ROOT))


def test_every_header_opens_with_a_comment() -> None:
    assert_none(headers_without_a_word(ROOT))


@pytest.mark.parametrize("name", ["utils.py", "misc/a.py", "queue_helper.py", "types.h", "core.c"])
def test_a_module_that_is_an_attic_is_found(tmp_path: Path, name: str) -> None:
    write_sample(tmp_path, f"gridstat/net/{name}", "")
    assert len(banned_modules(tmp_path)) == 1


def test_the_core_may_be_called_core(tmp_path: Path) -> None:
    write_sample(tmp_path, "gridstat/core/rows.py", "")
    write_sample(tmp_path, "tests/unit/core/test_rows.py", "")
    assert banned_modules(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "is_banned"),
    [
        ("class PathHelper: ...", True),
        ("class EventUtils: ...", True),
        ("class Metadata: ...", False),
        ("class Database: ...", False),
        ("def get_path(): ...", True),
        ("def m_lookup(): ...", True),
        ("async def close_helper(): ...", True),
        ("def targets(): ...", False),
        ("def test_it_calls_the_helper(): ...", False),
    ],
)
def test_an_empty_name_is_found(tmp_path: Path, text: str, *, is_banned: bool) -> None:
    write_sample(tmp_path, "gridstat/net/a.py", text)
    assert bool(banned_names(tmp_path)) == is_banned


@pytest.mark.parametrize("text", ["struct gs_event_utils {", "} gs_path_helper;"])
def test_an_empty_name_of_a_c_type_is_found(tmp_path: Path, text: str) -> None:
    write_sample(tmp_path, "gridstat/core/a.h", text)
    assert len(banned_c_types(tmp_path)) == 1


def test_a_public_c_symbol_without_prefix_is_found(tmp_path: Path) -> None:
    text = "int gs_good(int a);\nstatic inline int fine(void)\nuint64_t *bad(void);\n"
    write_sample(tmp_path, "gridstat/core/a.h", text)
    assert bare_c_symbols(tmp_path) == ["gridstat/core/a.h:3 bad"]


def test_a_missing_docstring_is_found(tmp_path: Path) -> None:
    write_sample(tmp_path, "gridstat/net/a.py", "x = 1\n")
    assert bad_docstrings(tmp_path) == ["gridstat/net/a.py does not say what it is"]


def test_a_line_of_prose_too_many_is_found_and_a_picture_is_not(tmp_path: Path) -> None:
    prose = "A line.\n" * DOCSTRING_LINES_MAX
    write_sample(tmp_path, "gridstat/net/a.py", f'"""{prose}\n  drawn\n├── drawn\n"""\n')
    assert bad_docstrings(tmp_path) == []
    write_sample(tmp_path, "gridstat/net/a.py", f'"""{prose}One more.\n"""\n')
    assert len(bad_docstrings(tmp_path)) == 1


def test_a_header_without_a_comment_is_found(tmp_path: Path) -> None:
    write_sample(tmp_path, "gridstat/core/a.h", "#ifndef A\n")
    assert len(headers_without_a_word(tmp_path)) == 1
