"""The tools behind the Makefile's targets find what they are there to find."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.tidy.source import ROOT, write_sample
from tools import features, leaks, requirements

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

SUMMARY: AddressSanitizer: 108 byte(s) leaked in 2 allocation(s).
"""


def test_marks_are_found_on_functions_modules_and_parameters(tmp_path: Path) -> None:
    text = (
        'pytestmark = pytest.mark.feature("S0-1")\n'
        '@pytest.mark.feature("S0-2", "S3-4")\n'
        '@pytest.mark.parametrize("a", [pytest.param(1, marks=pytest.mark.feature("S1-7"))])\n'
        "def test_a(a): ...\n"
    )
    write_sample(tmp_path, "unit/test_a.py", text)
    assert sorted(features.marked_rows(tmp_path)) == ["S0-1", "S0-2", "S1-7", "S3-4"]


def test_a_row_that_is_not_spelled_out_is_refused(tmp_path: Path) -> None:
    write_sample(tmp_path, "test_a.py", "@pytest.mark.feature(ROW)\ndef test_a(): ...\n")
    with pytest.raises(SystemExit, match="plain strings"):
        features.marked_rows(tmp_path)


def test_the_required_rows_carry_their_source() -> None:
    assert features.required_rows(features.REQUIRED)["S0-61"] == "the rate filter's formula"


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
