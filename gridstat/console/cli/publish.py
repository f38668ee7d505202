"""`gridstat publish`: a publisher for one variable, from a terminal or a pipe."""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from gridstat.console.access import load_access
from gridstat.console.cli.attaching import attached
from gridstat.console.cli.command_errors import print_plainly
from gridstat.console.cli.options import COUNT_MAX, Edges, Folder, Security
from gridstat.console.config.cloud_grid import period_of
from gridstat.console.simulation.schedule import instant_ns
from gridstat.model.channel_security import HOP
from gridstat.model.errors import Misuse
from gridstat.model.rate_law import NS_PER_S, Period, slot_of
from gridstat.model.stamp_law import DELAY_MS_DEFAULT, DELAY_MS_MAX, NS_PER_MS
from gridstat.model.status import BuiltinType

if TYPE_CHECKING:
    from collections.abc import Iterator

HELP = """Publish one variable: a sine wave, or numbers from standard input, one a line.

NAME is the variable's full name; the end-point is all of it but the last part, or the part of it
that --as names. Each value is stamped at its instant of the period. Ctrl-C, the end of the input
or --count ends it.

Examples:

  gridstat publish c1/me/wave --rate 10/s

  seq 100 | gridstat publish c1/me/counter --rate 1/s --stdin
"""


def publish(
    name: Annotated[str, typer.Argument(help="The variable's full name, as c1/me/wave.")],
    rate: Annotated[str, typer.Option("--rate", help="How often: 30/s, or 1/5s.")] = "1/s",
    count: Annotated[
        int, typer.Option("--count", min=0, max=COUNT_MAX, help="Values; 0: no end.")
    ] = 0,
    stdin: Annotated[bool, typer.Option("--stdin", help="Values from standard input.")] = False,
    end_point: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="NAME",
            help="The end-point's full name; else all of the variable's but the last part.",
            show_default=False,
        ),
    ] = "",
    delay_ms: Annotated[
        int,
        typer.Option(
            "--delay-ms",
            min=DELAY_MS_DEFAULT,
            max=DELAY_MS_MAX,
            help="How old a value may be at the first router; more than the default needs a rule.",
        ),
    ] = DELAY_MS_DEFAULT,
    edge: Edges = None,
    security: Security = HOP,
    folder: Folder = None,
) -> None:
    end_point = publisher_of(name, end_point)
    period = _period(rate)
    console = Console(stderr=True)
    sent = failed = 0
    with attached(load_access(folder), end_point, edge, security) as grid:
        publication = grid.publish(name, BuiltinType.FLOAT64, period=period, delay_ms=delay_ms)
        print_plainly(console, f"publishing {name} as variable {publication.variable.variable_id}")
        slot = slot_of(time.time_ns(), period)
        try:
            for value in _numbers() if stdin else _wave():
                slot = next_slot(slot, time.time_ns(), period)
                created_ns = instant_ns(slot, period)
                time.sleep(max(0, created_ns - time.time_ns()) / NS_PER_S)
                is_sent = publication.send(value, created_ns=created_ns)
                sent, failed = sent + is_sent, failed + (not is_sent)
                if count and sent + failed >= count:
                    break
        except KeyboardInterrupt:
            pass
        policed = publication.policed
    policed_text = f", stopped by edge routers {policed:,}" if policed else ""
    print_plainly(
        console, f"sent {sent:,}, not sent for want of an edge router {failed:,}{policed_text}"
    )


def publisher_of(name: str, end_point: str = "") -> str:
    """The end-point that publishes a variable: the named one, if the variable lies below it."""
    above, slash, _ = name.rpartition("/")
    if not slash:
        raise Misuse(f"{name} has no publisher in it", hint="write it as c1/me/wave")
    if end_point and not name.startswith(f"{end_point}/"):
        raise Misuse(
            f"{end_point} cannot publish {name}: it does not lie below it",
            hint=f"publish {end_point}/{name.rpartition('/')[2]}, or leave out --as",
        )
    return end_point or above


def next_slot(slot: int, now_ns: int, period: Period) -> int:
    """The one after this; after a pause of the input the one that comes next, not a past one.

    The first router takes no value whose instant has long passed.
    """
    nearest = slot_of(now_ns, period)
    is_past = instant_ns(nearest, period) < now_ns - DELAY_MS_DEFAULT * NS_PER_MS // 2
    return max(slot + 1, nearest + is_past)


def _period(rate: str) -> Period:
    try:
        return period_of(rate)
    except (AttributeError, ValueError):
        raise Misuse(f"{rate!r} is not a rate", hint="write 30/s, or 1/5s") from None


def _wave() -> Iterator[float]:
    number = 0
    while True:
        yield math.sin(number / 10)
        number += 1


def _numbers() -> Iterator[float]:
    for number, line in enumerate(sys.stdin, start=1):
        try:
            yield float(line)
        except ValueError:
            raise Misuse(
                f"line {number} of the input is {line.strip()[:40]!r}", hint="one number a line"
            ) from None
