"""`gridstat subscribe`: a subscriber for one variable or pattern, from a terminal."""

from __future__ import annotations

import json as json_text
import time
from collections import deque
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from gridstat.console.access import load_access
from gridstat.console.cli.attaching import attached
from gridstat.console.cli.command_errors import print_plainly
from gridstat.console.cli.figures import milliseconds
from gridstat.console.cli.options import (
    COUNT_MAX,
    LATENCY_MS_MAX,
    SECONDS_MAX,
    AsJson,
    Edges,
    EndPoint,
    Folder,
    Security,
)
from gridstat.console.config.cloud_grid import period_of
from gridstat.endpoint.options import qos
from gridstat.endpoint.subscriber import read_decoded
from gridstat.model.channel_security import HOP
from gridstat.model.cloud import is_pattern
from gridstat.model.errors import Misuse
from gridstat.model.path_label import path_label
from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.endpoint.change import Change
    from gridstat.endpoint.change_stream import ChangeStream
    from gridstat.endpoint.connection import Connection
    from gridstat.endpoint.delivery import Delivery
    from gridstat.endpoint.flooded import FloodedEvent
    from gridstat.endpoint.pattern import PatternSubscription
    from gridstat.endpoint.subscriber import Subscription
    from gridstat.model.qos import QosRequest
    from gridstat.model.rate_law import Period

HELP = """Subscribe to a variable, or to all that a pattern stands for, and print what arrives.

Ends with Ctrl-C, after --count events or --seconds, with the ledger of each subscription. With
--flooded and no name it prints all that floods at its edges, without a contract. What becomes of
its contracts and edges (moved, lowered, broken, purged, restored, edge_lost) is printed as well.

Examples:

  gridstat subscribe c1/hill/pmu-1/frequency

  gridstat subscribe 'c1/*/*/frequency' --rate 5/s --redundancy 2 --latency-ms 50 --json

  gridstat subscribe --flooded --seconds 10
"""
POLL_S = 0.05
KEEP_EVENTS = 65_536
NO_MATCH_AFTER_S = 2.0
"""Time without a match after which a pattern is reported as unmatched."""


def subscribe(
    name: Annotated[
        str, typer.Argument(help="A full name or a pattern (* one part, ** all).")
    ] = "",
    rate: Annotated[str, typer.Option("--rate", help="At most so often: 10/s; all if empty.")] = "",
    latency_ms: Annotated[
        float, typer.Option("--latency-ms", min=0.001, max=LATENCY_MS_MAX)
    ] = 2_000.0,
    redundancy: Annotated[int, typer.Option("--redundancy", min=1, max=4)] = 1,
    count: Annotated[
        int, typer.Option("--count", min=0, max=COUNT_MAX, help="Events; 0: no end.")
    ] = 0,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.0, max=SECONDS_MAX, help="0: no end.")
    ] = 0.0,
    end_point: EndPoint = "",
    flooded: Annotated[bool, typer.Option("--flooded", help="All that floods.")] = False,
    edge: Edges = None,
    security: Security = HOP,
    folder: Folder = None,
    json: AsJson = False,
) -> None:
    if flooded == bool(name):
        raise Misuse(
            "name a variable, or ask for --flooded, and not both",
            hint="gridstat subscribe NAME, or gridstat subscribe --flooded",
        )
    access = load_access(folder)
    quality = qos(latency_ms=latency_ms, redundancy=redundancy)
    if rate:
        quality = qos(interval=_interval(rate), latency_ms=latency_ms, redundancy=redundancy)
    console = Console()
    with attached(access, end_point, edge, security) as grid:
        printer = Printer(console, as_json=json, changes=grid.changes())
        if flooded:
            printer.begin_flooded(grid)
        else:
            printer.begin(grid, name, quality)
        deadline_s = time.monotonic() + seconds if seconds else float("inf")
        try:
            while time.monotonic() < deadline_s and (not count or printer.printed < count):
                printer.print_some(count)
        except KeyboardInterrupt:
            pass
        printer.print_ledgers()


