"""`gridstat up` on a terminal: its screen fits, and the key q ends the grid in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab.open_access import OPEN_TOML
from tests.cluster.pty_command import ORDINARY, PtyCommand

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]
SMALL = f'cloud = "c1"\n[[router]]\nname = "e0"\nrole = "edge"\n{OPEN_TOML}'


def test_q_ends_a_grid_with_its_account_on_the_ordinary_screen(tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text(SMALL, encoding="utf-8")
    words = ("up", tmp_path / "grid.toml", "--folder", tmp_path / "cloud", "--without-pipeline")
    with PtyCommand((80, 24), *words) as up:
        up.await_line("1/1 routers, 0/0 channels up", at=3)
        assert up.is_full_screen()
        assert len(up.lines) == 24
        assert max(map(len, up.lines)) <= 80
        up.await_line("nothing is wrong", at=1)
        up.press("n")
        up.await_line("page 2 of")
        up.press("q")
        assert up.exit_code() == 0
        assert up.echoes()
        told = up.output.rpartition(ORDINARY)[2]
    assert "ending: waiting for what is on its way" in told
    assert "0 events published in " in told
