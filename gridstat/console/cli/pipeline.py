"""`gridstat pipeline`: everything historical or heavy, on Spark."""

from __future__ import annotations

import json as json_text
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console

from gridstat.console.access import ACCESS_FILE, folder_from, load_access
from gridstat.console.cli.attaching import edge_addresses
from gridstat.console.cli.command_errors import print_plainly, reporting_errors
from gridstat.console.cli.options import SECONDS_MAX, AsJson, Edges, Folder, Security
from gridstat.console.cli.pipeline_history import audit, mine, replay, show
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
    spark_of,
)
from gridstat.console.live.pipeline_view import alarm_table, look, rollup_table
from gridstat.model import channel_security
from gridstat.model.channel_security import HOP
from gridstat.model.errors import ConfigurationError, GridStatError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gridstat.console.daemons.pipeline_daemon import Feedback, PipelinePlan
    from gridstat.pipeline.pipeline_folder import PipelineFolder

HELP = """Archive, roll up, audit, alarm and replay what a recorder has recorded, on Spark.

`run` reads the log as it grows and keeps Delta tables, which anything that reads Delta can read:
events and quarantine, rollups by second, minute and hour, alarms. It may be killed at any time; the
next run goes on where it was, with nothing lost and nothing twice.

Examples:

  gridstat pipeline run

  gridstat pipeline run --master spark://one:7077 --into /data/pipeline --log /data/log

  gridstat pipeline status

  gridstat pipeline query "select rule, count(*) from alarms group by rule"

  gridstat pipeline compact

  gridstat pipeline audit --from 2026-11-16

  gridstat pipeline replay 'c1/hill/**' --from 2026-11-16T12:00 --to 2026-11-16T13:00 --speed 10
"""
ROWS_SHOWN: Final = 50
JOB: Final = "ingest"
ENDED: Final = "ended"
NS_PER_S: Final = 1_000_000_000

app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)

EndPoint = Annotated[
    str,
    typer.Option(
        "--as",
        metavar="NAME",
        help="The end-point that publishes alerts; else c1/pipeline.",
        show_default=False,
    ),
]


@app.command("run", help="Take over what is recorded, as it comes, until Ctrl-C.")
@reporting_errors
def run(
    folder: Folder = None,
    into: Into = None,
    log: Log = None,
    master: Master = MASTER,
    driver_memory: Memory = MEMORY,
    trigger_s: Annotated[
        float, typer.Option("--trigger-s", min=0.0, max=3_600.0, help="Between two batches.")
    ] = 0.5,
    delay_s: Annotated[
        float, typer.Option("--delay-s", min=0.0, max=3_600.0, help="How long seconds stay open.")
    ] = 2.0,
    compact_s: Annotated[
        float,
        typer.Option(
            "--compact-s", min=0.0, max=SECONDS_MAX, help="Compact so often; 0: by hand only."
        ),
    ] = 600.0,
    keep_log: Annotated[
        bool, typer.Option("--keep-log", help="Others read the log, too: release nothing of it.")
    ] = False,
    once: Annotated[
        bool, typer.Option("--once", help="Only what is recorded by now, and then end.")
    ] = False,
    rules: Annotated[
        Path | None,
        typer.Option("--rules", help="Of alarms (TOML); else the built-in.", show_default=False),
    ] = None,
    without_alerts: Annotated[
        bool, typer.Option("--without-alerts", help="Alarms go to their table only.")
    ] = False,
    end_point: EndPoint = "",
    edge: Edges = None,
    security: Security = HOP,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.0, max=SECONDS_MAX, help="0: no end.")
    ] = 0.0,
    json: AsJson = False,
) -> None:
    need_spark()
    # Only now, here and below: a grid without a pipeline need not have Spark.
    from gridstat.console.daemons.pipeline_daemon import PipelinePlan
    from gridstat.pipeline.alarm_rules import load_rules  # Needs Spark.
    from gridstat.pipeline.jobs.ingest import IngestSettings  # Needs Spark.

    plan = PipelinePlan(
        folder=folder_of(folder, into, log),
        spark=spark_of(master, driver_memory),
        rules=load_rules(rules),
        feedback=_feedback(folder, edge, end_point, security, is_wanted=not without_alerts),
        ingest=IngestSettings(
            trigger_s=trigger_s, delay_s=delay_s, compact_s=compact_s, keeps_log=keep_log
        ),
        is_once=once,
        seconds=seconds,
    )
    _run(plan, is_json=json)


def _run(plan: PipelinePlan, *, is_json: bool) -> None:
    from gridstat.console.daemons.pipeline_daemon import (  # Needs Spark.
        PipelineCallbacks,
        run_pipeline,
    )

    console, errors = Console(), Console(stderr=True)

    def say(line: Mapping[str, Any], text: str) -> None:
        print_plainly(console, json_text.dumps(line) if is_json else text)

    callbacks = PipelineCallbacks(
        on_ready=lambda line: say(line, f"pipeline ready on {line['master']}, log {line['log']}"),
        on_progress=lambda line: say(line, progress_text(line)),
        on_message=lambda text: print_plainly(errors, text),
    )
    try:
        ended = run_pipeline(plan, callbacks)
    except GridStatError as error:
        if is_json:  # Whoever started us reads this and need not try again.
            facts = {"message": error.args[0], "hint": error.hint, "code": error.code}
            print_plainly(console, json_text.dumps({"state": "failed", **facts}))
        raise
    say(ended, f"pipeline ended: {progress_text(ended)}")


