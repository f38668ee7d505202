"""Listeners of broker and edge router under attack: half-open connections, then begun handshakes.

`lab/listener_flood.py` is the attack and the measurement; here it runs twice, with the machine's
limit of open files and with 256, and its figures have bounds.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from benchmarks.experiments.experiment import (
    Bound,
    Experiment,
    Figure,
    Options,
    Parameter,
    Progress,
    Result,
)
from benchmarks.machine import MachineWatch
from lab.listener_flood import SOURCES
from lab.listener_flood import measure as attack_listeners

if TYPE_CHECKING:
    from collections.abc import Iterator

FEW_FILES = 256
RATE_SHARE_MIN = 0.99
MIB_ADDED_MAX = 64.0
MIB_KEPT_MAX = 8.0
"""Memory above that of before the attack that counts as given back."""
ATTACH_S_MAX = 1.0
LOG_LINES_PER_S_MAX = 10
DAEMONS = ("broker", "router")


def measure(options: Options, progress: Progress) -> Result:
    """Attack twice, one after the other."""
    watch = MachineWatch()
    figures: dict[str, Figure] = {}
    bounds: list[Bound] = []
    cases = {"": 0, f"files_{FEW_FILES}_": FEW_FILES}
    for place, (prefix, files) in enumerate(cases.items()):
        limit = f"{files} files" if files else "the usual limit of files"
        progress(place / len(cases), f"listeners under attack with {limit}")
        found = attack_listeners(
            Namespace(
                files=files,
                half_open=options.whole("half_open"),
                per_s=options.whole("handshakes_per_s"),
                lasts_s=options.real("seconds"),
                after_s=options.real("after_s"),
                sources=SOURCES,
                targets=options.whole("targets"),
            )
        )
        wanted = options.whole("half_open"), options.whole("handshakes_per_s")
        for name, value, at_most in (*attacked(found, *wanted), *_judged(found)):
            figures[f"{prefix}{name}"] = value
            if at_most is not None:
                bounds.append(Bound(f"{prefix}{name}", value, at_most))
    progress(1.0, "done")
    figures |= {name: options.whole(name) for name in ("half_open", "targets")}
    figures |= watch.figures()
    return Result(
        figures=figures,
        title="listeners under attack",
        columns=("figure", "measured", "at most", "met"),
        table=tuple(
            (bound.figure, f"{bound.value:,.3f}", f"{bound.at_most:g}", bound.met)
            for bound in bounds
        ),
        bounds=tuple(bounds),
    )


def attacked(
    found: dict[str, Any], half_open: int, handshakes_per_s: int
) -> Iterator[tuple[str, float, float | None]]:
    """Yield what the attack on the least attacked daemon was, and what is missing from it."""
    held, per_s = min(found["half_open"]), min(found["handshakes_per_s"])
    yield "half_open_made", held, None
    yield "half_open_missing", max(0, half_open - held), 0
    yield "handshakes_made_per_s", per_s, None
    yield "handshakes_missing_per_s", max(0.0, RATE_SHARE_MIN * handshakes_per_s - per_s), 0


def _judged(found: dict[str, Any]) -> Iterator[tuple[str, float, float | None]]:
    """Yield each figure with its bound, if it has one."""
    yield "attached", found["attached"], None
    yield "attach_quiet_s_max", found["attach_quiet_s_max"], None
    yield "attach_s_p50", found["attach_s_p50"], None
    yield "attach_s_p99", found["attach_s_p99"], ATTACH_S_MAX
    for name in DAEMONS:
        of = found[name]
        yield f"{name}_mib_before", of["mib_before"], None
        yield f"{name}_mib_added", round(of["mib_most"] - of["mib_before"], 1), MIB_ADDED_MAX
        yield f"{name}_mib_kept", round(of["mib_after"] - of["mib_before"], 1), MIB_KEPT_MAX
        yield f"{name}_log_lines_per_s", of["log_lines_of_a_second_most"], LOG_LINES_PER_S_MAX
        yield f"{name}_health_failures", of["health_failures"], 0


LISTENERS = Experiment(
    name="listeners",
    summary="broker and edge router under half-open connections and begun handshakes",
    parameters=(
        Parameter(
            "targets", 2, "1: the broker alone is attacked; 2: the edge router as well", least=1
        ),
        Parameter("half_open", 12_000, "connections that say nothing", least=1),
        Parameter("handshakes_per_s", 1_000, "handshakes begun a second, none ended", least=1),
        Parameter("seconds", 20.0, "time for which handshakes are begun", least=0.01),
        Parameter("after_s", 60.0, "quiet time until memory must be given back", least=0),
    ),
    measure=measure,
)
