"""`gridstat pipeline`: everything historical or heavy, on Spark."""

from __future__ import annotations

import json as json_text
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gridstat.console.access import folder_from
from gridstat.console.cli.failure import print_plainly, telling
from gridstat.console.cli.options import AsJson, Edges, Folder
from gridstat.model.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gridstat.pipeline.folder import PipelineFolder
    from gridstat.pipeline.session import SparkSettings

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
"""
PACKAGES: Final = ("deltalake", "pandas", "pyarrow", "pyspark")
ROWS_SHOWN: Final = 50
PLACE: Final = "pipeline"

app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)

Into = Annotated[
    Path | None,
    typer.Option(
        "--into",
        "--in",
        help="The pipeline's folder; else `pipeline` in that of the cloud.",
        show_default=False,
    ),
]
Log = Annotated[
    Path | None,
    typer.Option("--log", help="The recorder's folder; else `log` there.", show_default=False),
]
Master = Annotated[
    str,
    typer.Option(
        "--master", envvar="GRIDSTAT_MASTER", help="Where Spark runs: local[2], spark://host:7077."
    ),
]
Memory = Annotated[str, typer.Option("--driver-memory", help="Of Spark's driver: 2g, 800m.")]


@app.command("run", help="Take over what is recorded, as it comes, until Ctrl-C.")
@telling
def run(
    folder: Folder = None,
    into: Into = None,
    log: Log = None,
    master: Master = "local[2]",
    driver_memory: Memory = "1g",
    trigger_s: Annotated[
        float, typer.Option("--trigger-s", min=0.0, max=3_600.0, help="Between two batches.")
    ] = 0.5,
    delay_s: Annotated[
        float, typer.Option("--delay-s", min=0.0, max=3_600.0, help="How long seconds stay open.")
    ] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Only what is recorded by now, and then end.")
    ] = False,
    rules: Annotated[
        Path | None,
        typer.Option("--rules", help="Of alarms (TOML); else the built-in.", show_default=False),
    ] = None,
    edge: Edges = None,
    seconds: Annotated[float, typer.Option("--seconds", min=0.0, help="0: no end.")] = 0.0,
    json: AsJson = False,
) -> None:
    _need_spark()
    # Only now, here and below: a grid without a pipeline need not have Spark.
    from gridstat.console.daemons.pipeline_daemon import PipelinePlan, Tellers, run_pipeline
    from gridstat.pipeline.jobs.ingest import IngestSettings

    plan = PipelinePlan(
        folder=_place(folder, into, log),
        spark=_spark(master, driver_memory),
        ingest=IngestSettings(trigger_s=trigger_s, delay_s=delay_s),
        is_once=once,
        seconds=seconds,
    )
    console, errors = Console(), Console(stderr=True)

    def say(line: Mapping[str, Any], text: str) -> None:
        print_plainly(console, json_text.dumps(line) if json else text)

    tellers = Tellers(
        on_ready=lambda line: say(line, f"pipeline ready on {line['master']}, log {line['log']}"),
        on_progress=lambda line: say(line, progress_words(line)),
        tell=lambda text: print_plainly(errors, text),
    )
    ended = run_pipeline(plan, tellers, lambda spark, stack: [])
    say(ended, f"pipeline ended: {progress_words(ended)}")


@app.command("status", help="How far the pipeline is, without Spark.")
@telling
def status(folder: Folder = None, into: Into = None, log: Log = None, json: AsJson = False) -> None:
    _need_spark()
    from gridstat.console.live.pipeline_view import alarm_table, look, rollup_table

    place = _place(folder, into, log)
    view = look(place.path)
    if not view.progress:
        raise ConfigurationError(
            f"no pipeline has run in {place.path}", hint="start one: `gridstat pipeline run`"
        )
    if json:
        print_plainly(Console(), json_text.dumps(view.as_json()))
        return
    print_plainly(Console(), f"{view.progress['state']}: {progress_words(view.progress)}")
    Console().print(rollup_table(view.rollups), alarm_table(view.alarms))


@app.command("query", help="A question in SQL over the tables; `show tables` lists them.")
@telling
def query(
    statement: Annotated[str, typer.Argument(help="SQL as Spark understands it.")],
    folder: Folder = None,
    into: Into = None,
    log: Log = None,
    master: Master = "local[2]",
    driver_memory: Memory = "1g",
    rows: Annotated[int, typer.Option("--rows", min=1, max=1_000_000)] = ROWS_SHOWN,
    json: AsJson = False,
) -> None:
    _need_spark()
    from gridstat.pipeline.queries import ask
    from gridstat.pipeline.session import spark_session

    place = _existing(_place(folder, into, log))
    console, errors = Console(), Console(stderr=True)
    with errors.status("Spark is starting"):
        spark = spark_session(_spark(master, driver_memory))
    try:
        with errors.status("asking"):
            found = ask(spark, place, statement).limit(rows + 1).toArrow()
    finally:
        spark.stop()
    shown = found.slice(0, rows).to_pylist()
    if json:
        for row in shown:
            print_plainly(console, json_text.dumps(row, default=str))
        return
    table = Table(*found.column_names)
    for row in shown:
        table.add_row(*(Text("" if value is None else str(value)) for value in row.values()))
    console.print(table)
    if found.num_rows > rows:
        print_plainly(errors, f"the first {rows:,} rows; --rows shows more")


def progress_words(line: Mapping[str, Any]) -> str:
    """How far a pipeline is, for a person."""
    if "taken" not in line:
        return "nothing taken yet"
    return (
        f"{line['taken']:,} of {line['recorded']:,} records taken: {line['archived']:,} archived, "
        f"{line['quarantined']:,} quarantined, {line['alarms']:,} alarms; "
        f"{line['rows_per_s']:,.0f} rows/s, {line['lag_s']:.1f} s behind live"
    )


def _place(folder: Path | None, into: Path | None, log: Path | None) -> PipelineFolder:
    from gridstat.pipeline.folder import PipelineFolder

    return PipelineFolder((into or folder_from(folder) / PLACE).absolute(), log)


def _existing(place: PipelineFolder) -> PipelineFolder:
    if not place.path.is_dir() and not place.log.is_dir():
        raise ConfigurationError(
            f"{place.path} is no pipeline's folder", hint="start one: `gridstat pipeline run`"
        )
    return place


def _spark(master: str, driver_memory: str) -> SparkSettings:
    from gridstat.pipeline.session import SparkSettings

    return SparkSettings(master=master, driver_memory=driver_memory)


def _need_spark() -> None:
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"the pipeline needs {', '.join(missing)}", hint="pip install 'gridstat[spark]'"
        )
