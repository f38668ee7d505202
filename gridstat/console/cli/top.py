"""`gridstat top`: a cloud at a glance, again and again: routers, channels, contracts, ledgers."""

from __future__ import annotations

import asyncio
import json as json_text
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from gridstat.console.access import load_access
from gridstat.console.cli.command_errors import print_plainly
from gridstat.console.cli.options import SECONDS_MAX, AsJson, Folder, Operator
from gridstat.console.fitted_table import print_table
from gridstat.console.live.screen import Screen, has_screen
from gridstat.console.live.survey_tables import shown_of, survey_head, survey_tables
from gridstat.console.live.views import cloud_view
from gridstat.console.operator_session import open_operator_session
from gridstat.model.errors import GridStatError, Misuse
from gridstat.net.command.messages import Survey

if TYPE_CHECKING:
    from gridstat.console.access import Access
    from gridstat.console.operator_session import OperatorSession

HELP = """Watch a cloud: what is wrong, totals, then routers and channels with what is promised and
what is carried, and the ledger of each subscription.

On a terminal it is a screen of pages, until q or Ctrl-C: n or space shows the next page, p the one
before, g the first, G the last. A wider terminal shows more columns, a higher one more rows.
Through a pipe, and with --once, all tables of one survey.

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
    is_once = once or json or not has_screen(console)
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
        raise Misuse(f"the folder has no cloud {cloud}", hint=f"clouds: {known}")
    return seen


async def _watch(
    access: Access,
    console: Console,
    *,
    interval_s: float,
    is_once: bool,
    as_json: bool,
    who: str,
) -> None:
    async with open_operator_session(access, who) as session:
        facts = check_cloud(await session.ask(Survey(request_id=0)), access)
        if as_json:
            print_plainly(console, json_text.dumps(facts))
        elif is_once:
            print_survey(console, facts)
        else:
            await _follow(session, console, facts, interval_s=interval_s)


def print_survey(console: Console, facts: dict[str, Any]) -> None:
    """All of a survey, table below table."""
    print_plainly(console, survey_head(facts))
    for table in survey_tables(facts).values():
        print_table(console, table)
    if shown := shown_of(len(facts["subscriptions"]), facts["totals"]["subscriptions"]):
        print_plainly(console, shown)


async def _follow(
    session: OperatorSession, console: Console, facts: dict[str, Any], *, interval_s: float
) -> None:
    """A screen of the newest survey; of the last one, if the broker is just starting again."""
    screen = Screen(console, cloud_view(facts))
    try:
        while True:
            await asyncio.sleep(interval_s)
            try:
                facts = await session.ask(Survey(request_id=0))
            except GridStatError as error:
                problem = f"no survey: {error.args[0]}; asking again, this is the last one"
                screen.show(cloud_view(facts, problem))
            else:
                screen.show(cloud_view(facts))
    finally:
        screen.close()


def check_cloud(facts: dict[str, Any], access: Access) -> dict[str, Any]:
    """The survey, if it is of a cloud; one above clouds has neither routers nor ledgers."""
    if "cloud" not in facts:
        raise Misuse(
            f"{access.cloud} is a broker above clouds, and `gridstat top` shows one cloud",
            hint=f"`gridstat tree` shows the brokers; clouds: {', '.join(access.clouds)}",
        )
    return facts
