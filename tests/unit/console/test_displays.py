"""Guide for new users after the start: its commands work in another terminal."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from gridstat.console.live.displays import look_at

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("found", "is_environment", "first"),
    [
        (None, True, "in this folder, after `. .venv/bin/activate`:"),
        ("/usr/bin/gridstat", True, "in this folder:"),
        (None, False, "in this folder:"),
    ],
)
def test_the_guide_says_how_its_commands_are_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    found: str | None,
    is_environment: bool,
    first: str,
) -> None:
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    if is_environment:
        (programs / "activate").touch()
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setattr(shutil, "which", lambda _: found)
    monkeypatch.chdir(tmp_path)
    assert f"From another terminal, {first}\n  gridstat tree " in look_at()


def test_an_environment_elsewhere_is_named_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "activate").touch()
    (tmp_path / "here").mkdir()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.chdir(tmp_path / "here")
    assert f"after `. {tmp_path / 'activate'}`" in look_at()
