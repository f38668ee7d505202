"""`--security`: every command that attaches as an end-point passes it on; sealed is the default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from gridstat.console.access import load_access
from gridstat.console.cli import attaching
from gridstat.console.cli.main import app
from gridstat.console.config.grid_file import grid_from_text
from gridstat.console.daemons import alarm_publisher, recorder_daemon
from gridstat.console.grid_folder import GridFolder
from gridstat.model.errors import SecurityNotSatisfiable

if TYPE_CHECKING:
    from pathlib import Path

TOML = """
cloud = "c1"
[[router]]
name = "e0"
role = "edge"
"""
COMMANDS = [
    ("publish", "c1/hill/wave"),
    ("subscribe", "c1/hill/wave"),
    ("subscribe", "c1/hill/wave", "--as", "c1/desk"),
    ("find", "c1/**"),
    ("recorder",),
]
REASON = "the edge's endpoint_security is another"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    GridFolder(tmp_path / "grid", grid_from_text(TOML, file="test"), TOML).write()
    return tmp_path / "grid"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The securities that commands have asked for; the edge refuses them all."""
    found: list[Any] = []

    def refuse(*_: object, **options: object) -> None:
        found.append(options["security"])
        raise SecurityNotSatisfiable(REASON)

    async def refuse_later(*_: object, **options: object) -> None:
        refuse(**options)

    monkeypatch.setattr(attaching, "connect", refuse)
    monkeypatch.setattr(alarm_publisher, "connect", refuse)
    monkeypatch.setattr(recorder_daemon, "connect_async", refuse_later)
    # Both are of a whole process, and this one is the tests'.
    monkeypatch.setattr(recorder_daemon, "forbid_core_dumps", lambda: None)
    monkeypatch.setattr(recorder_daemon, "set_up_logging", lambda **_: None)
    return found


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("option", "security"),
    [((), "hop"), (("--security", "hop"), "hop"), (("--security", "none"), "none")],
)
def test_a_command_attaches_with_the_security_that_it_is_given(
    folder: Path, asked: list[Any], words: tuple[str, ...], option: tuple[str, ...], security: str
) -> None:
    told = CliRunner().invoke(app, [*words, *option, "--folder", str(folder)])
    assert asked == [security]
    assert told.exit_code == 1
    assert REASON in told.stderr


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_another_security_is_refused_before_anything_is_done(
    folder: Path, asked: list[Any], words: tuple[str, ...]
) -> None:
    told = CliRunner().invoke(app, [*words, "--security", "tls", "--folder", str(folder)])
    assert (told.exit_code, asked) == (2, [])
    assert "'hop'" in told.stderr
    assert "'none'" in told.stderr


def test_alarms_are_published_with_the_security_of_the_pipeline(
    folder: Path, asked: list[Any]
) -> None:
    access = load_access(folder)
    publisher = alarm_publisher.alarm_publisher(
        access, ("c1/e0@127.0.0.1:1",), "c1/pipeline", security="none"
    )
    with pytest.raises(SecurityNotSatisfiable):
        publisher._attach()
    assert asked == ["none"]
