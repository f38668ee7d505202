"""The tools behind the Makefile's targets find what they are there to find."""

from __future__ import annotations

import re

from tests.tidy.source import ROOT
from tools import leaks, requirements

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
