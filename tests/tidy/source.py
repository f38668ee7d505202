"""Paths of the source, and helpers by which the tidy tests read it."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE_FOLDERS = ("gridstat", "lab", "tests", "tools", "benchmarks", "examples")
NOT_OURS = {".git", ".venv", "build", "dist", "__pycache__", ".mypy_cache", ".ruff_cache"}


def code_files(root: Path, *suffixes: str) -> list[Path]:
    """The files of ours under `root` that people edit, in a stable order."""
    return sorted(
        path
        for folder in CODE_FOLDERS
        for path in (root / folder).rglob("*")
        if path.suffix in suffixes and not NOT_OURS.intersection(path.parts) and path.is_file()
    )


def text_files(root: Path, *suffixes: str) -> list[Path]:
    """Every text file of the repository with one of the suffixes, code or not."""
    return sorted(
        path
        for entry in root.iterdir()
        if entry.name not in NOT_OURS and not (entry.is_dir() and entry.name.startswith("."))
        for path in ([entry] if entry.is_file() else entry.rglob("*"))
        if path.suffix in suffixes and not NOT_OURS.intersection(path.parts) and path.is_file()
    )


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def write_sample(root: Path, name: str, text: str) -> Path:
    """A small bad (or good) file for a test of the checkers themselves."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def assert_none(complaints: list[str]) -> None:
    """Fails with every complaint on a line of its own."""
    __tracebackhide__ = True
    assert not complaints, "\n" + "\n".join(complaints)
