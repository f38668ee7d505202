"""Rates are differences, percentiles come from what was added, and the closing account is exact."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from gridstat.console.config import grid_from_text
from gridstat.console.live.closing import closing_account
from gridstat.console.live.figures import (
    KERNEL_DROPPED,
    ROUTER_DROPS,
    GridFigures,
    grid_figures,
    nominal_per_s,
    quantile_us,
    since,
)
from gridstat.console.live.plain import json_line, text_line
from gridstat.console.live.tables import live_tables
from gridstat.console.processes.lines import Line, LineBuffer, encoded
from gridstat.console.processes.supervisor import Observation
from gridstat.console.static_plan import static_plan

if TYPE_CHECKING:
    from gridstat.console.grid import Grid

TEXT = """
[[router]]
name = "west"
[[pmu]]
name = "a/b/c"
router = "west"
rate = "60/s"
quantities = ["frequency", "voltage-angle"]
[[subscriber]]
name = "display"
router = "west"
variables = ["**/frequency"]
every = 4
"""


@pytest.fixture
def grid() -> Grid:
    return grid_from_text(TEXT, file="grid.toml")


def router_report(*, events: int, drops: int = 0) -> Line:
    zero = dict.fromkeys((*ROUTER_DROPS, KERNEL_DROPPED), 0)
    channel = {"sent": events // 2, "due": events // 2 + drops + 1, "queued": 1}
    channel |= {"queue_full": drops, "pool_empty": 0, "send_failed": 0}
    counters = {**zero, "in": events, "not_due": events // 2, "dispatched": events // 2}
    return {"counters": counters, "channels": {"3": channel}, "latency": [(8_000, events)]}


def subscriber_report(*, delivered: int) -> Line:
    return {
        "subscribers": {
            "display": {
                "delivered": delivered,
                "lost": 1,
                "misplaced": 0,
                "duplicate": 2,
                "malformed": 0,
                "unknown": 0,
                "policed_jump": 0,
                "ring_full": 0,
                "latency": [(100_000, delivered)],
            }
        }
    }


def pmu_report(*, first: int, newest: int) -> Line:
    slots = {"first_slot": first, "newest_slot": newest, "skipped": 0}
    return {"pmus": {"a/b/c": {"values": {"frequency": 59.98}, **slots}}}


def observation(time_s: float, *, events: int, drops: int = 0) -> Observation:
    return Observation(
        time_s,
        {
            "router west": router_report(events=events, drops=drops),
            "subscribers": subscriber_report(delivered=events // 8),
            "PMUs": pmu_report(first=7, newest=26),
        },
    )


@pytest.fixture
def figures(grid: Grid) -> GridFigures:
    older, newer = observation(10.0, events=800), observation(12.0, events=1_040, drops=5)
    return grid_figures(grid, older, newer, started_s=2.0)


def test_rates_are_differences_over_the_time_between(figures: GridFigures) -> None:
    [router], [subscriber] = figures.routers, figures.subscribers
    assert (router.in_per_s, router.out_per_s) == (120.0, 60.0)
    assert subscriber.got_per_s == 15.0
    assert subscriber.expected_per_s == 15.0
    assert figures.running_s == 10.0


def test_only_drops_that_happened_are_named(figures: GridFigures) -> None:
    assert figures.routers[0].drops == {"queue_full": 5}


def test_a_process_that_was_started_again_counts_from_nothing(grid: Grid) -> None:
    older, newer = observation(10.0, events=800), observation(12.0, events=40)
    figures = grid_figures(grid, older, newer, started_s=0.0)
    assert figures.routers[0].in_per_s == 20.0
    assert figures.routers[0].latency.us_p50 == 8.0


def test_a_process_that_is_silent_is_missing(grid: Grid) -> None:
    older = observation(10.0, events=800)
    newer = Observation(12.0, {"PMUs": pmu_report(first=1, newest=2)})
    figures = grid_figures(grid, older, newer, started_s=0.0)
    assert (figures.routers, figures.subscribers) == ((), ())


def test_a_subscription_promises_its_share_of_every_variable(grid: Grid) -> None:
    assert nominal_per_s(grid, grid.subscribers[0]) == 15.0


def test_a_quantile_is_the_bound_of_its_bucket() -> None:
    histogram = [(1_000, 50), (2_000, 49), (9_000, 1)]
    assert quantile_us(histogram, 0.5) == 1.0
    assert quantile_us(histogram, 0.99) == 2.0
    assert quantile_us(histogram, 1.0) == 9.0
    assert quantile_us([], 0.5) is None


def test_what_was_added_to_a_histogram_is_bucket_by_bucket() -> None:
    assert since([(1, 5)], [(1, 7), (2, 1)]) == [(1, 2), (2, 1)]
    assert since([(1, 5)], [(1, 2)]) == [(1, 2)]


def test_the_closing_account_counts_every_slot_that_was_published(grid: Grid) -> None:
    account = closing_account(grid, static_plan(grid), observation(1.0, events=40), seconds=1.0)
    assert account.published == 2 * 20
    [display] = account.subscribers
    assert (display.due, display.delivered, display.missing) == (5, 5, 0)
    assert account.is_settled
    assert account.routers[0].is_balanced
    assert "display: 5 of 5 delivered" in account.as_text()


def test_a_missing_delivery_is_not_settled(grid: Grid) -> None:
    account = closing_account(grid, static_plan(grid), observation(1.0, events=32), seconds=1.0)
    assert not account.is_settled
    assert account.as_json()["subscribers"][0]["missing"] == 1


def test_books_that_do_not_balance_are_not_settled(grid: Grid) -> None:
    found = observation(1.0, events=40)
    found.reports["router west"]["counters"]["dispatched"] -= 1
    account = closing_account(grid, static_plan(grid), found, seconds=1.0)
    assert not account.is_settled
    assert not account.as_json()["routers"][0]["is_balanced"]


def test_the_three_displays_say_the_same(figures: GridFigures) -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(live_tables(figures, name="grid", note="something happened"))
    drawn = console.export_text()
    assert "queue_full 5" in drawn
    assert "59.9800 Hz" in drawn
    assert "something happened" in drawn
    assert "drops 5" in text_line(figures)
    told = json.loads(json_line(figures, processes={"PMUs": 7}))
    assert told["routers"][0]["drops"] == {"queue_full": 5}
    assert told["processes"] == {"PMUs": 7}


def test_lines_come_out_whole_whatever_the_pieces() -> None:
    sent = encoded({"do": "report"}) + encoded({"do": "pause"})
    buffer = LineBuffer()
    found = [line for at in range(len(sent)) for line in buffer.feed(sent[at : at + 1])]
    assert found == [{"do": "report"}, {"do": "pause"}]
