"""The source's six clouds and one more: how far a flood reaches, and how many copies are dropped.

S0 §5.4.2: at level 2 from a it reaches a, b and c, and one copy is dropped, at a; from f it stays
in f; at level 3 from f it reaches all six, and five copies are dropped. Levels are depths here:
the source's 2 is asked of q0 or q1, and its 3 of root. The seventh, g, hears from d alone, once.
"""

# The source sends a copy of what came over c→d back over d→c, and likewise between c and e; we do
# not. So whenever one of such two hears of an event from the other first, the other drops one copy
# less: three to five in all, and who drops them depends on which copy is quicker. And g makes the
# tree lean: no broker stands between it and the root, and nothing leads out of it.

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from lab.tree_grid import TreeGrid
from tests.cluster.many_clouds.trees import six_clouds_and_one

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
RATE: Final = 30
SOME: Final = 30
COUNTED: Final = ("flooded", "duplicate")
ALWAYS_GROWS: Final = "datagrams_in"
"""Probes come all the time, so it is another number in every report of a router."""
CLOCK: Final = "f/station/clock"
"""No channel leads to f: so that this grows there too, somebody publishes what does not flood."""
PUBLISHERS: Final = {
    **{f"{cloud}/station/pmu": (f"{cloud}/r0",) for cloud in "afg"},
    CLOCK: ("f/r0",),
}
Counts = dict[str, dict[str, int]]


@dataclass(frozen=True)
class Case:
    """Publisher, flooding broker, reached clouds, and the clouds where copies are dropped.

    A cloud in `perhaps` may drop as many more copies as it is named; all together `spared` fewer.
    """

    publisher: str
    broker: str
    reached: str
    dropped: str
    perhaps: str = ""
    spared: int = 0

    @property
    def origin(self) -> str:
        return self.publisher[0]


CASES: Final = (
    Case("a/station/pmu", "q0", "abc", "a"),
    Case("f/station/pmu", "q1", "f", ""),
    Case("f/station/pmu", "root", "abcdefg", "a", perhaps="ccde", spared=2),
    Case("g/station/pmu", "root", "g", ""),
)


@pytest.mark.feature("S0-80")
def test_a_flood_reaches_the_clouds_of_its_level_and_drops_as_many_copies_as_the_source_says(
    tmp_path: Path,
) -> None:
    with TreeGrid(six_clouds_and_one(), PUBLISHERS, tmp_path) as grid:
        grid.start()
        grid.load(CLOCK, "publish", {f"{CLOCK}/v0": 0}, rate=RATE)
        for case in CASES:
            variable = f"{case.publisher}/v0"
            # Killed, it stays registered: the flood begins in silence, and nothing is half flooded.
            send_some(grid, case.publisher, variable)
            grid.gridstat("flood", variable, "--at", case.broker)
            before = settled_counts(grid)
            send_some(grid, case.publisher, variable)
            grid.wait_for(partial(complaint, grid, case, before))
            grid.gridstat("flood", variable, "--at", case.broker, "--stop")


def send_some(grid: TreeGrid, publisher: str, variable: str) -> None:
    sent = grid.load(publisher, "publish", {variable: 0}, rate=RATE)
    grid.wait_for(lambda: None if len(sent.entries()) >= SOME else "too few were sent")
    grid.daemons[publisher].kill()


def settled_counts(grid: TreeGrid) -> Counts:
    """Return the counts once two reports of every router are equal."""
    seen = [reports(grid)]

    def complaint() -> str | None:
        before, now = seen[-1], reports(grid)
        old = [name for name in now if now[name][ALWAYS_GROWS] == before[name][ALWAYS_GROWS]]
        if old:
            return f"{', '.join(old)} have not reported anew"
        seen.append(now)
        return None if counted(now) == counted(before) else "events are still on their way"

    grid.wait_for(complaint)
    return counted(seen[-1])


def complaint(grid: TreeGrid, case: Case, before: Counts) -> str | None:
    """Return None if every cloud has the counts of the source for the flooded events."""
    now = counted(reports(grid))
    more = {
        cloud: {word: count - before[cloud][word] for word, count in found.items()}
        for cloud, found in now.items()
    }
    events = more[case.origin]["flooded"]
    wrong = [
        f"{cloud}: {found}, of {events} events"
        for cloud, found in more.items()
        if found["flooded"] != events * case.reached.count(cloud)
        or not 0
        <= found["duplicate"] - events * case.dropped.count(cloud)
        <= events * case.perhaps.count(cloud)
    ]
    in_all = sum(found["duplicate"] for found in more.values())
    most = events * len(case.dropped + case.perhaps)
    if not most - events * case.spared <= in_all <= most:
        wrong.append(f"{in_all} copies are dropped in all, of {events} events")
    return "; ".join(wrong) if wrong or not events else None


def counted(reports: Counts) -> Counts:
    """Return the flooded and dropped events of the router of each cloud."""
    return {
        cloud: {word: counters.get(word, 0) for word in COUNTED}
        for cloud, counters in reports.items()
    }


def reports(grid: TreeGrid) -> Counts:
    """Return all counters of the last report of each cloud's router."""
    found = {}
    for cloud in grid.plan.clouds:
        (router,) = grid.survey(cloud)["routers"]
        found[cloud] = {ALWAYS_GROWS: 0, **router["counters"]}
    return found
