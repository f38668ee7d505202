"""Survey of a tree's brokers, with the reasons for missing ones."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gridstat.console.access import load_access
from gridstat.console.config.grid_file import grid_from_text
from gridstat.console.grid_folder import GridFolder
from gridstat.console.live.grid_survey import watched_brokers
from gridstat.console.operator_session import person
from gridstat.net.command.identity import Role

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

TREE = """
[[broker]]
name = "root"
[[cloud]]
name = "c1"
[[cloud.router]]
name = "e0"
role = "edge"
"""


def test_a_broker_without_a_certificate_for_it_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gridstat.console.operator_session.ANSWER_S_MAX", 0.01)
    GridFolder(tmp_path, grid_from_text(TREE, file="test"), TREE).write()
    access = load_access(tmp_path)
    access.files_of(Role.OPERATOR, f"root/{person()}")
    (access.certificates.path / "ca.key").unlink()

    async def seen() -> dict[str, str]:
        async with watched_brokers(access) as brokers:
            surveys, away = await brokers.survey()
        assert surveys == {}
        return away

    away = asyncio.run(seen())
    assert set(away) == {"root", "c1"}
    file = access.certificates.path / f"operator-c1__{person()}.pem"
    assert away["c1"].startswith(f"{file} is missing (issue it where ca.key is: ")
    assert f"`gridstat certificates issue operator/c1/{person()}`" in away["c1"]
    assert "missing" not in away["root"], "it was asked"
