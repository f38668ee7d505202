"""Programs of PostgreSQL that another user than root has to reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.postgres import reachable

if TYPE_CHECKING:
    from pathlib import Path


def wheel(folder: Path) -> Path:
    """Make an installed wheel: a package with programs, and its libraries beside the package."""
    programs = folder / "server" / "pginstall" / "bin"
    programs.mkdir(parents=True)
    (programs / "initdb").write_text("program")
    (folder / "server.libs").mkdir()
    (folder / "server.libs" / "libpq.so").write_text("library")
    return folder / "server" / "pginstall"


def test_programs_in_a_closed_folder_are_copied_with_the_libraries_beside_them(
    tmp_path: Path,
) -> None:
    home, copies = tmp_path / "home", tmp_path / "copies"
    found = wheel(home)
    home.chmod(0o700)
    programs = reachable(found, copies)
    assert programs.is_relative_to(copies)
    assert (programs / "bin" / "initdb").read_text() == "program"
    beside = programs / "bin" / ".." / ".." / ".." / "server.libs"
    assert (beside / "libpq.so").read_text() == "library"
