"""`gridstat broker`: the leaf broker of one cloud, in the foreground."""

from __future__ import annotations

import json as json_text
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from gridstat.console.cli.failure import print_plainly
from gridstat.console.daemons.broker_daemon import load_broker, run_broker

if TYPE_CHECKING:
    from gridstat.console.daemons.broker_daemon import Line

HELP = """Run the leaf broker of one cloud, in the foreground.

It admits contracts, orders routers and keeps a journal, from which it resumes after any end; the
routers forward meanwhile. It prints when it is ready (and tells systemd); SIGTERM and Ctrl-C end
it, SIGHUP takes up new certificates.

A file to begin from:

  cloud = "c1"

  certificates = "certificates"        # made by `gridstat certificates`

  port = 7100                          # routers and operators connect here

  name_service_port = 7101

  [[router]]

  name = "e0"

  role = "edge"

Examples:

  gridstat broker c1.toml

  gridstat broker c1.toml --json

  gridstat broker c1.toml --begin-at-term 8   # the journal of a broker of term 7 is lost
"""

TERM_MAX = 2**53


def broker(
    file: Annotated[Path, typer.Argument(help="The broker's file (TOML).")],
    json: Annotated[bool, typer.Option("--json", help="Readiness and end as JSON.")] = False,
    begin_at_term: Annotated[
        int,
        typer.Option(
            "--begin-at-term",
            min=0,
            max=TERM_MAX,
            help="After the loss of a journal: a term above the one that routers obey. Make sure "
            "that no other broker of this cloud is alive.",
            show_default=False,
        ),
    ] = 0,
) -> None:
    console, errors = Console(), Console(stderr=True)

    def on_ready(line: Line) -> None:
        print_plainly(console, json_text.dumps(line) if json else _in_words(line))

    plan = replace(load_broker(file), term_min=begin_at_term)
    run_broker(plan, on_ready=on_ready, tell=lambda text: print_plainly(errors, text))
    cloud = plan.settings.cloud
    ended = {"state": "ended", "broker": cloud}
    print_plainly(console, json_text.dumps(ended) if json else f"broker of cloud {cloud} ended")


def _in_words(line: Line) -> str:
    host, port = line["address"]
    text = (
        f"broker of cloud {line['broker']} ready on {host} port {port}, "
        f"names on port {line['name_service'][1]}"
    )
    return f"{text}; metrics on port {line['metrics'][1]}" if "metrics" in line else text
