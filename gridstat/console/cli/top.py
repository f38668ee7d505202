"""`gridstat top`: a cloud at a glance, again and again: routers, channels, contracts, ledgers."""

from __future__ import annotations

import asyncio
import json as json_text
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from gridstat.console.access import load_access
from gridstat.console.cli.failure import print_plainly
from gridstat.console.cli.options import SECONDS_MAX, AsJson, Folder, Operator
from gridstat.console.live.tables import survey_tables
from gridstat.console.operator_desk import operator_desk
from gridstat.model.errors import GridStatError, Misuse
from gridstat.net.command.messages import Survey

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gridstat.console.access import Access
    from gridstat.console.operator_desk import OperatorDesk

HELP = """Watch a cloud: routers and channels with what is promised and what is carried, and the
ledger of each subscription. On a terminal until Ctrl-C; through a pipe, one survey.

Examples:

  gridstat top

  gridstat top --once --json

  gridstat top --cloud c2
"""


def top(
    folder: Folder = None,
    cloud: Annotated[
        str, typer.Option("--cloud", help="Another cloud of the folder's tree.", show_default=False)
    ] = "",
    once: Annotated[bool, typer.Option("--once", help="One survey, then end.")] = False,
    interval_s: Annotated[
        float,
        typer.Option("--interval", "--interval-s", min=0.1, max=SECONDS_MAX, help="Seconds."),
    ] = 1.0,
    who: Operator = "",
    json: AsJson = False,
) -> None:
    console = Console()
    access = _cloud_of(load_access(folder), cloud)
    is_once = once or json or not console.is_terminal
    try:
        asyncio.run(
            _watch(access, console, interval_s=interval_s, is_once=is_once, as_json=json, who=who)
        )
    except KeyboardInterrupt:
        return


def _cloud_of(access: Access, cloud: str) -> Access:
    """The folder as seen from one of its clouds."""
    seen = access.beside(cloud or access.cloud)
    if cloud and seen.cloud != cloud:
        known = ", ".join(access.clouds) or access.cloud
        raise Misuse(f"the folder tells of no cloud {cloud}", hint=f"clouds: {known}")
    return seen


async def _watch(
    access: Access, console: Console, *, interval_s: float, is_once: bool, as_json: bool, who: str
) -> None:
    async with operator_desk(access, who) as desk:
        facts = check_cloud(await desk.ask(Survey(request_id=0)), access)
        if as_json:
            print_plainly(console, json_text.dumps(facts))
        elif is_once:
            console.print(survey_tables(facts))
        else:
            with Live(
                survey_tables(facts), console=console, auto_refresh=False, screen=True
            ) as live:
                while True:
                    await asyncio.sleep(interval_s)
                    live.update(await newest_tables(desk), refresh=True)


def check_cloud(facts: dict[str, Any], access: Access) -> dict[str, Any]:
    """The survey, if it is of a cloud; one above clouds has neither routers nor ledgers."""
    if "cloud" not in facts:
        raise Misuse(
            f"{access.cloud} is a broker above clouds, and `gridstat top` shows one cloud",
            hint=f"`gridstat tree` shows the brokers; clouds: {', '.join(access.clouds)}",
        )
    return facts


async def newest_tables(desk: OperatorDesk) -> RenderableType:
    """A survey, or why there is none: the broker may be starting again, just when one watches."""
    try:
        return survey_tables(await desk.ask(Survey(request_id=0)))
    except GridStatError as error:
        return Text(f"no survey: {error.args[0]}; asking again", style="yellow")
