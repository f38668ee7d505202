"""A broker is cut off from its parent while events flow and both sides change; then they meet."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from lab.ledger import Window
from lab.tree_grid import TreeGrid
from tests.cluster.many_clouds.test_unbalanced import complaint_of, residue
from tests.cluster.many_clouds.trees import unbalanced

if TYPE_CHECKING:
    from pathlib import Path

    from lab.ledger import LogTail

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
RATE: Final = 30
SOME: Final = 20
"""Events during the cut, beside those that flow while brokers find out, and after it."""
CUT: Final = ("broker/west", "broker/root")
WEST_PMU, EAST_PMU = "a/station/pmu", "c/station/pmu"
STAYING: Final = "d/centre/stays"
LEAVING: Final = {"c/centre/leaves": WEST_PMU, "b/centre/leaves": EAST_PMU}
"""Contracts of the root, of whose end only one side is notified."""
COMING: Final = {"b/centre/comes": WEST_PMU, "d/centre/comes": EAST_PMU}
"""A contract of west's, and one of the root's for which it does not need west."""
END_POINTS: Final = {
    name: (f"{name[0]}/r0", f"{name[0]}/r1")
    for name in (WEST_PMU, EAST_PMU, STAYING, *LEAVING, *COMING)
}
SEGMENTS: Final = dict.fromkeys("abcd", 2)
"""Segments of each cloud in the end: of the kept contract from a to d, and of a new one."""


@pytest.mark.feature("S0-122")
def test_a_broker_that_was_cut_off_agrees_with_its_parent_again_and_nothing_was_lost(
    tmp_path: Path,
) -> None:
    with TreeGrid(unbalanced(), END_POINTS, tmp_path) as grid:
        grid.start()
        sent = {
            name: grid.load(name, "publish", {f"{name}/v0": 0}, rate=RATE)
            for name in (WEST_PMU, EAST_PMU)
        }
        got: dict[str, tuple[str, LogTail, Window]] = {}

        def subscribe(name: str, publisher: str) -> None:
            log = grid.load(name, "subscribe", {f"{publisher}/v0": 0}, rate=RATE)
            got[name] = publisher, log, Window(time.time_ns(), np.iinfo(np.int64).max)

        def some_more() -> None:
            for log in sent.values():
                wanted = len(log.entries()) + SOME
                grid.wait_for(partial(complaint_below, log, wanted))

        for name, publisher in LEAVING.items():
            grid.load(name, "subscribe", {f"{publisher}/v0": 0}, rate=RATE)
        subscribe(STAYING, WEST_PMU)
        grid.cut(*CUT)
        grid.wait_for(lambda: None if not has_joined(grid, "west") else "west is still there")
        for name in LEAVING:
            grid.daemons[name].stop()
        for name, publisher in COMING.items():
            subscribe(name, publisher)
        some_more()
        assert not has_joined(grid, "west")
        grid.heal(*CUT)
        grid.wait_for(grid.complaint_of_state)
        grid.wait_for(lambda: disagreement(grid))
        some_more()
        for name in sent:
            grid.daemons[name].stop()
        published = {name: log.entries() for name, log in sent.items()}
        for name, (publisher, log, window) in got.items():
            grid.wait_for(partial(complaint_of, published[publisher], log, window))
            grid.daemons[name].stop()
        grid.wait_for(lambda: residue(grid))


def complaint_below(log: LogTail, wanted: int) -> str | None:
    return None if len(log.entries()) >= wanted else "too few were sent"


def has_joined(grid: TreeGrid, broker: str) -> bool:
    parent = grid.plan.brokers[broker].parent
    (facts,) = [one for one in grid.survey(parent)["children"] if one["name"] == broker]
    return bool(facts["is_joined"])


def disagreement(grid: TreeGrid) -> str | None:
    """Contracts are those that stayed or came, and every cloud holds its segments of them."""
    owned = {name: grid.survey(name)["contracts"] for name in ("root", "west", "south")}
    held = {cloud: grid.survey(cloud)["totals"]["segments"] for cloud in grid.plan.clouds}
    is_right = owned == {"root": 2, "west": 1, "south": 0} and held == SEGMENTS
    return None if is_right else f"{owned} are owned, {held} are held"
