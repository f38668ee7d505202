"""Predicted and measured latencies of paths through a cloud: events that are really sent.

Two quantities of every publisher, each to one client, 30 times a second. The publishers take turns
within a period: twenty routers that wake at once on two processors would wait for each other, which
no router of a cloud with a machine each has to.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.cloud_chain import hops_of
from benchmarks.errors import BenchmarkError
from benchmarks.statistics import NS_PER_S
from benchmarks.subscribing import Asked

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.cloud_rig import CloudRig, Facts
    from benchmarks.subscribing import Subscribers
    from gridstat.model.latency_model import Hop

PMU = "phasor-"
PMU_PER_S = 30
PMU_QUANTITIES = 2
KEEP_EVENTS = 16_384
LATENCY_MS = 50
WARM_UP_S = 1.0


@dataclass(frozen=True, slots=True)
class PathTaken:
    """A granted path: the p99 that the law predicts, and the p50 and p99 of what took it."""

    hops: tuple[Hop, ...]
    predicted_us: int
    p50_us: float
    p99_us: float


class PathProbe:
    """The publications and contracts of the measurement; each `run` sends anew."""

    def __init__(self, rig: CloudRig, ends: Subscribers) -> None:
        self._rig = rig
        self._ends = ends
        step_ns = NS_PER_S // PMU_PER_S // len(ends.publishers)
        self._names = ends.publish(PMU, PMU_QUANTITIES, (1, PMU_PER_S), phase_step_ns=step_ns)
        asked = Asked(100, 1, {"latency_ms": LATENCY_MS}, keep_events=KEEP_EVENTS)
        storm = ends.storm(sample_of(self._names, ends.clients), asked)
        if storm.failed:
            raise BenchmarkError(f"a path was refused: {storm.reasons[0]}")
        rig.await_in_step()

    def run(self, seconds: float) -> list[PathTaken]:
        """Send for so long, after a warm-up; one entry for each pair of end-points."""
        self._pulse(min(WARM_UP_S, seconds))
        self._ends.paths_taken()
        self._pulse(seconds)
        granted = self._granted()
        survey = self._rig.survey()
        found: list[PathTaken] = []
        for taken in self._ends.paths_taken():
            path = granted[taken["publisher"], taken["subscriber"]]
            latencies_us = float(taken["p50_us"]), float(taken["p99_us"])
            found.append(PathTaken(hops_of(path, survey), int(path["latency_us"]), *latencies_us))
        if not found:
            raise BenchmarkError("no event came on any path", hint="give it more seconds")
        return found

    def _pulse(self, seconds: float) -> None:
        self._ends.pulse(PMU, period_s=1 / PMU_PER_S, seconds=seconds)

    def _granted(self) -> dict[tuple[str, str], Facts]:
        return {
            (name.rpartition("/")[0], str(facts["subscriber"])): facts["paths"][0]
            for name in self._names
            for facts in self._rig.explain(name)["subscriptions"]
        }


def sample_of(names: Sequence[str], clients: Sequence[str]) -> dict[str, list[str]]:
    """Each variable for one client; those of one publisher for clients at other edges."""
    found: dict[str, list[str]] = {}
    for index, name in enumerate(names):
        publisher, quantity = divmod(index, PMU_QUANTITIES)
        client = clients[(publisher + 1 + 3 * quantity) % len(clients)]
        found.setdefault(client, []).append(name)
    return found


def prediction_error(pairs: Iterable[tuple[float, float]]) -> float:
    """The median of |predicted - measured| / measured."""
    return median(abs(predicted - measured) / measured for predicted, measured in pairs)


def kept_share(pairs: Sequence[tuple[float, float]]) -> float:
    """Of which share of the paths the measured latency is within the predicted one."""
    return sum(measured <= predicted for predicted, measured in pairs) / len(pairs)
