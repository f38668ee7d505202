"""`gridstat error`: what a code means, and what to do about it."""

from __future__ import annotations

import json as json_text
from typing import Annotated

import typer
from rich.console import Console

from gridstat.console.cli.command_errors import print_plainly
from gridstat.console.fitted_table import Column, FittedTable, print_table
from gridstat.model.error_index import all_errors, explain, thesis_codes
from gridstat.model.errors import GridStatError

HELP = """Explain an error code; without one, list them all.

Codes are stable: 1xxx the grid works and says no, 2xxx a peer cannot be reached, 3xxx bytes that
are not ours, 4xxx a call or a file that asks for nonsense, 5xxx a journal or a log that cannot be
written or read.

Examples:

  gridstat error 1036

  gridstat error --json
"""


def error(
    code: Annotated[
        int | None, typer.Argument(help="The number in brackets; all codes if left out.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The same as JSON lines.")] = False,
) -> None:
    console = Console()
    if code is not None:
        text = explain(code)
        facts = {"code": code, "explanation": text}
        for line in [json_text.dumps(facts)] if json else text.split("\n"):
            print_plainly(console, line)
    elif json:
        for kind in all_errors():
            print_plainly(console, json_text.dumps(described(kind)))
    else:
        table = FittedTable("code", "name", Column("meaning", prose_min=30))
        for kind in all_errors():
            table.add_row(str(kind.code), kind.__name__, meaning(kind))
        print_table(console, table)


def described(kind: type[GridStatError]) -> dict[str, object]:
    return {
        "code": kind.code,
        "name": kind.__name__,
        "meaning": meaning(kind),
        "hint": kind.remedy,
        "thesis_codes": thesis_codes(kind),
    }


def meaning(kind: type[GridStatError]) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0]
