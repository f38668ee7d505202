"""Identity of commands: --as names it, and an error names a missing certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from gridstat.console.cli.main import app
from gridstat.console.cli.publish import publisher_of
from gridstat.console.config.grid_file import grid_from_text
from gridstat.console.grid_folder import GridFolder
from gridstat.model.errors import Misuse

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

TREE = """
[[broker]]
name = "root"
[[cloud]]
name = "c1"
[[cloud.router]]
name = "e0"
role = "edge"
"""
VARIABLE = "c1/hill/pmu-1/frequency"
ATTACHING = [
    ("find", "c1/**"),
    ("subscribe", VARIABLE),
    ("publish", f"{VARIABLE}/now"),
]
ASKING = [
    ("top", "--once"),
    ("tree",),
    ("explain", VARIABLE),
    ("flood", VARIABLE),
    ("flood", "--list"),
    ("cloud", "add-router", "c1/new"),
    ("cloud", "remove-router", "c1/new"),
    ("cloud", "add-channel", "c1/e0", "c1/new"),
    ("cloud", "remove-channel", "c1/e0", "c1/new"),
    ("cloud", "add-child", "root", "c2"),
    ("cloud", "remove-child", "root", "c2"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder on a host without the authority's key."""
    GridFolder(tmp_path, grid_from_text(TREE, file="test"), TREE).write()
    (tmp_path / "certificates" / "ca.key").unlink()
    return tmp_path


def run(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--folder", str(folder)])


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
def test_an_operator_without_a_certificate_reads_which_and_how_it_is_issued(
    folder: Path, words: tuple[str, ...]
) -> None:
    told = run(folder, *words, "--as", "alice")
    broker = "root" if "child" in words[-3:][0] else "c1"
    assert told.exit_code == 1
    file = folder / "certificates" / f"operator-{broker}__alice.pem"
    assert f"{file} is missing" in told.stderr
    assert f"`gridstat certificates issue operator/{broker}/alice`" in told.stderr
    assert "start them" not in told.stderr


@pytest.mark.parametrize("words", ATTACHING, ids=" ".join)
def test_an_end_point_without_a_certificate_reads_which_and_how_it_is_issued(
    folder: Path, words: tuple[str, ...]
) -> None:
    told = run(folder, *words, "--as", "c1/hill")
    assert told.exit_code == 1
    assert f"{folder / 'certificates' / 'endpoint-c1__hill.pem'} is missing" in told.stderr
    assert "`gridstat certificates issue endpoint/c1/hill`" in told.stderr


@pytest.mark.parametrize("words", ASKING, ids=" ".join)
def test_an_operator_is_named_without_a_broker(folder: Path, words: tuple[str, ...]) -> None:
    told = run(folder, *words, "--as", "c1/alice")
    assert told.exit_code == 2
    assert "write --as alice" in told.stderr


@pytest.mark.parametrize("daemon", ["broker-c1.toml", "broker-root.toml", "router-c1+e0.toml"])
def test_a_daemon_without_its_certificate_says_how_it_is_issued(folder: Path, daemon: str) -> None:
    kind, _, name = daemon.removesuffix(".toml").partition("-")
    file = f"{kind}-{name.replace('+', '__')}.pem"
    (folder / "certificates" / file).unlink()
    told = CliRunner().invoke(app, [kind, str(folder / daemon)])
    assert told.exit_code == 1
    assert f"{file} is missing" in told.stderr
    assert f"`gridstat certificates issue {kind}/{name.replace('+', '/')}`" in told.stderr


def test_find_refuses_a_cloud_that_the_folder_does_not_know(folder: Path) -> None:
    told = run(folder, "find", "c9/**")
    assert told.exit_code == 2
    assert "knows no cloud c9" in told.stderr
    assert "clouds it knows: c1;" in told.stderr


def test_a_publisher_is_named_by_its_variable_or_lies_above_it() -> None:
    assert publisher_of("c1/hill/pmu-1/frequency") == "c1/hill/pmu-1"
    assert publisher_of("c1/hill/pmu-1/frequency", "c1/hill") == "c1/hill"
    with pytest.raises(Misuse, match="c1/hi cannot publish"):
        publisher_of("c1/hill/pmu-1/frequency", "c1/hi")
    with pytest.raises(Misuse, match="no publisher"):
        publisher_of("c1")
