"""`make test`: it fails if tests or checks do, and ends in the line of pytest."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.tidy.source import ROOT, lines_of, write_sample

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = ROOT / "tools" / "test.sh"
CLOSING = "3 passed in 1.00s"


def program(folder: Path, name: str, *lines: str) -> None:
    path = write_sample(folder, name, "\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)


def run(
    folder: Path, *, checks: int, tests: int, said: str = CLOSING
) -> subprocess.CompletedProcess[str]:
    """Run the script with a make and a pytest that end with given codes, the checks last."""
    os.mkfifo(folder / "tested")
    program(
        folder,
        "bin/make",
        "read _ < tested",
        'echo "checked: $* ${MAKEFLAGS-no flags}"',
        f"exit {checks}",
    )
    program(folder, "bin/pytest", f"echo {said}", "echo > tested", f"exit {tests}")
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return subprocess.run(
        [SCRIPT, "bin"],
        cwd=folder,
        env={
            **os.environ,
            "PATH": path,
            "MAKEFLAGS": " -j2 --jobserver-auth=3,4",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("checks", "tests", "status"), [(0, 0, 0), (0, 1, 1), (0, 5, 5), (2, 0, 1), (2, 5, 1)]
)
def test_it_fails_if_tests_or_checks_do(
    tmp_path: Path, checks: int, tests: int, status: int
) -> None:
    assert run(tmp_path, checks=checks, tests=tests).returncode == status


def test_checks_that_pass_after_the_tests_say_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, checks=0, tests=0).stdout.splitlines() == [CLOSING]


def test_checks_that_fail_say_why(tmp_path: Path) -> None:
    assert run(tmp_path, checks=2, tests=0).stdout.splitlines() == [
        CLOSING,
        "checked: --no-print-directory lint type no flags",
        "lint or type failed, see above",
    ]


def test_the_tests_keep_bytecode_though_the_caller_keeps_none(tmp_path: Path) -> None:
    said = run(tmp_path, checks=0, tests=0, said="kept: ${PYTHONDONTWRITEBYTECODE-all}").stdout
    assert said.splitlines() == ["kept: all"]


def test_no_recipe_calls_make_for_then_it_runs_though_only_asked_what_it_would_do() -> None:
    recipes = [line for line in lines_of(ROOT / "Makefile") if line.startswith("\t")]
    assert not [line for line in recipes if "$(MAKE)" in line or "${MAKE}" in line]
