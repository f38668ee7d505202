"""Predicted and measured latencies of paths through a cloud: events that are really sent.

Two quantities of every publisher, each to one client, 30 times a second. Their phases are spread
over a period: twenty routers that wake at once on two processors would wait for each other, unlike
routers of a cloud with a machine each. As many raw C hops send in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.cloud_chain import hops_of
from benchmarks.errors import BenchmarkError
from benchmarks.lanes import floor_lanes
from benchmarks.statistics import NS_PER_S, Summary
from benchmarks.subscribing import Asked
from gridstat.model.latency_model import PREDICTED_QUANTILE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.cloud_rig import CloudRig, Facts
    from benchmarks.lanes import LaneRun, Lanes
    from benchmarks.subscribing import Subscribers
    from gridstat.model.latency_model import Hop

PMU = "phasor-"
PMU_PER_S = 30
PMU_QUANTITIES = 2
KEEP_EVENTS = 16_384
LATENCY_MS = 50
FLOOR_TICK_S = 1e-2
WARM_UP_S = 1.0
PREDICTED = f"p{100 * PREDICTED_QUANTILE:.0f}_us"
"""Field of a summary that the law predicts."""


@dataclass(frozen=True, slots=True)
class PathTaken:
    """A granted path: the law's prediction, its measured latency, and that of as many raw hops.

    The raw hops are those of the same seconds.
    """

    hops: tuple[Hop, ...]
    predicted_us: int
    summary: Summary
    floor: Summary


class PathProbe:
    """Publications and contracts of the measurement; each `run` sends again."""

    def __init__(self, rig: CloudRig, ends: Subscribers) -> None:
        self._rig = rig
        self._ends = ends
        self._step_s = 1 / PMU_PER_S / len(ends.publishers) / PMU_QUANTITIES
        self._names = ends.publish(
            PMU, PMU_QUANTITIES, (1, PMU_PER_S), step_ns=round(self._step_s * NS_PER_S)
        )
        asked = Asked(100, 1, {"latency_ms": LATENCY_MS}, keep_events=KEEP_EVENTS)
        storm = ends.storm(sample_of(self._names, ends.clients), asked)
        if storm.failed:
            raise BenchmarkError(f"a path was refused: {storm.reasons[0]}")
        rig.await_in_step()

    def run(self, seconds: float) -> list[PathTaken]:
        """Send for so long, after a warm-up; return one entry for each pair of end-points."""
        granted = self._granted()
        lengths = {len(path["routers"]) for path in granted.values()}
        with floor_lanes(lengths, FLOOR_TICK_S) as lanes:
            self._pulse(lanes, min(WARM_UP_S, seconds))
            self._ends.paths_taken()
            floors = self._pulse(lanes, seconds)
        survey = self._rig.survey()
        found: list[PathTaken] = []
        for taken in self._ends.paths_taken():
            path = granted[taken["publisher"], taken["subscriber"]]
            hops, summary = hops_of(path, survey), Summary(**taken["summary"])
            found.append(
                PathTaken(hops, int(path["latency_us"]), summary, floors[len(hops)].summary)
            )
        if not found:
            raise BenchmarkError("no event came on any path", hint="give it more seconds")
        return found

    def _pulse(self, lanes: Lanes[int], seconds: float) -> dict[int, LaneRun]:
        """Send; the events of the raw hops fall between two phases."""
        lanes.begin(seconds, [(at + 0.5) * self._step_s for at in range(len(lanes))])
        self._ends.pulse(PMU, period_s=1 / PMU_PER_S, seconds=seconds)
        return lanes.finish()

    def _granted(self) -> dict[tuple[str, str], Facts]:
        return {
            (name.rpartition("/")[0], str(facts["subscriber"])): facts["paths"][0]
            for name in self._names
            for facts in self._rig.explain(name)["subscriptions"]
        }


def sample_of(names: Sequence[str], clients: Sequence[str]) -> dict[str, list[str]]:
    """Assign each variable to one client; those of one publisher to clients at other edges."""
    found: dict[str, list[str]] = {}
    for index, name in enumerate(names):
        publisher, quantity = divmod(index, PMU_QUANTITIES)
        client = clients[(publisher + 1 + 3 * quantity) % len(clients)]
        found.setdefault(client, []).append(name)
    return found


def prediction_error(pairs: Iterable[tuple[float, float]]) -> float:
    """Return the median of |predicted - measured| / measured."""
    return median(abs(predicted - measured) / measured for predicted, measured in pairs)


def kept_share(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the share of the paths whose measured latency is within the predicted one."""
    return sum(measured <= predicted for predicted, measured in pairs) / len(pairs)
