"""`gridstat up`: a whole grid on this machine, watched until Ctrl-C."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gridstat.console.config import (
    DEFAULT_GRID_FILE,
    default_grid_text,
    grid_from_text,
    read_grid_text,
)
from gridstat.console.live.displays import Display, JsonDisplay, LiveDisplay, TextDisplay
from gridstat.console.live.run import Run, run_grid
from gridstat.console.static_plan import static_plan

HELP = """Start a grid on this machine and watch it until Ctrl-C.

Without FILE it is the built-in one: three status routers in processes of their own, six simulated
PMUs at 30 and 60 frames/s, four subscribers at several divisors. The tables show rates, drops by
reason and latencies; Ctrl-C ends everything in order and prints an account of every slot.

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
        float | None, typer.Option(min=0.1, help="End by itself after so many seconds.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line, a second.")] = False,
    show_default: Annotated[
        bool, typer.Option("--show-default", help="Print the built-in topology file, and end.")
    ] = False,
) -> None:
    if show_default:
        sys.stdout.write(default_grid_text())
        return
    text = default_grid_text() if file is None else read_grid_text(file)
    grid = grid_from_text(text, file=DEFAULT_GRID_FILE if file is None else str(file))
    run = Run(grid, static_plan(grid), text=text, seconds=seconds)
    asyncio.run(run_grid(run, _display(grid.name, is_json=json)))


def _display(name: str, *, is_json: bool) -> Display:
    console = Console()
    if is_json:
        return JsonDisplay(console, Console(stderr=True))
    return LiveDisplay(console, name=name) if console.is_terminal else TextDisplay(console)
