"""The tools behind the Makefile's targets find what they are there to find."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.tidy.source import ROOT
from tools import changelog, leaks, requirements

if TYPE_CHECKING:
    from pathlib import Path

REPORT = """
==1==ERROR: LeakSanitizer: detected memory leaks

Direct leak of 8 byte(s) in 1 object(s) allocated from:
    #0 0x1 in malloc
    #1 0x2 in gc_alloc Modules/gcmodule.c:2283

Direct leak of 100 byte(s) in 1 object(s) allocated from:
    #0 0x1 in malloc
    #1 0x2 in gs_allocate gridstat/core/memory.c:4

Direct leak of 80 byte(s) in 1 object(s) allocated from:
    #0 0x1 in realloc
    #1 0x2  (site-packages/pydantic_core/_pydantic_core.cpython-311-x86_64-linux-gnu.so+0x1)

SUMMARY: AddressSanitizer: 188 byte(s) leaked in 3 allocation(s).
"""


def test_of_all_leaks_only_those_of_the_core_count() -> None:
    (leak,) = leaks.core_leaks(REPORT)
    assert "gs_allocate" in leak


def test_every_requirement_is_pinned_for_tests() -> None:
    """A newer linter once failed a commit that it had nothing to do with."""
    pinned = {
        re.sub(r"[._]", "-", line.partition("==")[0]).lower()
        for line in (ROOT / "tools" / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line
    }
    wanted = {
        re.split(r"[\[=<>]", line)[0].lower()
        for line in requirements.requirements(ROOT / "pyproject.toml")
    }
    assert wanted <= pinned


def test_requirements_cover_building_running_and_developing() -> None:
    names = " ".join(requirements.requirements(ROOT / "pyproject.toml"))
    assert all(name in names for name in ("cython", "numpy", "psycopg", "pytest"))


def test_fragments_of_changes_become_a_section_above_the_earlier_ones(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("not a fragment\n", encoding="utf-8")
    (tmp_path / "b.feature.md").write_text("A new\ncommand.\n", encoding="utf-8")
    (tmp_path / "a.safety.md").write_text("No loss.\n", encoding="utf-8")
    section = changelog.section_of("0.2.0", "2027-03-01", changelog.fragments_in(tmp_path))
    text = changelog.with_section("# Changelog\n\n## 0.1.0 (2026-11-18)\n\n- First.\n", section)
    assert text == (
        "# Changelog\n\n"
        "## 0.2.0 (2027-03-01)\n\n"
        "### Safety and performance\n\n- No loss.\n\n"
        "### Features\n\n- A new command.\n\n"
        "## 0.1.0 (2026-11-18)\n\n- First.\n"
    )


def test_a_fragment_whose_name_says_no_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.bugfix.md").write_text("Mended.\n", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"a\.bugfix\.md"):
        changelog.fragments_in(tmp_path)


def test_every_fragment_of_the_next_version_says_its_kind() -> None:
    assert isinstance(changelog.fragments_in(ROOT / "changes"), list)
