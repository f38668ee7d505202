"""`gridstat certificates` makes, renews and shows; a wrong request is one message and a hint."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from gridstat.console.cli.certificates import app

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result


class Folder:
    """Runs the command on a folder of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(app, [*words, "--folder", str(self.path)])


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / "certificates")
    assert made.run("init").exit_code == 0
    return made


def test_what_was_issued_is_shown(folder: Folder) -> None:
    assert folder.run("issue", "router/c1/e0", "--host", "10.0.0.7").exit_code == 0
    shown = json.loads(folder.run("show", "--json").stdout)["certificates"]
    assert [found["file"] for found in shown] == ["ca.pem", "router-c1__e0.pem"]
    assert shown[1]["role"] == "router"
    assert shown[1]["hosts"] == ["10.0.0.7"]
    assert shown[1]["state"] == "valid"
    table = folder.run("show").stdout
    assert "router" in table
    assert "c1/e0" in table


def test_a_second_authority_needs_force(folder: Folder) -> None:
    refused = folder.run("init")
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
    assert folder.run("init", "--force").exit_code == 0


def test_a_certificate_is_renewed_with_its_key(folder: Folder) -> None:
    folder.run("issue", "endpoint/c1/pmu", "--days", "10")
    renewed = json.loads(folder.run("renew", "endpoint/c1/pmu", "--json").stdout)
    assert renewed["state"] == "valid"
    assert renewed["key"].endswith("endpoint-c1__pmu.key")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("issue", "boss/c1"), "names no role"),
        (("issue", "router/c1//e0"), "not hierarchical"),
        (("issue", "router/c1/e0", "--days", "0"), "0 days"),
        (("renew", "router/c1/e9"), "cannot be read"),
    ],
)
def test_a_wrong_request_is_told_why(folder: Folder, words: list[str], complaint: str) -> None:
    refused = folder.run(*words)
    assert refused.exit_code in {1, 2}
    assert complaint in refused.stderr
    assert "hint:" in refused.stderr


def test_an_empty_folder_says_how_to_begin(tmp_path: Path) -> None:
    assert "certificates init" in Folder(tmp_path).run("show").stdout


def test_terminals_of_a_cloud_are_issued_once_and_further_ones_by_number(folder: Folder) -> None:
    def numbers() -> list[int]:
        found = folder.path.glob("endpoint-c1__terminal-*.pem")
        return sorted(int(path.stem.rpartition("-")[2]) for path in found)

    assert folder.run("terminals", "c1").exit_code == 0
    assert numbers() == [1, 2, 3, 4, 5, 6, 7, 8]
    before = (folder.path / "endpoint-c1__terminal-1.key").read_bytes()
    assert folder.run("terminals", "c1", "--first", "9", "--count", "2").exit_code == 0
    assert folder.run("terminals", "c1").exit_code == 0
    assert numbers() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert (folder.path / "endpoint-c1__terminal-1.key").read_bytes() == before
