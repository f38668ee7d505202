"""Commands of `gridstat pipeline` that work on history: audit, mine, replay."""

from __future__ import annotations

import json as json_text
import signal
import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console

from gridstat.console.access import load_access
from gridstat.console.cli.attaching import attached
from gridstat.console.cli.command_errors import print_plainly
from gridstat.console.cli.options import AsJson, Edges, Folder, Security
from gridstat.console.cli.pipeline_options import (
    MASTER,
    MEMORY,
    Into,
    Log,
    Master,
    Memory,
    existing,
    folder_of,
    instant_ns,
    need_spark,
    spark_for,
)
from gridstat.console.daemons.replay_publisher import ReplayPublisher, check_speed, run_name
from gridstat.console.fitted_table import FittedTable, print_table
from gridstat.model.channel_security import HOP
from gridstat.model.errors import Misuse
from gridstat.net.core_dumps import forbid_core_dumps

if TYPE_CHECKING:
    import pyarrow as pa

    from gridstat.console.daemons.replay_publisher import ReplayTally

GAPS_SHOWN: Final = 20

Since = Annotated[str, typer.Option("--from", help="Since this time (UTC): 2026-11-16T12:00.")]


def audit(
    since: Since = "",
    gaps: Annotated[
        int, typer.Option("--gaps", min=0, max=10_000, help="Show so many of the worst gaps.")
    ] = GAPS_SHOWN,
    folder: Folder = None,
    into: Into = None,
    log: Log = None,
    master: Master = MASTER,
    driver_memory: Memory = MEMORY,
    json: AsJson = False,
) -> None:
    need_spark()
    from gridstat.pipeline.jobs.audit import find_gaps, run_audit  # Needs Spark; as below.

    place = existing(folder_of(folder, into, log))
    from_ns = instant_ns(since) if since else None
    with spark_for(master, driver_memory, "auditing") as spark:
        done = run_audit(spark, place, from_ns=from_ns)
        worst = find_gaps(spark, place, count=gaps, from_ns=from_ns or 0).toArrow()
    if json:
        rows = worst.to_pylist()
        print_plainly(Console(), json_text.dumps({**asdict(done), "gaps": rows}, default=str))
        return
    print_plainly(
        Console(),
        f"{done.rows:,} contract hours audited ({done.hours:,} hours): {done.broken:,} not kept, "
        f"{done.untold:,} without evidence; see the table `audit`",
    )
    show(worst)


def mine(
    folder: Folder = None,
    into: Into = None,
    log: Log = None,
    master: Master = MASTER,
    driver_memory: Memory = MEMORY,
    json: AsJson = False,
) -> None:
    need_spark()
    from gridstat.pipeline.jobs.mine import run_mine  # Needs Spark.

    place = existing(folder_of(folder, into, log))
    with spark_for(master, driver_memory, "mining") as spark:
        stored = run_mine(spark, place)
    text = ", ".join(f"{rows:,} {name}" for name, rows in stored.items())
    print_plainly(Console(), json_text.dumps(stored) if json else text)


def replay(
    names: Annotated[list[str], typer.Argument(help="Full names or patterns: 'c1/hill/**'.")],
    since: Annotated[str, typer.Option("--from", help="From this time on (UTC).")],
    until: Annotated[str, typer.Option("--to", help="Up to this time.")],
    speed: Annotated[
        float, typer.Option("--speed", help="1: as it was; 10: an hour in six minutes.")
    ] = 1.0,
    run: Annotated[str, typer.Option("--run", help="A name for this replay; else the time.")] = "",
    end_point: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="NAME",
            help="The end-point's full name; else c1/replay/RUN.",
            show_default=False,
        ),
    ] = "",
    edge: Edges = None,
    security: Security = HOP,
    folder: Folder = None,
    into: Into = None,
    log: Log = None,
    master: Master = MASTER,
    driver_memory: Memory = MEMORY,
    json: AsJson = False,
) -> None:
    need_spark()
    from gridstat.pipeline.jobs.replay import ReplayRequest, ReplaySource  # Needs Spark.

    if run and end_point:
        raise Misuse("say either --run or --as", hint="--run NAME is --as c1/replay/NAME")
    access = load_access(folder)
    check_speed(speed)
    request = ReplayRequest(instant_ns(since), instant_ns(until), tuple(names))
    console = Console()
    forbid_core_dumps()
    with spark_for(master, driver_memory, "replaying") as spark:
        source = ReplaySource(spark, existing(folder_of(folder, into, log)))
        end_point = end_point or run_name(access.cloud, run or str(round(time.time())))
        with attached(access, end_point, edge, security) as grid:
            stop = _stop_on_signals()
            publisher = ReplayPublisher(grid, speed)
            published = publisher.register(source.variables(request))
            print_plainly(
                console,
                json_text.dumps({"state": "ready", "variables": published})
                if json
                else f"replaying {len(published):,} variables below {end_point}",
            )
            tally = publisher.run(
                source.events(request),
                stop,
                lambda tally: _print_tally(console, tally, is_json=json),
            )
    state = "ended" if tally.is_whole else "stopped"
    line = {**asdict(tally), "state": state}
    print_plainly(console, json_text.dumps(line) if json else f"{state}: {_replay_text(tally)}")


def show(rows: pa.Table) -> None:
    """Rows for a person; columns by name."""
    table = FittedTable(*rows.column_names)
    for row in rows.to_pylist():
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    print_table(Console(), table)


def _stop_on_signals() -> threading.Event:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _print_tally(console: Console, tally: ReplayTally, *, is_json: bool) -> None:
    line: dict[str, Any] = {**asdict(tally), "state": "running"}
    print_plainly(console, json_text.dumps(line) if is_json else _replay_text(tally))


def _replay_text(tally: ReplayTally) -> str:
    return (
        f"{tally.sent:,} events sent, {tally.not_sent:,} not sent, {tally.skipped:,} skipped, "
        f"{tally.delayed_s:.1f} s behind its pace"
    )
