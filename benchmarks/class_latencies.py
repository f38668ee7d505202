"""The classes of applications in a cloud: the promise to each, and its measured latency (S3-75).

Publisher and subscriber have two edges each, so that classes with two paths get disjoint ones; each
class has one variable, 30 times a second, at evenly spaced phases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.cloud_plan import CLOUD, edge_name
from benchmarks.errors import BenchmarkError
from benchmarks.statistics import NS_PER_S, Summary
from gridstat.model.qos import PRESETS

if TYPE_CHECKING:
    from benchmarks.cloud_rig import CloudRig
    from benchmarks.experiments.experiment import Figure

PUBLISHER, SUBSCRIBER = f"{CLOUD}/class-pmu", f"{CLOUD}/class-desk"
PREFIX = "class-"
PER_S = 30
KEEP_EVENTS = 16_384
WARM_UP_S = 0.5
ANSWER_S_MAX = 120.0


def class_figures(rig: CloudRig, *, edges: int, seconds: float) -> dict[str, Figure]:
    """Return for each class its bound, the prediction of its slowest path, and the measurement."""
    publisher = rig.end_points({PUBLISHER: [edge_name(0), edge_name(1)]})
    subscriber = rig.end_points({SUBSCRIBER: [edge_name(edges - 2), edge_name(edges - 1)]})
    step_s = 1 / PER_S / len(PRESETS)
    publish = {"do": "publish", "prefix": PREFIX, "count": len(PRESETS), "period": (1, PER_S)}
    step = {"own_step_ns": round(step_s * NS_PER_S)}
    publisher.ask({**publish, **step}, within_s=ANSWER_S_MAX)
    names = {preset: f"{PUBLISHER}/{PREFIX}{number}" for number, preset in enumerate(PRESETS)}
    for preset, name in names.items():
        subscribe = {"do": "subscribe", "names": {SUBSCRIBER: [name]}, "preset": preset}
        way = {"per_request": 1, "outstanding": 1, "keep_events": KEEP_EVENTS}
        answer = subscriber.ask({**subscribe, **way}, within_s=ANSWER_S_MAX)
        if answer["refused"]:
            raise BenchmarkError(f"{preset} was refused: {next(iter(answer['refused']))}")
    rig.await_in_step()
    pulse = {"do": "pulse", "prefix": PREFIX, "period_s": 1 / PER_S, "is_apart": True}
    publisher.ask({**pulse, "seconds": seconds + WARM_UP_S}, within_s=seconds + ANSWER_S_MAX)
    figures: dict[str, Figure] = {}
    for preset, name in names.items():
        take = {"do": "take", "name": name, "warm_up_s": WARM_UP_S, "bin_us": 100.0}
        bound_us = PRESETS[preset].latency_us
        taken = subscriber.ask({**take, "bound_us": bound_us}, within_s=ANSWER_S_MAX)
        summary = Summary(**taken["summary"])
        paths = rig.explain(name)["subscriptions"][0]["paths"]
        prefix = f"class_{preset.replace('-', '_')}"
        figures |= {
            f"{prefix}_bound_us": bound_us,
            f"{prefix}_paths": len(paths),
            f"{prefix}_predicted_us": max(int(path["latency_us"]) for path in paths),
            f"{prefix}_p50_us": round(summary.p50_us, 1),
            f"{prefix}_p90_us": round(summary.p90_us, 1),
            f"{prefix}_p99_us": round(summary.p99_us, 1),
            f"{prefix}_events": summary.count,
            f"{prefix}_late": int(taken["late"]),
        }
    return figures
