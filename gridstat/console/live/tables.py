"""The live tables of `gridstat up`, drawn from figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gridstat.console.live.figures import GridFigures, Latency

UNITS = {
    "voltage-magnitude": ("V", 0),
    "voltage-angle": ("°", 2),
    "frequency": ("Hz", 4),
    "frequency-change": ("Hz/s", 4),
}


def live_tables(figures: GridFigures, *, name: str, note: str = "") -> Group:
    head = Text.assemble(
        (name, "bold"), f"   {clock(figures.running_s)}   ", ("Ctrl-C ends it", "dim")
    )
    tables = (routers_table(figures), subscribers_table(figures), pmus_table(figures))
    return Group(head, *tables, *([Text(note, style="yellow")] if note else ()))


def routers_table(figures: GridFigures) -> Table:
    table = _table("status router", "in/s", "out/s", "queued", "p50 µs", "p99 µs")
    table.add_column("drops", justify="left", ratio=1)
    for router in figures.routers:
        table.add_row(
            router.name,
            f"{router.in_per_s:,.0f}",
            f"{router.out_per_s:,.0f}",
            str(router.queued),
            *latency_cells(router.latency),
            drops_cell(router.drops),
        )
    return table


def subscribers_table(figures: GridFigures) -> Table:
    names = ("subscriber", "every", "promised/s", "got/s", "p50 µs", "p99 µs", "lost", "dup.")
    table = _table(*names)
    table.add_column("drops", justify="left", ratio=1)
    for subscriber in figures.subscribers:
        table.add_row(
            subscriber.name,
            str(subscriber.every),
            f"{subscriber.expected_per_s:,.1f}",
            f"{subscriber.got_per_s:,.1f}",
            *latency_cells(subscriber.latency),
            _alarming(subscriber.lost),
            _alarming(subscriber.duplicates),
            drops_cell(subscriber.drops),
        )
    return table


def pmus_table(figures: GridFigures) -> Table:
    table = _table("PMU", "frames/s")
    table.add_column("newest values", justify="left", ratio=1)
    for pmu in figures.pmus:
        values = "   ".join(value_text(name, value) for name, value in pmu.values.items())
        table.add_row(pmu.name, f"{pmu.per_s:g}", values)
    return table


def latency_cells(latency: Latency) -> tuple[str, str]:
    return number_or_dash(latency.us_p50), number_or_dash(latency.us_p99)


def number_or_dash(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def drops_cell(drops: Mapping[str, int]) -> Text:
    if not drops:
        return Text("none", style="green")
    return Text(", ".join(f"{reason} {count:,}" for reason, count in drops.items()), style="red")


def value_text(name: str, value: float) -> str:
    unit, digits = UNITS.get(name, ("", 3))
    return f"{value:,.{digits}f} {unit}"


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02d}:{rest:02d}"


def _alarming(count: int) -> Text:
    return Text(f"{count:,}", style="red" if count else "green")


def _table(first: str, *numbers: str) -> Table:
    table = Table(expand=True, pad_edge=False)
    table.add_column(first, no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table
