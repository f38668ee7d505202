"""`gridstat host`: what this machine grants against what is wanted."""

from __future__ import annotations

import json as json_text
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from gridstat.console.cli.command_errors import print_plainly
from gridstat.console.fitted_table import Column, FittedTable, print_table
from gridstat.console.host_report.findings import findings
from gridstat.console.host_report.probes import host_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gridstat.console.host_report.findings import Finding

HELP = """Show what this machine grants against what gridstat wants, and the setting to change.

Socket buffers, UDP GSO and GRO (tried on a socket), memory lock, real-time priority (tried), clock
synchronisation, MTU, processors, kernel, libraries to seal datagrams, and edge routers running here
that leave the channels of end-points plain. A shortfall is advice and no error: gridstat runs,
slower, less evenly or less safely.

Examples:

  gridstat host

  gridstat host --json
"""


def host(
    json: Annotated[bool, typer.Option("--json", help="All findings as one JSON object.")] = False,
) -> None:
    found = findings(host_facts())
    console = Console()
    if json:
        print_plainly(console, json_text.dumps({"findings": [asdict(each) for each in found]}))
        return
    _print_table(console, found)
    short = [finding for finding in found if not finding.is_enough]
    for finding in short:
        print_plainly(console, f"{finding.name}: {finding.change}")
        print_plainly(console, f"    because {finding.why}")
    if not short:
        print_plainly(console, "This machine grants everything that is wanted.")


def _print_table(console: Console, found: Sequence[Finding]) -> None:
    table = FittedTable(
        Column("what"),
        Column("granted", prose_min=14),
        Column("wanted", 1, prose_min=14),
        Column(""),
    )
    for finding in found:
        mark = Text("enough", "green") if finding.is_enough else Text("short", "yellow")
        table.add_row(finding.name, finding.granted, finding.wanted, mark)
    print_table(console, table)
