"""Terminals: stable names that commands share, one process each, with certificates made before."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from gridstat.console.access import load_access
from gridstat.console.config.grid_file import grid_from_text
from gridstat.console.grid_folder import GridFolder
from gridstat.console.terminals import (
    TERMINALS,
    issued_terminals,
    take_terminal,
    terminal_names,
    usable_terminals,
)
from gridstat.model.errors import CertificateRefused
from gridstat.net.command.identity import Identity, Role

if TYPE_CHECKING:
    from pathlib import Path

    from gridstat.console.access import Access

ALONE = 'cloud = "c1"\n[[router]]\nname = "e0"\nrole = "edge"\n'


@pytest.fixture
def access(tmp_path: Path) -> Access:
    """A folder as `gridstat up` makes it, copied to another host: without the authority's key."""
    GridFolder(tmp_path, grid_from_text(ALONE, file="test"), ALONE).write()
    made = load_access(tmp_path)
    (made.certificates.path / "ca.key").unlink()
    return made


def first_free(access: Access, stack: ExitStack) -> str:
    for name in usable_terminals(access):
        lock = take_terminal(access, name)
        if lock is not None:
            stack.enter_context(lock)
            return name
    return ""


def test_a_grid_has_certificates_for_all_its_terminals(access: Access) -> None:
    assert issued_terminals(access.certificates, "c1") == terminal_names("c1")
    assert len(terminal_names("c1")) == TERMINALS
    for name in usable_terminals(access):
        assert access.files_of(Role.ENDPOINT, name).certificate.exists()


def test_commands_at_the_same_time_take_different_terminals(access: Access) -> None:
    with ExitStack() as stack:
        taken = [first_free(access, stack) for _ in range(TERMINALS)]
        assert taken == terminal_names("c1")
        assert first_free(access, stack) == "", "all are in use"
    with ExitStack() as stack:
        assert first_free(access, stack) == "c1/terminal-1", "it was given back"


def test_terminals_beyond_the_usual_ones_count_by_number(tmp_path: Path, access: Access) -> None:
    certificates = access.certificates
    for path in certificates.path.glob("endpoint-c1__terminal-*"):
        number = int(path.stem.rpartition("-")[2])
        path.rename(path.with_name(f"endpoint-c1__terminal-{number + 8}{path.suffix}"))
    assert usable_terminals(access) == terminal_names("c1", first=9)
    (certificates.path / "endpoint-c1__terminal-x.key").touch()
    (certificates.path / "endpoint-c10__terminal-1.key").touch()
    assert issued_terminals(certificates, "c1") == terminal_names("c1", first=9)


def test_without_a_terminal_the_missing_certificate_and_its_command_are_named(
    access: Access,
) -> None:
    for path in access.certificates.path.glob("endpoint-c1__terminal-*"):
        path.unlink()
    first = access.certificates.path / "endpoint-c1__terminal-1.pem"
    with pytest.raises(CertificateRefused) as refused:
        usable_terminals(access)
    assert refused.value.args[0] == f"{first} is missing"
    assert "where ca.key is: `gridstat certificates terminals c1`" in refused.value.hint
    assert "--as NAME" in refused.value.hint


@pytest.mark.parametrize("suffix", ["pem", "key"])
def test_either_half_of_a_pair_that_is_missing_is_named(access: Access, suffix: str) -> None:
    gone = access.certificates.path / f"endpoint-c1__terminal-2.{suffix}"
    gone.unlink()
    with pytest.raises(CertificateRefused, match=f"{gone.name} is missing"):
        access.files_of(Role.ENDPOINT, "c1/terminal-2")


def test_where_the_authority_is_at_hand_the_hint_names_the_folder(tmp_path: Path) -> None:
    GridFolder(tmp_path / "a b", grid_from_text(ALONE, file="test"), ALONE).write()
    certificates = load_access(tmp_path / "a b").certificates
    with pytest.raises(CertificateRefused) as refused:
        certificates.present(Identity(Role.ROUTER, "c1/new"))
    assert refused.value.hint == (
        f"issue it: `gridstat certificates issue router/c1/new --folder '{certificates.path}'`"
    )


def test_terminals_are_made_where_the_authority_is_at_hand(tmp_path: Path) -> None:
    GridFolder(tmp_path, grid_from_text(ALONE, file="test"), ALONE).write()
    made = load_access(tmp_path)
    for path in made.certificates.path.glob("endpoint-*"):
        path.unlink()
    with ExitStack() as stack:
        assert first_free(made, stack) == "c1/terminal-1"
    assert issued_terminals(made.certificates, "c1") == ["c1/terminal-1"]
