"""Merges: no file holds the marks of a conflict that nobody has resolved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.tidy.source import ROOT, assert_none, lines_of, text_files, write_sample

if TYPE_CHECKING:
    from pathlib import Path

SUFFIXES = (".py", ".pyi", ".pyx", ".pxd", ".c", ".h", ".md", ".toml", ".sh", ".json", ".txt")
MARKS = ("<" * 7 + " ", ">" * 7 + " ")


def unresolved_conflicts(root: Path) -> list[str]:
    return [
        f"{path.relative_to(root)}:{number}"
        for path in text_files(root, *SUFFIXES)
        for number, line in enumerate(lines_of(path), 1)
        if line.startswith(MARKS)
    ]


def test_no_file_holds_an_unresolved_conflict() -> None:
    assert_none(unresolved_conflicts(ROOT))


def test_an_unresolved_conflict_is_found(tmp_path: Path) -> None:
    text = f"a\n{MARKS[0]}HEAD\nb\n{'=' * 7}\nc\n{MARKS[1]}other\n"
    write_sample(tmp_path, "docs/a.md", text)
    assert unresolved_conflicts(tmp_path) == ["docs/a.md:2", "docs/a.md:6"]
