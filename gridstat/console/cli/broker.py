"""`gridstat broker`: the leaf broker of one cloud, or one above others, in the foreground."""

from __future__ import annotations

import json as json_text
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from gridstat.console.cli.command_errors import print_plainly
from gridstat.console.config.config_errors import complaint
from gridstat.console.config.toml_file import document_of, read_text
from gridstat.console.config.tree_file import HINT
from gridstat.console.daemons.broker_daemon import BrokerPlan, load_broker, run_broker
from gridstat.console.daemons.broker_service import STANDING_BY, WAITING
from gridstat.console.daemons.tree_daemon import TreePlan, load_tree_broker, run_tree_broker

if TYPE_CHECKING:
    from gridstat.console.daemons.broker_service import Line

HELP = """Run a broker, in the foreground: the leaf broker of one cloud, or one above others.

It admits contracts, orders routers and keeps a journal, from which it resumes after any end; the
routers forward meanwhile. It prints when it is ready (and tells systemd); SIGTERM and Ctrl-C end
it, SIGHUP takes up new certificates. Of several whose file names the same database as `journal`,
`postgresql://…`, one is in charge, and the others stand by.

A file to begin from:

  cloud = "c1"

  certificates = "certificates"        # made by `gridstat certificates`

  port = 7100                          # routers and operators connect here

  name_service_port = 7101

  [[router]]

  name = "e0"

  role = "edge"

  [[access_rule]]                      # without rules nobody may do anything

  name = "own"

  who = "c1/**"

  may = ["publish", "subscribe", "find"]

  what = "c1/**"

Below another broker, the same with

  [parent]

  name = "root"

  addresses = ["127.0.0.1:7000"]

And that one, which has brokers in place of routers:

  broker = "root"

  port = 7000

  [[child]]

  name = "c1"

  [[channel]]

  from = "c1/b0"

  to = "c2/b0"

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
            help="After the loss of a journal, or with an older copy: a term above the one that "
            "routers obey. Make sure that no other broker of this cloud is alive.",
            show_default=False,
        ),
    ] = 0,
) -> None:
    console, errors = Console(), Console(stderr=True)

    def on_ready(line: Line) -> None:
        print_plainly(console, json_text.dumps(line) if json else _line_text(line))

    def on_message(text: str) -> None:
        print_plainly(errors, text)

    plan = replace(plan_of(file), term_min=begin_at_term)
    if isinstance(plan, BrokerPlan):
        run_broker(plan, on_ready=on_ready, on_message=on_message)
        text_of_end = f"broker of cloud {plan.name} ended"
    else:
        run_tree_broker(plan, on_ready=on_ready, on_message=on_message)
        text_of_end = f"broker {plan.name} ended"
    ended = {"state": "ended", "broker": plan.name}
    print_plainly(console, json_text.dumps(ended) if json else text_of_end)


def plan_of(file: Path) -> BrokerPlan | TreePlan:
    """A leaf broker where the file names a cloud, one above others where it names a broker."""
    document = document_of(read_text(file, hint=HINT), file=str(file))
    if "broker" in document:
        return load_tree_broker(file)
    if "cloud" not in document:
        hint = 'write cloud = "…" for a broker with routers, or broker = "…" for one above brokers'
        raise complaint(str(file), "cloud", "missing", hint=hint)
    return load_broker(file)


def _line_text(line: Line) -> str:
    if line["state"] == STANDING_BY:
        return f"another process is in charge as broker {line['broker']}; this one stands by"
    if line["state"] == WAITING:
        return f"broker {line['broker']} waits for its database: {line['reason']}"
    host, port = line["address"]
    if "name_service" in line:
        text = (
            f"broker of cloud {line['broker']} ready on {host} port {port}, "
            f"names on port {line['name_service'][1]}"
        )
    else:
        text = f"broker {line['broker']} ready on {host} port {port}"
    return f"{text}; metrics on port {line['metrics'][1]}" if "metrics" in line else text
