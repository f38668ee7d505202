"""Four clouds on three levels, one side deeper: contracts, failures, and nothing left behind."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from lab.ledger import Entries, LogTail, Window, judge
from lab.tree_grid import TreeGrid
from tests.cluster.many_clouds.trees import unbalanced

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
RATE: Final = 30
SOME: Final = 20
"""Events before, during and after each failure."""
VARIABLE: Final = "a/station/pmu/v0"
PUBLISHER: Final = "a/station/pmu"
FAR, NEAR = "d/centre/desk", "b/centre/desk"
"""Its contract is root's, and that of the near one is west's."""
END_POINTS: Final = {
    PUBLISHER: ("a/r0", "a/r1"),
    NEAR: ("b/r0", "b/r1"),
    FAR: ("d/r0", "d/r1"),
}
KILLED: Final = ("broker/west", "c/r0", "broker/root")
LATENCY_NS_MAX: Final = 10**12
"""Whatever the machine is busy with, nothing is called late."""
CUT: Final = ("c/r1", "d/r1")


@pytest.mark.feature("S0-3", "S0-6", "S0-9", "S1-3")
def test_a_tree_that_is_not_balanced_grants_at_the_lowest_common_broker_and_loses_nothing(
    tmp_path: Path,
) -> None:
    with TreeGrid(unbalanced(), END_POINTS, tmp_path) as grid:
        grid.start()
        sent = grid.load(PUBLISHER, "publish", {VARIABLE: 0}, rate=RATE)
        got = {name: grid.load(name, "subscribe", {VARIABLE: 0}, rate=RATE) for name in (NEAR, FAR)}
        granted_ns = time.time_ns()
        assert owned(grid) == {"west": 1, "root": 1, "south": 0}

        def some_more() -> None:
            wanted = len(sent.entries()) + SOME
            grid.wait_for(lambda: None if len(sent.entries()) >= wanted else "too few were sent")

        for name in KILLED:
            some_more()
            grid.daemons[name].kill()
            some_more()
            grid.restart(name)
        some_more()
        grid.cut(*CUT)
        grid.wait_for(lambda: complaint_unless_down(grid.survey("root"), "c/r1→d/r1"))
        some_more()
        grid.heal(*CUT)
        grid.wait_for(grid.complaint_of_state)
        some_more()
        grid.daemons[PUBLISHER].stop()
        published = sent.entries()
        window = Window(granted_ns, np.iinfo(np.int64).max)
        for name, log in got.items():
            grid.wait_for(partial(complaint_of, published, log, window))
            grid.daemons[name].stop()
        grid.wait_for(lambda: residue(grid))


def complaint_of(published: Entries, log: LogTail, window: Window) -> str | None:
    """Return None if every event of the window came once and unaltered."""
    found = judge(published, log.entries(), window, latency_ns_max=LATENCY_NS_MAX)
    return None if found.is_clean and found.expected else str(found)


def owned(grid: TreeGrid) -> dict[str, int]:
    above = [name for name in grid.plan.brokers if name not in grid.plan.clouds]
    return {name: grid.survey(name)["contracts"] for name in above}


def complaint_unless_down(facts: dict[str, Any], label: str) -> str | None:
    is_up = {one["channel"]: one["is_up"] for one in facts["channels"]}
    return f"{label} is still up" if is_up[label] else None


def residue(grid: TreeGrid) -> str | None:
    """Return what a broker still holds, or None."""
    for name in grid.plan.brokers:
        facts = grid.survey(name)
        if name in grid.plan.clouds:
            left = {word: facts["totals"][word] for word in ("subscriptions", "segments")}
        else:
            left = {word: facts[word] for word in ("contracts", "segments") if word in facts}
            left["promised"] = sum(one["promised_bytes_per_s"] for one in facts["channels"])
        if any(left.values()):
            return f"{name} still holds {left}"
    return None
