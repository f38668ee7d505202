"""`gridstat router`: one status router of a topology file, in the foreground."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from gridstat.console.cli.failure import print_plainly
from gridstat.console.config import load_grid
from gridstat.console.processes.standalone import run_router

if TYPE_CHECKING:
    from gridstat.console.processes.lines import Line

HELP = """Run one status router of a topology file in the foreground.

For a service manager, a router a machine: it prints when it is ready (and tells systemd), SIGTERM
and Ctrl-C drain and end it, SIGHUP reads the file again. The file must name fixed ports for this
router and for everybody to whom it sends.

Examples:

  gridstat router grid.toml west

  gridstat router grid.toml west --json
"""


def router(
    file: Annotated[Path, typer.Argument(help="A topology file (TOML).")],
    name: Annotated[str, typer.Argument(help="The router's name in it.")],
    json: Annotated[
        bool, typer.Option("--json", help="Readiness and the last report as JSON lines.")
    ] = False,
) -> None:
    console, errors = Console(), Console(stderr=True)

    def on_ready(line: Line) -> None:
        host, data_port, urgent_port = line["address"]
        where = f"{host}, data port {data_port}, urgent port {urgent_port}"
        print_plainly(console, json_text.dumps(line) if json else f"router {name} ready on {where}")

    report = run_router(
        name,
        lambda: load_grid(file),
        on_ready=on_ready,
        tell=lambda text: print_plainly(errors, text),
    )
    if json:
        print_plainly(console, json_text.dumps({"state": "ended", "router": name, **report}))
    else:
        counted = ", ".join(f"{key} {count:,}" for key, count in report["counters"].items())
        print_plainly(console, f"router {name} ended: {counted}")
