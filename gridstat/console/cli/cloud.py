"""`gridstat cloud`: change a running cloud, router by router and channel by channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from gridstat.console.access import load_access
from gridstat.console.cli.failure import print_plainly, telling
from gridstat.console.cli.options import Folder
from gridstat.console.operator_desk import ask_once
from gridstat.model.cloud import EventChannel, Router, RouterRole
from gridstat.model.identifiers import ChannelId
from gridstat.net.command.messages import AddChannel, AddRouter, RemoveChannel, RemoveRouter

if TYPE_CHECKING:
    from gridstat.net.command.messages import OperatorCommand

HELP = """Add routers and event channels to a running cloud, or take them out of it.

What contracts depend on cannot be removed before they end.

Examples:

  gridstat cloud add-router c1/north-3 --events-per-s 500000

  gridstat cloud add-channel c1/north-2 c1/north-3 --bandwidth 2000000 --latency-ms 1.5

  gridstat cloud remove-channel c1/north-2 c1/north-3
"""
US_PER_MS = 1_000

app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)

From = Annotated[str, typer.Argument(help="The router where the channel begins.")]
To = Annotated[str, typer.Argument(help="The router where it ends.")]
Name = Annotated[str, typer.Argument(help="The router's full name, as c1/north-3.")]


@app.command("add-router", help="Make a router known; start it with `gridstat router FILE`.")
@telling
def add_router(
    name: Name,
    role: Annotated[RouterRole, typer.Option("--role")] = RouterRole.INNER,
    events_per_s: Annotated[int, typer.Option("--events-per-s", min=1)] = 1_000_000,
    folder: Folder = None,
) -> None:
    _do(folder, AddRouter(request_id=0, router=Router(name, role, events_per_s)), f"added {name}")


@app.command("remove-router", help="Forget a router that no contract uses.")
@telling
def remove_router(name: Name, folder: Folder = None) -> None:
    _do(folder, RemoveRouter(request_id=0, name=name), f"removed {name}")


@app.command("add-channel", help="Open a one-way event channel between two routers.")
@telling
def add_channel(
    from_router: From,
    to_router: To,
    bandwidth: Annotated[int, typer.Option("--bandwidth", min=0, help="Bytes/s; 0: any.")] = 0,
    latency_ms: Annotated[float, typer.Option("--latency-ms", min=0.0)] = 0.0,
    folder: Folder = None,
) -> None:
    channel = EventChannel(
        channel_id=ChannelId(0),
        from_router=from_router,
        to_router=to_router,
        bandwidth_bytes_per_s=bandwidth,
        latency_us=round(latency_ms * US_PER_MS),
    )
    _do(folder, AddChannel(request_id=0, channel=channel), f"added {channel.label}")


@app.command("remove-channel", help="Close an event channel that no contract uses.")
@telling
def remove_channel(from_router: From, to_router: To, folder: Folder = None) -> None:
    command = RemoveChannel(request_id=0, from_router=from_router, to_router=to_router)
    _do(folder, command, f"removed {from_router}→{to_router}")


def _do(folder: Folder, command: OperatorCommand, told: str) -> None:
    ask_once(load_access(folder), command)
    print_plainly(Console(), told)
