"""An admitted stream beside a storm of subscriptions in the same cloud (S0-1, S0-53).

As many raw C hops run beside it in the same seconds: on a machine that broker, clients and twenty
routers share, a storm costs those too.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.cloud_chain import CloudChain
from benchmarks.lanes import Cut, Lanes, floor_lanes
from benchmarks.statistics import NS_PER_S, WARM_UP_S, Summary

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.cloud_rig import CloudRig
    from benchmarks.experiments.experiment import Figure

STREAM_PER_S = 60
QUANTILES = ("p50_us", "p90_us", "p99_us")


class StormStream:
    """Stream from the first edge to another one; measured before a storm, and while it lasts."""

    def __init__(self, rig: CloudRig, *, to_edge: int) -> None:
        self._along = CloudChain(rig, (to_edge + 1,), tick=(1, STREAM_PER_S))
        self._lost = 0

    def measure(self, storm: Callable[[], object], seconds: float) -> dict[str, Figure]:
        """Measure the seconds in which both the storm and the stream were under way."""
        with floor_lanes(self._along.lengths(), 1 / STREAM_PER_S) as lanes:
            before = self._flow(lanes, seconds, None)
            during = self._flow(lanes, seconds, storm)
        figures: dict[str, Figure] = {
            "stream_events_before": before[0].count,
            "stream_events_during": during[0].count,
            "stream_lost": self._lost,
        }
        for place, kind in enumerate(("stream", "stream_floor")):
            for quantile in QUANTILES:
                name = f"{kind}_{quantile}"
                calm, stormy = getattr(before[place], quantile), getattr(during[place], quantile)
                figures[f"{name}_before"] = round(calm, 1)
                figures[f"{name}_during"] = round(stormy, 1)
                figures[f"{name.removesuffix('_us')}_ratio"] = ratio(stormy, calm)
        figures["stream_latency_ratio"] = figures["stream_p50_ratio"]
        return figures

    def _flow(
        self, lanes: Lanes[int], seconds: float, storm: Callable[[], object] | None
    ) -> tuple[Summary, Summary]:
        """Return the stream's latencies, and those of the raw hops."""
        total_s = seconds + WARM_UP_S
        lanes.begin(total_s, [0.5 / STREAM_PER_S])
        self._along.begin(total_s)
        time.sleep(WARM_UP_S)
        began_ns = time.time_ns()
        until_ns = began_ns + round(seconds * NS_PER_S)
        if storm is not None:
            storm()
            until_ns = time.time_ns()
        cut = Cut(windows_ns=((began_ns, until_ns),))
        run = self._along.finish(cut)
        self._lost += run.lost
        (lane,) = lanes.finish(cut).values()
        return run.paths[0].summary, lane.summary


def ratio(stormy: float, calm: float) -> float:
    """Return the ratio of two latencies; 0 if there is no measurement."""
    return round(stormy / calm, 3) if calm else 0.0
