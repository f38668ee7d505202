"""A survey as tables: routers, channels, and each subscription with its ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from gridstat.console.fitted_table import Column, FittedTable
from gridstat.model.channel_security import NONE
from gridstat.model.path_label import path_steps
from gridstat.net.command.endpoint_messages import LEDGER_COUNTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


RIGHT: Final = "right"
LEDGER_RANKS: Final = {"lost": 0, "delivered": 1, "late": 2, "expected": 3}
"""Counts of a ledger that come first; the other counts explain these."""


def survey_head(facts: Mapping[str, Any]) -> str:
    """A cloud's name, its broker's term, and how many there are of everything."""
    totals = ", ".join(f"{value:,} {key}" for key, value in sorted(facts["totals"].items()))
    return f"cloud {facts['cloud']}, term {facts['term']}: {totals}"


def survey_tables(facts: Mapping[str, Any]) -> dict[str, FittedTable]:
    """All tables of a survey, by what they show."""
    return {
        "routers": router_table(facts["routers"]),
        "channels": channel_table(facts["channels"]),
        "subscriptions": subscription_table(facts["subscriptions"]),
    }


def shown_of(shown: int, total: int) -> str:
    """Note for a survey that lists fewer subscriptions than there are."""
    return f"{shown:,} of {total:,} subscriptions are shown" if shown < total else ""


def router_table(routers: Iterable[dict[str, Any]]) -> FittedTable:
    table = FittedTable(
        Column("router"),
        Column("role", 6),
        Column("state", prose_min=12),
        Column("promised/s", 3, RIGHT),
        Column("of", 4, RIGHT),
        Column("variables", 5, RIGHT),
        Column("in", 2, RIGHT),
        Column("dropped", 1, RIGHT),
        Column("thread", 7),
    )
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
            thread_scheduling(counters),
        )
    return table


def thread_scheduling(counters: dict[str, int]) -> str:
    """Return the scheduling of the forwarding thread, which a router reports with its first
    counters."""
    priority = counters.get("fifo_priority")
    if priority is None:
        return ""
    return f"real-time {priority}" if priority else "ordinary"


def router_state(router: dict[str, Any]) -> str:
    if not router["is_up"]:
        return "DOWN"
    if not router["is_connected"]:
        return "forwarding without its broker"
    # A broker of the release before says nothing of refusals.
    if router.get("refusal"):
        return f"refuses its table ({router['refusals']}): {router['refusal']}"
    if router.get("refused_rows"):
        return f"refuses {router['refused_rows']:,} rows"
    return "in step" if router["in_step"] else "catching up"


def dropped(counters: dict[str, int]) -> int:
    """All that came in and was not to be: neither forwarded nor a redundant copy nor not due."""
    names = ("malformed", "unknown", "policed")
    return sum(value for name, value in counters.items() if name.startswith(names))


def channel_table(channels: Iterable[dict[str, Any]]) -> FittedTable:
    table = FittedTable(
        Column("channel"),
        Column("state"),
        Column("promised B/s", 2, RIGHT),
        Column("of", 3, RIGHT),
        Column("variables", 5, RIGHT),
        Column("sent", 4, RIGHT),
        Column("lost %", 1, RIGHT),
        Column("security", 6),
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
            security_cell(channel.get("security", "")),
        )
    return table


def security_cell(security: str) -> Text:
    """Return the security of a channel; none is red, since anybody can read and forge there."""
    return Text(security, "bold red" if security == NONE else "")


def subscription_table(subscriptions: Iterable[dict[str, Any]]) -> FittedTable:
    table = FittedTable(
        Column("subscriber"),
        Column("variable"),
        Column("paths", 4, RIGHT),
        *(Column(name, LEDGER_RANKS.get(name, 5), RIGHT) for name in LEDGER_COUNTS),
        Column("worst path", 3, prose_min=24),
    )
    for subscription in subscriptions:
        ledger = subscription.get("ledger") or {}
        table.add_row(
            subscription["subscriber"],
            subscription["name"],
            str(len(subscription["paths"])),
            *(f"{ledger.get(name, 0):,}" if ledger else "–" for name in LEDGER_COUNTS),
            worst_path(ledger.get("paths", ())),
        )
    return table


def worst_path(paths: Iterable[dict[str, Any]]) -> str:
    """The open path that has lost the largest share, by the routers between its ends and the
    channels that have a name."""
    counted = [
        path for path in paths if path["is_open"] and path.get("is_counted", True) and path["lost"]
    ]
    if not counted:
        return ""
    worst = max(counted, key=lambda path: (_share_lost(path), path["name"]))
    inner = " ".join(path_steps(worst["routers"], worst.get("channel_names", ()))[1:-1])
    share = 100 * _share_lost(worst)
    return f"{worst['name']}{inner and f' ({inner})'}: {worst['lost']:,} lost, {share:.2f} %"


def _share_lost(path: dict[str, Any]) -> float:
    """Return the lost share, at most 1 for any numbers that an end-point reports."""
    return float(path["lost"] / max(path["lost"], path["expected"]))
