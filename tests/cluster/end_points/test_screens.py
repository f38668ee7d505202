"""`gridstat top` on a terminal of 80 × 24: pages by keys, a new size, and an end in order."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from gridstat import FLOAT64
from lab.grid_files import OPERATOR
from tests.cluster.command import ENDING_S_MAX
from tests.cluster.eventually import eventually
from tests.cluster.pty_command import PtyCommand

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gridstat.endpoint.connection import Connection
    from tests.cluster.end_points.local_cloud import LocalCloud

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
VARIABLES = 30


@pytest.fixture
def folder(cloud: LocalCloud, pmu: Connection) -> Iterator[Path]:
    """A cloud with so many subscriptions that they need several pages."""
    names = [f"feeder-{number:02}" for number in range(VARIABLES)]
    pmu.publish_many(names, FLOAT64, rate=1)
    with cloud.connect("c1/desk") as desk:
        for name in names:
            desk.subscribe(f"c1/north/pmu-1/{name}")
        yield cloud.files.folder(OPERATOR)


def test_keys_turn_the_pages_of_top_and_a_larger_terminal_needs_fewer(folder: Path) -> None:
    with PtyCommand((80, 24), "top", "--folder", folder, "--interval", "0.2") as top:
        top.await_line(r"page 1 of [2-9] \| n or space: next \| p: previous \| q or Ctrl-C: end")
        assert top.is_full_screen()
        assert len(top.lines) == 24
        assert max(map(len, top.lines)) <= 80
        top.await_line("nothing is wrong|[0-9]+ things? (is|are) wrong", at=1)
        top.press("n")
        top.await_line("page 2 of")
        top.press("\x1b[6~")
        top.await_line("page 3 of")
        top.press("p")
        top.await_line("page 2 of")
        top.press("g")
        top.await_line("page 1 of")
        top.press("G")
        top.await_line(r"page ([2-9]) of \1 ")
        top.resize(200, 150)
        top.await_line("page 1 of 1 ")
        assert len(top.lines) == 150
        rows = [line for line in top.lines if line.startswith("c1/desk")]
        assert len(rows) == VARIABLES
        top.resize(80, 24)
        top.await_line("page 1 of [2-9] ")
        assert len(top.lines) == 24
        assert not top.echoes()
        top.press("q")
        assert top.exit_code() == 0
        assert not top.is_full_screen()
        assert top.echoes(), "the terminal is as it was"


def test_ctrl_z_gives_the_terminal_back_and_the_screen_returns_with_its_keys(folder: Path) -> None:
    with PtyCommand((80, 24), "top", "--folder", folder, "--interval", "0.2") as top:
        top.await_line("page 1 of")
        top.press("\x1a")
        eventually(
            lambda: None if top.is_stopped() and not top.is_full_screen() else "it is still there",
            within_s=ENDING_S_MAX,
        )
        assert top.echoes()
        top.process.send_signal(signal.SIGCONT)
        eventually(
            lambda: None if top.is_full_screen() and not top.echoes() else "no screen yet",
            within_s=ENDING_S_MAX,
        )
        top.press("n")
        top.await_line("page 2 of")
        top.press("q")
        assert top.exit_code() == 0
        assert top.echoes()


def test_ctrl_c_ends_top_in_order(folder: Path) -> None:
    with PtyCommand((80, 24), "top", "--folder", folder) as top:
        top.await_line("page 1 of")
        top.press("\x03")
        assert top.exit_code() == 0
        assert not top.is_full_screen()
        assert top.echoes()
        assert "Traceback" not in top.output
