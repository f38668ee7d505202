"""`gridstat recorder`: a subscriber that keeps what it gets, in the foreground."""

from __future__ import annotations

import json as json_text
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import Console

from gridstat.console.access import load_access
from gridstat.console.cli.attaching import edge_addresses
from gridstat.console.cli.command_errors import print_plainly
from gridstat.console.cli.options import (
    LATENCY_MS_MAX,
    PORT_MAX,
    SECONDS_MAX,
    AsJson,
    Edges,
    Folder,
    Security,
)
from gridstat.console.config.cloud_grid import period_of
from gridstat.endpoint.options import qos
from gridstat.model.channel_security import HOP
from gridstat.model.errors import ConfigurationError, Misuse
from gridstat.model.rate_law import EVERY_MAX
from gridstat.record.log_settings import LEDGER_S, MIB, LogSettings, RecorderSettings

if TYPE_CHECKING:
    from gridstat.console.daemons.recorder_daemon import Line, RecorderPlan
    from gridstat.endpoint.options import QosOptions
    from gridstat.model.qos import QosRequest

HELP = """Record what the grid delivers, in the foreground.

It subscribes like anybody else, to all variables of the cloud or to those named, and appends every
event that arrives to a log of its own; beside them the contracts and ledgers of all subscribers
and the counters of all routers. Recorded is what is on the disk, at most --sync-s after it came.
What could not be recorded is in the log as a gap. Near its bound the log raises an alarm, at its
bound it takes nothing until the archive has taken over old segments; no recorded event is thrown
away. Ledgers and counters go after --keep-days. SIGTERM and Ctrl-C end it in order, SIGHUP closes
the open segments.

Examples:

  gridstat recorder --into log

  gridstat recorder 'c1/*/*/frequency' c1/hill/pmu-1/voltage --into log --rate 10/s

  gridstat recorder --into /data/log --redundancy 2 --log-mib 65536 --metrics-port 9110 --json
"""
MIB_MAX = 2**30
"""A pebibyte, in MiB."""
DAYS_MAX = 36_500.0
Rate = Annotated[str, typer.Option("--rate", help="At most so often: 10/s; all if empty.")]
Every = Annotated[int, typer.Option("--every", min=1, max=EVERY_MAX, help="Only every n-th slot.")]
LatencyMs = Annotated[float | None, typer.Option("--latency-ms", min=0.001, max=LATENCY_MS_MAX)]
LogMib = Annotated[int, typer.Option("--log-mib", min=4, max=MIB_MAX, help="Bound of the events.")]
SegmentMib = Annotated[int, typer.Option("--segment-mib", min=1, max=MIB_MAX, help="At most.")]
SegmentS = Annotated[float, typer.Option("--segment-s", min=1.0, max=SECONDS_MAX, help="At most.")]
Seconds = Annotated[float, typer.Option("--seconds", min=0.0, max=SECONDS_MAX, help="0: no end.")]
AccountS = Annotated[
    float,
    typer.Option("--account-s", min=0.2, max=SECONDS_MAX, help="How often the broker is asked."),
]
LedgerS = Annotated[
    float,
    typer.Option(
        "--ledger-s", min=0.0, max=SECONDS_MAX, help="How often a ledger is recorded without loss."
    ),
]
KeepDays = Annotated[
    float,
    typer.Option(
        "--keep-days", min=0.1, max=DAYS_MAX, help="How long ledgers and counters are kept."
    ),
]
FreeMib = Annotated[
    int,
    typer.Option("--free-mib", min=0, max=MIB_MAX, help="Alarm below so much room on the disk."),
]
Names = Annotated[
    list[str] | None,
    typer.Argument(help="Full names or patterns (* one part, ** all); else all of the cloud."),
]
SyncS = Annotated[
    float, typer.Option("--sync-s", min=0.01, max=60.0, help="How long events may be unsafe.")
]
MetricsPort = Annotated[
    int | None, typer.Option("--metrics-port", min=0, max=PORT_MAX, show_default=False)
]
EndPoint = Annotated[
    str,
    typer.Option(
        "--as",
        "--name",
        metavar="NAME",
        help="The end-point's full name; else c1/recorder. Accounts are asked for as the "
        "operator `recorder`.",
        show_default=False,
    ),
]
SEGMENTS_MIN = 4
"""A log holds at least so many segments, or nothing could be released before it is full."""


