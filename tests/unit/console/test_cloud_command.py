"""`gridstat cloud` and `gridstat top` ask only whom they can ask, and say what they did."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from gridstat.console.cli.main import app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from gridstat.console.access import Access

ACCESS = """
cloud = "c1"
broker = { host = "127.0.0.1", port = 1 }
name_service = { host = "127.0.0.1", port = 2 }
[[tree]]
name = "root"
host = "127.0.0.1"
port = 3
[[tree]]
name = "c1"
parent = "root"
host = "127.0.0.1"
port = 1
name_service_port = 2
[[tree]]
name = "c2"
parent = "root"
host = "127.0.0.1"
port = 4
name_service_port = 5
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "access.toml").write_text(ACCESS, encoding="utf-8")
    return tmp_path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The brokers that are asked, which all agree."""
    found: list[str] = []

    def ask(access: Access, _command: object, *, who: str) -> dict[str, Any]:
        found.append(access.cloud)
        return {}

    monkeypatch.setattr("gridstat.console.cli.cloud.ask_once", ask)
    return found


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("add-child", "rooot", "c3"), "there is no broker rooot"),
        (("remove-child", "rooot", "c3"), "there is no broker rooot"),
        (("add-child", "c1", "c3"), "has no children"),
        (("remove-child", "c2", "c3"), "has no children"),
        (("add-router", "c9/x"), "there is no broker c9"),
        (("remove-router", "c9/x"), "there is no broker c9"),
        (("add-channel", "c9/x", "c9/y"), "there is no broker c9"),
    ],
)
def test_nobody_is_asked_in_place_of_a_broker_that_is_unknown_or_has_no_children(
    folder: Path, asked: list[str], words: tuple[str, ...], complaint: str
) -> None:
    result = CliRunner().invoke(app, ["cloud", *words, "--folder", str(folder)])
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert "hint: " in result.stderr
    assert "edge router" not in result.stderr
    assert asked == []


def test_the_broker_above_is_asked_for_another_child(folder: Path, asked: list[str]) -> None:
    result = CliRunner().invoke(app, ["cloud", "add-child", "root", "c3", "--folder", str(folder)])
    assert (result.stdout, asked) == ("c3 may join root\n", ["root"])


def test_a_channel_between_clouds_is_said_to_wait_for_its_routers(
    folder: Path, asked: list[str]
) -> None:
    words = ["cloud", "add-channel", "--folder", str(folder)]
    between = CliRunner().invoke(app, [*words, "c1/west-a", "c2/nobody"]).stdout
    assert between.startswith("added c1/west-a→c2/nobody; it opens once both routers are there")
    assert CliRunner().invoke(app, [*words, "c1/a", "c1/b"]).stdout == "added c1/a→c1/b\n"
    assert asked == ["root", "c1"]


@pytest.mark.parametrize("words", [("--once",), ("--json",)])
def test_top_of_a_broker_above_clouds_is_refused_with_the_clouds(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    class SurveySession:
        async def ask(self, _command: object) -> dict[str, Any]:
            return {"broker": "root", "term": 1, "children": [], "channels": []}

    @asynccontextmanager
    async def session(_access: Access, _who: str) -> AsyncIterator[SurveySession]:
        yield SurveySession()

    monkeypatch.setattr("gridstat.console.cli.top.open_operator_session", session)
    top = ["top", "--cloud", "root", *words, "--folder", str(folder)]
    result = CliRunner().invoke(app, top)
    assert result.exit_code == 2
    assert "root is a broker above clouds" in result.stderr
    assert "clouds: c1, c2" in result.stderr


@pytest.mark.parametrize("words", [(), ("c1/a/b", "--flooded")])
def test_a_subscription_to_nothing_or_to_two_things_is_refused_with_a_hint(
    folder: Path, words: tuple[str, ...]
) -> None:
    result = CliRunner().invoke(app, ["subscribe", *words, "--folder", str(folder)])
    assert result.exit_code == 2
    assert "hint: gridstat subscribe NAME" in result.stderr
