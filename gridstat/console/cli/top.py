"""`gridstat top`: a cloud at a glance, again and again: routers, channels, contracts, ledgers."""

from __future__ import annotations

import asyncio
import json as json_text
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gridstat.console.access import load_access
from gridstat.console.cli.failure import print_plainly
from gridstat.console.cli.options import AsJson, Folder
from gridstat.console.operator_desk import operator_desk
from gridstat.net.command.messages import Survey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.console.access import Access

HELP = """Watch a cloud: routers and channels with what is promised and what is carried, and the
ledger of each subscription. On a terminal until Ctrl-C; through a pipe, one survey.

Examples:

  gridstat top

  gridstat top --once --json
"""
LEDGER = ("expected", "delivered", "late", "lost", "duplicate", "extrapolated", "unknown")


def top(
    folder: Folder = None,
    once: Annotated[bool, typer.Option("--once", help="One survey, then end.")] = False,
    interval_s: Annotated[float, typer.Option("--interval", min=0.1, help="Seconds.")] = 1.0,
    json: AsJson = False,
) -> None:
    console = Console()
    access = load_access(folder)
    is_once = once or json or not console.is_terminal
    try:
        asyncio.run(_watch(access, console, interval_s=interval_s, is_once=is_once, as_json=json))
    except KeyboardInterrupt:
        return


async def _watch(
    access: Access, console: Console, *, interval_s: float, is_once: bool, as_json: bool
) -> None:
    async with operator_desk(access) as desk:
        facts = await desk.ask(Survey(request_id=0))
        if as_json:
            print_plainly(console, json_text.dumps(facts))
        elif is_once:
            console.print(tables(facts))
        else:
            with Live(tables(facts), console=console, auto_refresh=False, screen=True) as live:
                while True:
                    await asyncio.sleep(interval_s)
                    live.update(tables(await desk.ask(Survey(request_id=0))), refresh=True)


def tables(facts: dict[str, Any]) -> Group:
    """All tables, for a terminal."""
    totals = ", ".join(f"{value:,} {key}" for key, value in sorted(facts["totals"].items()))
    head = Text(f"cloud {facts['cloud']}, term {facts['term']}: {totals}")
    return Group(
        head,
        router_table(facts["routers"]),
        channel_table(facts["channels"]),
        subscription_table(facts["subscriptions"]),
    )


def router_table(routers: Iterable[dict[str, Any]]) -> Table:
    table = Table("router", "role", "state", "promised/s", "of", "variables", "in", "dropped")
    for router in routers:
        counters = router["counters"]
        table.add_row(
            router["name"],
            router["role"],
            router_state(router),
            f"{router['events_per_s']:,.0f}",
            f"{router['events_per_s_max']:,}",
            f"{router['variables']:,}",
            f"{counters.get('in', 0):,}",
            f"{dropped(counters):,}",
        )
    return table


def router_state(router: dict[str, Any]) -> str:
    if not router["is_up"]:
        return "DOWN"
    if not router["is_connected"]:
        return "forwarding without its broker"
    return "in step" if router["in_step"] else "catching up"


def dropped(counters: dict[str, int]) -> int:
    """All that came in and was not to be: neither forwarded nor a redundant copy nor not due."""
    names = ("malformed", "unknown", "policed")
    return sum(value for name, value in counters.items() if name.startswith(names))


def channel_table(channels: Iterable[dict[str, Any]]) -> Table:
    table = Table(
        "channel", "state", "promised B/s", "of", "variables", "sent", "lost %", "version"
    )
    for channel in channels:
        state = "up" if channel["is_up"] else "DOWN"
        if channel["is_back_pressured"]:
            state += ", congested"
        table.add_row(
            channel["label"],
            state,
            f"{channel['bytes_per_s']:,.0f}",
            f"{channel['bandwidth_bytes_per_s']:,}" if channel["bandwidth_bytes_per_s"] else "–",
            f"{channel['variables']:,}",
            f"{channel['counters'].get('sent', 0):,}",
            f"{100 * channel['loss_ratio']:.2f}",
            str(channel["datagram_version"]),
        )
    return table


def subscription_table(subscriptions: Iterable[dict[str, Any]]) -> Table:
    table = Table("subscriber", "variable", "paths", *LEDGER)
    for subscription in subscriptions:
        ledger = subscription["ledger"] or {}
        table.add_row(
            subscription["subscriber"],
            subscription["name"],
            str(len(subscription["paths"])),
            *(f"{ledger.get(name, 0):,}" if ledger else "–" for name in LEDGER),
        )
    return table