class Printer:
    """Prints the events of all subscriptions and their changes, and in the end their ledgers."""

    def __init__(
        self,
        console: Console,
        *,
        as_json: bool,
        changes: ChangeStream | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._as_json = as_json
        self._changes = changes
        self._clock = clock
        self._subscriptions: list[Subscription] = []
        self._flooded: deque[FloodedEvent] = deque(maxlen=KEEP_EVENTS)
        self._pattern: PatternSubscription | None = None
        self._silent_until_s = 0.0
        self.printed = 0

    def begin(self, grid: Connection, name: str, quality: QosRequest) -> None:
        if is_pattern(name):
            self._silent_until_s = self._clock() + NO_MATCH_AFTER_S
            self._pattern = grid.subscribe_pattern(
                name, self._add, qos=quality, keep_events=KEEP_EVENTS
            )
            for reason in self._pattern.missed:
                self._print_line({"is": "missed", "reason": reason}, reason)
        else:
            self._add(grid.subscribe(name, qos=quality, keep_events=KEEP_EVENTS))

    def _add(self, subscription: Subscription) -> None:
        self._subscriptions.append(subscription)
        contract = subscription.contract
        self._print_line(
            {
                "is": "granted",
                "name": subscription.name,
                "paths": len(contract.paths),
                "detection_ms": contract.detection_ms,
            },
            f"granted {subscription.name} over {len(contract.paths)} path(s), "
            f"predicted {milliseconds(contract.latency_us)}",
        )

    def begin_flooded(self, grid: Connection) -> None:
        """Subscribe to all floods; the events wait here until they are printed."""
        grid.subscribe_flooded(on_event=self._flooded.append)

    def print_some(self, count: int) -> None:
        """Print the events that have come, at most so many; wait a little if there are none."""
        self.print_changes()
        before = self.printed
        while self._flooded and not (count and self.printed >= count):
            found = self._flooded.popleft()
            self._print_event(found.name, found.delivery)
        for subscription in tuple(self._subscriptions):
            for event in read_decoded(subscription):
                if count and self.printed >= count:
                    return
                self._print_event(subscription.name, event)
        if self.printed == before:
            if self._clock() >= self._silent_until_s:
                self._print_unmatched("no variable matches {} yet, waiting")
                self._silent_until_s = float("inf")
            time.sleep(POLL_S)

    def _print_unmatched(self, text: str) -> None:
        """Print that a pattern has no match, if so."""
        if self._pattern is not None and not self._subscriptions:
            report = {"is": "unmatched", "pattern": self._pattern.pattern}
            self._print_line(report, text.format(self._pattern.pattern))

    def _print_event(self, name: str, event: Delivery) -> None:
        self.printed += 1
        value, created_ns = event.value, event.created_ns
        latency_ns = event.received_ns - created_ns
        facts = {"name": name, "value": value, "created_ns": created_ns, "latency_ns": latency_ns}
        text = f"{created_ns / NS_PER_S:.6f} {name} {value} ({latency_ns * 1e-6:.3f} ms)"
        self._print_line(facts, text)

    def print_changes(self) -> None:
        """Print changes of contracts and edges since the last call."""
        while self._changes is not None and (change := self._changes.next(timeout_s=0)) is not None:
            self._print_line({"is": "change", **change_facts(change)}, change_text(change))

    def print_ledgers(self) -> None:
        self._print_unmatched("no variable has matched {}")
        self.print_changes()
        for subscription in self._subscriptions:
            ledger = asdict(subscription.ledger())
            counted = ", ".join(f"{key} {ledger[key]}" for key in ledger if key != "paths")
            report = f"ledger of {subscription.name}: {counted}"
            self._print_line({"is": "ledger", "name": subscription.name, **ledger}, report)

    def _print_line(self, line: dict[str, Any], text: str) -> None:
        print_plainly(self._console, json_text.dumps(line, default=str) if self._as_json else text)


def _interval(rate: str) -> Period:
    try:
        return period_of(rate)
    except (AttributeError, ValueError):
        raise Misuse(f"{rate!r} is not a rate", hint="write 30/s, or 1/5s") from None


def change_facts(change: Change) -> dict[str, Any]:
    """Return a change for JSON; of its contract, the paths and which of them are down."""
    facts: dict[str, Any] = {
        "kind": str(change.kind),
        "subject": str(change.subject),
        "name": change.name,
        "at_ns": change.at_ns,
        "reason": change.reason,
        "code": change.code,
        "is_over": change.is_over,
    }
    if change.edges_left is not None:
        facts["edges_left"] = change.edges_left
    if change.policed:
        facts["policed"] = dict(change.policed)
    if change.contract is not None:
        paths = change.contract.paths
        facts["paths"] = [list(path.routers) for path in paths]
        facts["path_labels"] = [path_label(path.routers, path.channel_names) for path in paths]
        facts["paths_down"] = list(change.contract.paths_down or ())
    return facts


def change_text(change: Change) -> str:
    """Return a line, as `1718.250000 lowered subscription c1/a/v: path 2 is down`, and the code."""
    code = f" (code {change.code})" if change.code else ""
    # Text from outside must not begin a new line or control the terminal.
    reason = "".join(each if each.isprintable() else "?" for each in change.reason)
    seconds = f"{change.at_ns / NS_PER_S:.6f}"
    return f"{seconds} {change.kind} {change.subject} {change.name}: {reason}{code}"
