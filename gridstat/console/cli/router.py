"""`gridstat router`: one managed status router, in the foreground."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from gridstat.console.cli.command_errors import print_plainly
from gridstat.console.cli.options import PORT_MAX
from gridstat.console.config.router_file import load_router, router_from_arguments
from gridstat.console.daemons.router_daemon import run_router
from gridstat.model.cloud import RouterRole

if TYPE_CHECKING:
    from gridstat.console.config.router_file import RouterPlan
    from gridstat.console.daemons.router_daemon import Line

HELP = """Run one status router, managed by its leaf broker, in the foreground.

For a service manager: it prints when it is ready (and tells systemd), SIGTERM and Ctrl-C drain and
end it, SIGHUP takes up new certificates, broker addresses and log settings. It forwards with or
without its broker; channels and paths come from there.

A file to begin from:

  name = "c1/e0"

  role = "edge"                        # or inner, border

  certificates = "certificates"        # made by `gridstat certificates`

  [broker]

  addresses = ["127.0.0.1:7100"]       # or name_service = [...]

  [listen]

  host = "127.0.0.1"                   # ports of 0 are chosen, and reported

Examples:

  gridstat router e0.toml

  gridstat router e0.toml --json

  gridstat router --name c1/e0 --role edge --broker 127.0.0.1:7100
"""


def router(
    file: Annotated[
        Path | None, typer.Argument(help="The router's file (TOML); or say it by options.")
    ] = None,
    name: Annotated[str, typer.Option("--name", "-n", help="Its full name.")] = "c1/e0",
    role: Annotated[RouterRole, typer.Option("--role", help="Its role.")] = RouterRole.EDGE,
    broker: Annotated[
        list[str] | None, typer.Option("--broker", "-b", help="HOST:PORT; may be repeated.")
    ] = None,
    name_service: Annotated[
        list[str] | None, typer.Option("--name-service", help="HOST:PORT; may be repeated.")
    ] = None,
    certificates: Annotated[
        Path, typer.Option("--certificates", "-c", help="Where its certificate is.")
    ] = Path("certificates"),
    host: Annotated[str, typer.Option("--host", help="Where it listens.")] = "127.0.0.1",
    data_port: Annotated[
        int, typer.Option("--data-port", "-p", min=0, max=PORT_MAX, help="0: any free one.")
    ] = 0,
    json: Annotated[
        bool, typer.Option("--json", help="Readiness and the last report as JSON lines.")
    ] = False,
) -> None:
    def load() -> RouterPlan:
        if file is not None:
            return load_router(file)
        return router_from_arguments(
            {
                "name": name,
                "role": role.value,
                "certificates": str(certificates),
                "broker": {"addresses": broker or [], "name_service": name_service or []},
                "listen": {"host": host, "data_port": data_port},
            }
        )

    console, errors = Console(), Console(stderr=True)

    def on_ready(line: Line) -> None:
        print_plainly(console, json_text.dumps(line) if json else _line_text(line))

    report = run_router(
        load,
        on_ready=on_ready,
        on_message=lambda text: print_plainly(errors, text),
    )
    if json:
        print_plainly(console, json_text.dumps({"state": "ended", **report}))
    else:
        counted = ", ".join(f"{key} {count:,}" for key, count in report["counters"].items())
        print_plainly(console, f"router {report['router']} ended: {counted}")


def _line_text(line: Line) -> str:
    host, data_port, urgent_port = line["address"]
    command_host, command_port = line["command"]
    text = (
        f"{line['role']} router {line['router']} ready on {host}, data port {data_port}, urgent "
        f"port {urgent_port}; commands on {command_host} port {command_port}"
    )
    return f"{text}; metrics on port {line['metrics'][1]}" if "metrics" in line else text
