"""`gridstat cloud`: change a running cloud, or the tree above it, part by part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from gridstat.console.access import load_access
from gridstat.console.cli.command_errors import print_plainly, reporting_errors
from gridstat.console.cli.options import Folder, Operator
from gridstat.console.operator_session import ask_once
from gridstat.model.cloud import EventChannel, Router, RouterRole, check_word, label_of_way
from gridstat.model.identifiers import ChannelId
from gridstat.net.command.messages import (
    AddChannel,
    AddNamedChannel,
    AddRouter,
    RemoveChannel,
    RemoveNamedChannel,
    RemoveRouter,
)
from gridstat.net.command.operator_messages import AddChild, RemoveChild

if TYPE_CHECKING:
    from gridstat.console.access import Access
    from gridstat.net.command.messages import OperatorCommand
    from gridstat.net.command.operator_messages import TreeCommand

HELP = """Add routers and event channels to a running cloud, or take them out of it.

What contracts depend on cannot be removed before they end. A channel between two clouds is asked of
the lowest broker above both; the folder has to tell of it.

Examples:

  gridstat cloud add-router c1/north-3 --events-per-s 500000

  gridstat cloud add-channel c1/north-2 c1/north-3 --bandwidth 2000000 --latency-ms 1.5

  gridstat cloud remove-channel c1/north-2 c1/north-3

  gridstat cloud add-channel c1/north-2 c1/north-3 --name west --risk duct-7

  gridstat cloud add-child root c3

  gridstat cloud add-channel c1/north-2 c3/gate-a --latency-ms 4
"""
US_PER_MS = 1_000
EVENTS_PER_S_MAX = 10**9
BANDWIDTH_MAX = 10**12
CHANNEL_MS_MAX = 60_000.0
"""Longest latency of a channel. These three bounds are the same as in a cloud's file."""

app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)

From = Annotated[str, typer.Argument(help="The router where the channel begins.")]
To = Annotated[str, typer.Argument(help="The router where it ends.")]
ChannelName = Annotated[
    str, typer.Option("--name", help="Tells it from others between the same two routers.")
]
Above = Annotated[str, typer.Argument(help="The broker above, as root.")]
Below = Annotated[str, typer.Argument(help="The child: a broker's name, or a cloud's.")]
Name = Annotated[str, typer.Argument(help="The router's full name, as c1/north-3.")]


@app.command("add-router", help="Make a router known; start it with `gridstat router FILE`.")
@reporting_errors
def add_router(
    name: Name,
    role: Annotated[RouterRole, typer.Option("--role")] = RouterRole.INNER,
    events_per_s: Annotated[
        int, typer.Option("--events-per-s", min=1, max=EVENTS_PER_S_MAX)
    ] = 1_000_000,
    folder: Folder = None,
    who: Operator = "",
) -> None:
    command = AddRouter(request_id=0, router=Router(name, role, events_per_s))
    _do(load_access(folder).owner_of(name), command, f"added {name}", who)


@app.command("remove-router", help="Forget a router that no contract uses.")
@reporting_errors
def remove_router(name: Name, folder: Folder = None, who: Operator = "") -> None:
    command = RemoveRouter(request_id=0, name=name)
    _do(load_access(folder).owner_of(name), command, f"removed {name}", who)


@app.command("add-channel", help="Open a one-way event channel between two routers.")
@reporting_errors
def add_channel(
    from_router: From,
    to_router: To,
    bandwidth: Annotated[
        int, typer.Option("--bandwidth", min=0, max=BANDWIDTH_MAX, help="Bytes/s; 0: any.")
    ] = 0,
    latency_ms: Annotated[float, typer.Option("--latency-ms", min=0.0, max=CHANNEL_MS_MAX)] = 0.0,
    name: ChannelName = "",
    risk: Annotated[
        list[str] | None,
        typer.Option("--risk", help="What it can fail with, as duct-7; as often as needed."),
    ] = None,
    to_address: Annotated[
        str,
        typer.Option("--to-address", help="Where its end is, if not where it listens."),
    ] = "",
    folder: Folder = None,
    who: Operator = "",
) -> None:
    channel = EventChannel(
        channel_id=ChannelId(0),
        from_router=from_router,
        to_router=to_router,
        bandwidth_bytes_per_s=bandwidth,
        latency_us=round(latency_ms * US_PER_MS),
        name=name,
        risks=tuple(risk or ()),
        to_host=to_address,
    )
    command: OperatorCommand = AddChannel(request_id=0, channel=channel)
    if name or risk or to_address:  # What an older broker ignores comes by what it does not know.
        command = AddNamedChannel(request_id=0, channel=channel)
    owner = load_access(folder).owner_of(from_router, to_router)
    _do(owner, command, added_text(channel), who)


@app.command("remove-channel", help="Close an event channel that no contract uses.")
@reporting_errors
def remove_channel(
    from_router: From,
    to_router: To,
    name: ChannelName = "",
    folder: Folder = None,
    who: Operator = "",
) -> None:
    command: OperatorCommand = RemoveChannel(0, from_router, to_router)
    if name:
        command = RemoveNamedChannel(0, from_router, to_router, check_word(name, "channel name"))
    owner = load_access(folder).owner_of(from_router, to_router)
    _do(owner, command, f"removed {label_of_way((from_router, to_router, name))}", who)


@app.command("add-child", help="Let one more broker join below a QoS broker.")
@reporting_errors
def add_child(broker: Above, name: Below, folder: Folder = None, who: Operator = "") -> None:
    access = load_access(folder).above_clouds(broker)
    _do(access, AddChild(request_id=0, name=name), f"{name} may join {broker}", who)


@app.command("remove-child", help="Forget a child that no contract crosses.")
@reporting_errors
def remove_child(broker: Above, name: Below, folder: Folder = None, who: Operator = "") -> None:
    access = load_access(folder).above_clouds(broker)
    _do(access, RemoveChild(request_id=0, name=name), f"removed {name} from {broker}", who)


def added_text(channel: EventChannel) -> str:
    """Return the text for an added channel. Between clouds the owner knows only the clouds of the
    routers, so the channel may have to wait for them."""
    clouds = {router.partition("/")[0] for router in (channel.from_router, channel.to_router)}
    waits = "; it opens once both routers are there: `gridstat tree`" if len(clouds) > 1 else ""
    return f"added {channel.label}{waits}"


def _do(access: Access, command: OperatorCommand | TreeCommand, text: str, who: str) -> None:
    ask_once(access, command, who=who)
    print_plainly(Console(), text)
