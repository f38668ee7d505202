"""Screens as pages: what is wrong and the totals on the first, and every row on some page."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from gridstat.console.live.grid_survey import GridSurvey
from gridstat.console.live.pages import Section, View, pages_of
from gridstat.console.live.pipeline_view import PipelineView
from gridstat.console.live.screen import FRAME_LINES, footer_text, framed
from gridstat.console.live.views import cloud_view, grid_view, value_table
from gridstat.console.shown_text import shown_text

SIZES = [(80, 24), (150, 50), (40, 10), (20, 5), (200, 3), (8, 2), (1, 1)]


def router(name: str, **facts: Any) -> dict[str, Any]:
    return {
        "name": name,
        "role": "inner",
        "is_up": True,
        "is_connected": True,
        "in_step": True,
        "events_per_s": 640.0,
        "events_per_s_max": 1_000_000,
        "variables": 12,
        "counters": {"in": 6_517, "fifo_priority": 10},
        **facts,
    }


def channel(label: str, **facts: Any) -> dict[str, Any]:
    return {
        "label": label,
        "is_up": True,
        "is_back_pressured": False,
        "bytes_per_s": 21_760.0,
        "bandwidth_bytes_per_s": 2_000_000,
        "variables": 12,
        "loss_ratio": 0.0,
        "datagram_version": 2,
        "counters": {"sent": 5_972},
        **facts,
    }


def subscription(number: int, **ledger: Any) -> dict[str, Any]:
    counts = {"expected": 1_000, "delivered": 1_000, "late": 0, "lost": 0, "dropped": 0}
    return {
        "subscriber": "c1/control-centre",
        "name": f"c1/hill/pmu-{number}/voltage-magnitude",
        "paths": [["c1/e0"], ["c1/e1"]],
        "state": "granted",
        "ledger": {**counts, **ledger},
    }


def survey(**facts: Any) -> dict[str, Any]:
    return {
        "cloud": "c1",
        "term": 1,
        "totals": {"routers": 8, "channels": 16, "subscriptions": 100},
        "routers": [router(f"c1/north-{number}") for number in range(8)],
        "channels": [channel(f"c1/north-{number}→c1/south-{number}") for number in range(16)],
        "subscriptions": [subscription(number) for number in range(100)],
        **facts,
    }


def screens(view: View, width: int, height: int) -> list[list[str]]:
    """Return each page in its frame, as lines of a terminal of this size."""
    pages = pages_of(view, width, height - FRAME_LINES)
    found = []
    for page in range(len(pages)):
        file = io.StringIO()
        console = Console(file=file, width=width, height=height, color_system=None)
        console.print(framed(pages, page, (width, height), title=view.title, has_keys=True), end="")
        found.append(file.getvalue().removesuffix("\n").split("\n"))
    return found


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_no_page_is_larger_than_the_terminal(width: int, height: int) -> None:
    lost = [subscription(number, lost=3) for number in range(40)]
    view = cloud_view(survey(subscriptions=lost))
    for lines in screens(view, width, height):
        assert len(lines) == height
        assert max(map(len, lines)) <= width


def test_the_first_page_has_what_is_wrong_then_the_totals() -> None:
    routers = [router("c1/a"), router("c1/b", is_up=False)]
    channels = [channel("c1/a→c1/b", is_up=False), channel("c1/b→c1/a", is_back_pressured=True)]
    facts = survey(routers=routers, channels=channels, subscriptions=[subscription(1, lost=3)])
    lines = screens(cloud_view(facts), 80, 24)[0]
    assert lines[1:6] == [
        "4 things are wrong",
        "  router c1/b: DOWN",
        "  channel c1/a→c1/b is DOWN",
        "  channel c1/b→c1/a is congested, and admits nothing",
        "  c1/control-centre with c1/hill/pmu-1/voltage-magnitude: 3 lost of 1,000",
    ]
    text = "\n".join(lines)
    assert text.index("4 things") < text.index("1/2 routers, 1/2 channels up") < text.index("page")


def test_a_cloud_in_order_says_so_and_begins_with_its_tables_at_once() -> None:
    lines = screens(cloud_view(survey()), 80, 24)[0]
    assert lines[1] == "nothing is wrong"
    assert any(line.startswith("c1/north-7") for line in lines)


def test_many_problems_leave_room_for_the_totals_and_are_told_in_full_behind() -> None:
    lost = [subscription(number, lost=3) for number in range(40)]
    first, *rest = screens(cloud_view(survey(subscriptions=lost)), 80, 24)
    assert "8/8 routers" in "\n".join(first)
    assert first[1] == "40 things are wrong"
    (more,) = [line for line in first if "more below" in line]
    shown = sum("3 lost of 1,000" in line for line in first)
    assert more == f"  {40 - shown} more below"
    told = "\n".join(line for lines in rest for line in lines)
    assert told.startswith("gridstat top: cloud c1")
    for number in range(40):
        assert f"pmu-{number}/voltage-magnitude: 3 lost of 1,000" in told


@pytest.mark.parametrize(("width", "height"), [(80, 24), (150, 50), (60, 8)])
def test_every_row_is_on_exactly_one_page_below_its_column_names(width: int, height: int) -> None:
    pages = screens(cloud_view(survey()), width, height)
    rows = [line for lines in pages for line in lines if line.startswith("c1/control-centre")]
    names = [line.split()[1] for line in rows]
    assert names == [f"c1/hill/pmu-{number}/voltage-magnitude" for number in range(100)]
    for lines in pages:
        for number, line in enumerate(lines):
            if line.startswith("c1/"):
                above = [
                    each for each in lines[:number] if re.match(r"(router|channel|subscr)", each)
                ]
                assert above, f"no column names above {line}"


def test_a_larger_terminal_has_fewer_pages_and_hides_no_column() -> None:
    small = screens(cloud_view(survey()), 80, 24)
    large = screens(cloud_view(survey()), 200, 60)
    assert len(large) < len(small)
    assert "hidden: widen the terminal, or use --json" in str(small)
    assert "hidden" not in str(large)


def test_the_last_line_says_the_keys_and_the_page() -> None:
    assert screens(cloud_view(survey()), 80, 24)[1][-1].rstrip() == (
        "page 2 of 7 | n or space: next | p: previous | q or Ctrl-C: end"
    )
    for width in range(7, 80):
        words = footer_text(10, 99, width, has_keys=True)
        assert len(words) <= width
        assert all(key in words for key in "npq")
    assert footer_text(0, 2, 80, has_keys=False) == "page 1 of 2 | Ctrl-C: end"
    assert footer_text(0, 1, 80, has_keys=True) == "page 1 of 1 | q or Ctrl-C: end"


def test_a_grid_shows_brokers_that_are_away_first_and_the_guide_last() -> None:
    grid_survey = GridSurvey({"c1": survey()}, {"root": "no answer"}, {"c1/a": 1.0})
    pages = screens(
        grid_view(grid_survey, ["12:00:00 c1/a is started again"], "the guide\nof two"), 80, 24
    )
    assert pages[0][1:3] == ["1 thing is wrong", "  broker root is AWAY: no answer"]
    assert "12:00:00 c1/a is started again" in pages[0]
    text = "\n".join(pages[-1])
    assert "guide\nthe guide\nof two" in text


def test_a_grid_with_a_pipeline_tells_how_far_it_is() -> None:
    grid_survey = GridSurvey({"c1": survey()}, {}, {}, PipelineView())
    pages = screens(grid_view(grid_survey, [], ""), 80, 24)
    assert "pipeline: Spark is starting" in pages[0]


HOSTILE = "c1/[red]\x1b[2J\x1b]0;owned\x07\u202e"


def test_names_from_outside_do_not_steer_the_screen() -> None:
    facts = survey(
        cloud=HOSTILE,
        routers=[router(HOSTILE, refusal=HOSTILE, refusals=1)],
        channels=[channel(HOSTILE, is_up=False)],
        subscriptions=[{**subscription(1, lost=1), "subscriber": HOSTILE, "name": HOSTILE}],
    )
    values = {HOSTILE: 1.0}
    grid_survey = GridSurvey({HOSTILE: facts}, {HOSTILE: HOSTILE}, values)
    for view in (cloud_view(facts, HOSTILE), grid_view(grid_survey, [HOSTILE], HOSTILE)):
        pages = screens(View(HOSTILE, view.problems, view.totals, view.sections), 200, 50)
        text = "\n".join(line for lines in pages for line in lines)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)
        assert text.count(shown_text(HOSTILE)) > 5
    assert value_table(values).cells_of("variable") == [shown_text(HOSTILE)]


def test_an_empty_section_says_that_there_is_none() -> None:
    (lines,) = screens(View("x", sections=[Section("routers", [])]), 40, 10)
    assert lines[3:5] == ["routers", "none"]