@app.command("status", help="How far the pipeline is, without Spark.")
@reporting_errors
def status(folder: Folder = None, into: Into = None, log: Log = None, json: AsJson = False) -> None:
    need_spark()
    place = folder_of(folder, into, log)
    view = look(place.path)
    if not view.progress:
        raise ConfigurationError(
            f"no pipeline has run in {place.path}", hint="start one: `gridstat pipeline run`"
        )
    if json:
        print_plainly(Console(), json_text.dumps(view.as_json()))
        return
    print_plainly(Console(), f"{_state(place, view.progress)}: {progress_text(view.progress)}")
    Console().print(rollup_table(view.rollups), alarm_table(view.alarms))


@app.command("query", help="A question in SQL over the tables; `show tables` lists them.")
@reporting_errors
def query(
    statement: Annotated[str, typer.Argument(help="SQL as Spark understands it.")],
    folder: Folder = None,
    into: Into = None,
    log: Log = None,
    master: Master = MASTER,
    driver_memory: Memory = MEMORY,
    rows: Annotated[int, typer.Option("--rows", min=1, max=1_000_000)] = ROWS_SHOWN,
    log_from: Annotated[
        str,
        typer.Option(
            "--log-from", help="Read log_events, log_ledgers, log_counters from this time on (UTC)."
        ),
    ] = "",
    log_to: Annotated[
        str, typer.Option("--log-to", help="Read them only up to this time, and not at it.")
    ] = "",
    json: AsJson = False,
) -> None:
    need_spark()
    from gridstat.pipeline.queries import run_statement  # Needs Spark.
    from gridstat.pipeline.row_choice import RowChoice  # Needs Arrow.

    recorded_rows = RowChoice(
        from_ns=instant_ns(log_from) if log_from else None,
        to_ns=instant_ns(log_to) if log_to else None,
    )
    place = existing(folder_of(folder, into, log))
    with spark_for(master, driver_memory, "asking") as spark:
        found = run_statement(spark, place, statement, recorded_rows).limit(rows + 1).toArrow()
    if json:
        for row in found.slice(0, rows).to_pylist():
            print_plainly(Console(), json_text.dumps(row, default=str))
        return
    show(found.slice(0, rows))
    if found.num_rows > rows:
        print_plainly(Console(stderr=True), f"the first {rows:,} rows; --rows shows more")


@app.command("compact", help="Fewer, larger files; and the log may let go of what is archived.")
@reporting_errors
def compact(
    folder: Folder = None,
    into: Into = None,
    log: Log = None,
    hours_kept: Annotated[
        int, typer.Option("--hours-kept", min=1, max=87_600, help="Of older versions of tables.")
    ] = 24,
    json: AsJson = False,
) -> None:
    need_spark()
    from gridstat.pipeline.jobs.compact import CompactSettings  # Needs Spark.
    from gridstat.pipeline.jobs.compact import compact as compact_tables  # Needs Spark.

    place = existing(folder_of(folder, into, log))
    with Console(stderr=True).status("compacting"):
        done = compact_tables(place, CompactSettings(hours_kept=hours_kept))
    for one in done:
        text = f"{one.table}: {one.files_before:,} files are {one.files_after:,} now, "
        text += f"{one.removed:,} old ones removed"
        print_plainly(Console(), json_text.dumps(asdict(one)) if json else text)


def _feedback(
    folder: Path | None,
    edges: list[str] | None,
    end_point: str,
    security: channel_security.Security,
    *,
    is_wanted: bool,
) -> Feedback | None:
    """Return the path of alarms back into the grid, if there is one."""
    from gridstat.console.daemons.pipeline_daemon import Feedback  # Needs Spark.

    if not is_wanted:
        return None
    if not (folder_from(folder) / ACCESS_FILE).exists():
        said = f"no cloud in {folder_from(folder)}: alarms go to their table only"
        print_plainly(Console(stderr=True), said)
        return None
    access = load_access(folder)
    seen = access.beside(end_point.partition("/")[0])
    return Feedback(access, edge_addresses(seen, edges), end_point, security)


def _state(place: PipelineFolder, progress: Mapping[str, Any]) -> str:
    """Return the last reported state, or that the process has ended since, and its age."""
    state = str(progress["state"])
    if state != ENDED and not place.is_running(JOB):
        state = "not running any more"
    age_s = max(0.0, (time.time_ns() - progress["updated_ns"]) / NS_PER_S)
    return f"{state}, last batch {age_s:,.0f} s ago"


def progress_text(line: Mapping[str, Any]) -> str:
    """Return the progress of a pipeline in one line."""
    if "taken" not in line:
        return "nothing taken yet"
    return (
        f"{line['taken']:,} of {line['recorded']:,} records taken: {line['archived']:,} archived, "
        f"{line['quarantined']:,} quarantined, {line['alarms']:,} alarms; "
        f"{line['rows_per_s']:,.0f} rows/s, {line['lag_s']:.1f} s behind live"
    )


AUDIT_HELP = "Hold every contract's hours against its ledger and the archive; show the worst gaps."
MINE_HELP = "Profiles, averages, correlations, anomalies and bottlenecks, from all history."
REPLAY_HELP = "Publish archived events once more, at a chosen speed, below all live traffic."
app.command("audit", help=AUDIT_HELP)(reporting_errors(audit))
app.command("mine", help=MINE_HELP)(reporting_errors(mine))
app.command("replay", help=REPLAY_HELP)(reporting_errors(replay))
