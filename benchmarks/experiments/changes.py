"""Changes of a table of 100,000 rows: the time of one, and 1,000 a second under full load.

Half of the changes touch rows that carry the load, without an effect: no event may be lost or
come twice. The other half remove routes of rows and add them again; at the end one event per such
row shows whether its last change is in force.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.experiments.experiment import (
    Experiment,
    Figure,
    Options,
    Parameter,
    Progress,
    Result,
)
from benchmarks.measurements import OUT, Stream, flood_question, period_ns
from benchmarks.plan import EVENT_BYTES, Exit, Group, RouterPlan
from benchmarks.rig import CORE, Forwarder, Rig, Subscriber
from benchmarks.roles.pacing import reached

if TYPE_CHECKING:
    from benchmarks.processes import Answer, RoleProcess

LOAD = Stream(
    variables=1_000,
    event_bytes=EVENT_BYTES,
    per_datagram=0,
    in_flight_max=65_536,
    # Between 0.5 and 50 million events a second the stamps of this period keep up with the clock.
    period=(1, 100_000),
)
TOGGLED = 100
TOGGLED_ID, IDLE_ID = 10_000, 1_000_000
SETTLE_S, MARGIN_S, MEMORY_WARM_UP_S = 0.2, 1.0, 2.0


def measure(options: Options, progress: Progress) -> Result:
    """Time single changes on an idle router, then change under load."""
    seconds, per_s = options.real("seconds"), options.real("per_s")
    loaded, idle, toggled = _groups(options.whole("rows"))
    with Rig() as rig:
        rig.prepare(CORE, publishers=2)
        subscriber = rig.subscriber([loaded, toggled], ["count", "count"])
        plan = RouterPlan(
            outlets=(subscriber.outlet(OUT, 0), subscriber.outlet(OUT + 1, 1)),
            groups=(loaded, idle, toggled),
            publishers=(1, 2),
        )
        progress(0.0, f"loading {options.whole('rows'):,} rows")
        hop = rig.forwarder(CORE, plan)
        load = rig.publisher(hop, subscriber, receivers=1)
        probe = rig.publisher(hop, first_channel=2)
        progress(0.05, "single changes")
        alone = _change(hop, options.whole("single_changes"), 0.0)
        progress(0.1, f"{per_s:g} changes a second under full load for {seconds:g} s")
        under_load, flooded, growth_kib = _change_under_load(hop, load, seconds, per_s=per_s)
        ineffective = _ineffective(subscriber, probe, int(under_load["routed"]))
        figures = _figures(alone, under_load, flooded)
        figures["changes_duplicated"] = subscriber.pages.duplicates() + hop.count("duplicate")
        figures["changes_ineffective"] = ineffective
        figures["rss_growth_kib"] = growth_kib
        figures["policed"] = hop.policed()
    progress(1.0, "done")
    return Result(
        figures=figures,
        title=f"changes of a table of {options.whole('rows'):,} rows",
        columns=("figure", "value"),
        table=tuple((name, f"{value}") for name, value in figures.items()),
    )


def _groups(rows: int) -> tuple[Group, Group, Group]:
    """Return rows under load, rows that fill the table, and rows that changes switch on and off."""
    loaded = LOAD.group((Exit(OUT),))
    filling = max(1, rows - loaded.count - TOGGLED)
    idle = Group(first_id=IDLE_ID, count=filling, source=1, exits=(Exit(OUT),))
    toggled = Group(
        first_id=TOGGLED_ID, count=TOGGLED, period=(1, 1), source=2, exits=(Exit(OUT + 1),)
    )
    return loaded, idle, toggled


def _change(hop: Forwarder, changes: int, per_s: float) -> Answer:
    within_s = 60.0 + (changes / per_s if per_s else 0.0) * 2
    question = {"do": "change", "changes": changes, "per_s": per_s}
    return hop.process.ask(question, within_s=within_s)


def _change_under_load(
    hop: Forwarder, load: RoleProcess, seconds: float, *, per_s: float
) -> tuple[Answer, Answer, int]:
    """Run changes and load together; compare the memory with that after a few seconds."""
    warm_up_s = min(MEMORY_WARM_UP_S, seconds / 4)
    load.begin(flood_question(LOAD, seconds + 2 * MARGIN_S))
    time.sleep(MARGIN_S / 2)
    _change(hop, max(1, int(warm_up_s * per_s)), per_s)
    before_kib = hop.process.rss_kib()
    changed = _change(hop, max(1, int((seconds - warm_up_s) * per_s)), per_s)
    after_kib = hop.process.rss_kib()
    flooded = load.finish(within_s=seconds * 2 + 60.0)
    return changed, flooded, after_kib - before_kib


def _ineffective(subscriber: Subscriber, probe: RoleProcess, routed: int) -> int:
    """Count rows whose last change is not in force, by one event each."""
    before = subscriber.pages.delivered()[1]
    probe.ask(
        {
            "do": "burst",
            "first_id": TOGGLED_ID,
            "count": TOGGLED,
            "per_tick": TOGGLED,
            "tick_s": 0.01,
            "event_bytes": EVENT_BYTES,
            "period_ns": period_ns((1, 1)),
            "seconds": 0.01,
        }
    )
    reached(lambda: subscriber.pages.delivered()[1] - before, routed)
    time.sleep(SETTLE_S)  # Time for events that should not arrive.
    return abs(subscriber.pages.delivered()[1] - before - routed)


def _figures(alone: Answer, under_load: Answer, flooded: Answer) -> dict[str, Figure]:
    return {
        "change_ms": round(alone["p50_ms"], 4),
        "change_ms_p99": round(alone["p99_ms"], 4),
        "change_ms_max": round(alone["max_ms"], 4),
        "loaded_change_ms": round(under_load["p50_ms"], 4),
        "loaded_change_ms_p99": round(under_load["p99_ms"], 4),
        "changes": int(under_load["changes"]),
        "changes_per_s": round(under_load["changes"] / under_load["seconds"], 1),
        "events_per_s": round(flooded["sent"] / flooded["seconds"]),
        "changes_lost": int(flooded["lost"]),
    }


CHANGES = Experiment(
    name="changes",
    summary="changes of a table of 100,000 rows, alone and at 1,000 a second under full load",
    parameters=(
        Parameter("rows", 100_000, "rows in the table", least=1),
        Parameter("single_changes", 200, "changes timed on the idle router", least=1),
        Parameter("per_s", 1_000.0, "changes a second under load", least=1),
        Parameter("seconds", 60.0, "time under load", least=0.01),
    ),
    measure=measure,
)