def recorder(
    names: Names = None,
    into: Annotated[Path, typer.Option("--into", help="The folder of the log.")] = Path("log"),
    rate: Rate = "",
    every: Every = 1,
    latency_ms: LatencyMs = None,
    redundancy: Annotated[int | None, typer.Option("--redundancy", min=1, max=4)] = None,
    priority: Annotated[
        int | None, typer.Option("--priority", min=1, max=6, help="1 is the most urgent.")
    ] = None,
    preset: Annotated[str, typer.Option("--preset", help="What is not said is as in this.")] = "",
    sync_s: SyncS = 0.2,
    log_mib: LogMib = 8_192,
    segment_mib: SegmentMib = 128,
    segment_s: SegmentS = 3_600.0,
    account_s: AccountS = 5.0,
    ledger_s: LedgerS = LEDGER_S,
    keep_days: KeepDays = 7.0,
    free_mib: FreeMib = 512,
    metrics_port: MetricsPort = None,
    seconds: Seconds = 0.0,
    end_point: EndPoint = "",
    edge: Edges = None,
    security: Security = HOP,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    access = load_access(folder)
    _need_arrow()
    # Imported here: a machine that does not record need not have Arrow.
    from gridstat.console.daemons.recorder_daemon import RecorderPlan

    given: dict[str, object] = {
        "latency_ms": latency_ms,
        "redundancy": redundancy,
        "priority": priority,
        "preset": preset or None,
    }
    options = {name: value for name, value in given.items() if value is not None}
    plan = RecorderPlan(
        access=access,
        into=into,
        end_point=end_point or f"{access.cloud}/recorder",
        edges=edge_addresses(access, edge),
        names=tuple(names or [f"{access.cloud}/**"]),
        qos=_quality(cast("QosOptions", options), rate, every),
        settings=RecorderSettings(
            events=_bounds(log_mib, segment_mib, segment_s),
            sync_s=sync_s,
            account_s_max=keep_days * 86_400.0,
            free_bytes_alarm=free_mib * MIB,
        ),
        account_s=account_s,
        ledger_s=ledger_s,
        metrics_port=metrics_port,
        seconds=seconds,
        security=security,
    )
    _run(plan, is_json=json)


def _run(plan: RecorderPlan, *, is_json: bool) -> None:
    from gridstat.console.daemons.recorder_daemon import run_recorder  # Needs Arrow, as above.

    console, errors = Console(), Console(stderr=True)

    def say(line: Line, text: str) -> None:
        print_plainly(console, json_text.dumps(line) if is_json else text)

    def on_ready(line: Line) -> None:
        text = f"recorder {line['recorder']} ready, into {line['into']}"
        metrics = f"; metrics on port {line['metrics'][1]}" if "metrics" in line else ""
        say(line, f"{text} from record {line['recorded']:,} on{metrics}")

    ended = run_recorder(
        plan,
        is_json=is_json,
        on_ready=on_ready,
        on_message=lambda text: print_plainly(errors, text),
    )
    missing = sum(ended["missing"].values())
    say(
        ended,
        f"recorder {ended['recorder']} ended: {ended['recorded']:,} events recorded, "
        f"{missing:,} known to be missing",
    )


def _need_arrow() -> None:
    if find_spec("pyarrow") is None:
        raise ConfigurationError(
            "a recorder needs pyarrow, which is not installed",
            hint="pip install 'gridstat[arrow]', or 'gridstat[spark]' for the pipeline as well",
        )


def _bounds(log_mib: int, segment_mib: int, segment_s: float) -> LogSettings:
    return LogSettings(
        segment_bytes_max=min(segment_mib * MIB, log_mib * MIB // SEGMENTS_MIN),
        segment_s_max=segment_s,
        log_bytes_max=log_mib * MIB,
    )


def _quality(options: QosOptions, rate: str, every: int) -> QosRequest:
    if rate and every != 1:
        raise Misuse("say either --rate or --every")
    if every != 1:
        options["every"] = every
    try:
        if rate:
            options["interval"] = period_of(rate)
    except (AttributeError, ValueError):
        raise Misuse(f"{rate!r} is not a rate", hint="write 30/s, or 1/5s") from None
    return qos(**options)
