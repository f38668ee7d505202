"""`gridstat up`: a whole grid on this machine, watched until Ctrl-C."""

from __future__ import annotations

import asyncio
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from gridstat.console.access import folder_from
from gridstat.console.cli.command_errors import print_plainly
from gridstat.console.cli.options import SECONDS_MAX, Folder
from gridstat.console.config.grid_file import (
    DEFAULT_GRID_FILE,
    HINT,
    default_grid_text,
    grid_from_text,
)
from gridstat.console.config.toml_file import read_text
from gridstat.console.live.displays import Display, JsonDisplay, LiveDisplay, TextDisplay
from gridstat.console.live.run import Run, run_grid
from gridstat.console.live.screen import has_screen

INTERRUPTED: Final = 130
SPARK_PACKAGES: Final = ("deltalake", "pyarrow", "pyspark")

HELP = """Start a grid on this machine and watch it until Ctrl-C.

Without FILE it is the built-in one: two clouds under a root broker, twelve status routers in two
disjoint ways, also between clouds, simulated PMUs and subscribers on two edge routers each, with
contracts of several rates and redundancies, inside a cloud and across, a recorder and the Spark
pipeline. On a terminal it is a screen of pages: what is wrong, totals, then tables of what is
promised, what is carried, each contract's ledger, the newest rollups and alarms, and a guide. n or
space shows the next page, p the one before; q or Ctrl-C ends everything in order and prints an
account of every slot. Through a pipe it is some lines a second. Files, certificates and addresses
are in the folder, where the other commands find them.

FILE may describe one cloud or a whole tree; --show-default prints one to begin from.

Examples:

  gridstat up

  gridstat up --seconds 10 --json | tail -1

  gridstat up --show-default > my_grid.toml && gridstat up my_grid.toml
"""


def up(
    file: Annotated[
        Path | None, typer.Argument(help="A topology file (TOML); the built-in one if left out.")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(min=0.1, max=SECONDS_MAX, help="End by itself after so many seconds."),
    ] = None,
    folder: Folder = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line, a second.")] = False,
    without_pipeline: Annotated[
        bool,
        typer.Option("--without-pipeline", help="Neither recorder nor Spark: the grid alone."),
    ] = False,
    show_default: Annotated[
        bool, typer.Option("--show-default", help="Print the built-in topology file, and end.")
    ] = False,
) -> None:
    if show_default:
        sys.stdout.write(default_grid_text())
        return
    text = default_grid_text() if file is None else read_text(file, hint=HINT)
    grid = grid_from_text(text, file=DEFAULT_GRID_FILE if file is None else str(file))
    run = Run(
        grid,
        text=text,
        folder=folder_from(folder),
        seconds=seconds,
        has_pipeline=not without_pipeline and _has_spark(),
    )
    account = asyncio.run(run_grid(run, _display(is_json=json)))
    if account is None:
        raise typer.Exit(INTERRUPTED)
    if account.silent:
        raise typer.Exit(1)


def _has_spark() -> bool:
    """Return whether the pipeline is installed; without it the grid runs, and a line says so."""
    missing = [name for name in SPARK_PACKAGES if find_spec(name) is None]
    if missing:
        print_plainly(
            Console(stderr=True),
            f"without the pipeline: {', '.join(missing)} not installed; pip install "
            "'gridstat[spark]' adds it",
        )
    return not missing


def _display(*, is_json: bool) -> Display:
    console = Console()
    if is_json:
        return JsonDisplay(console, Console(stderr=True))
    return LiveDisplay(console) if has_screen(console) else TextDisplay(console)
