"""Pressure is on from three quarters, and off only from one quarter."""

from __future__ import annotations

import pytest

from gridstat.router.agent_events import WaterMarkCrossed
from gridstat.router.water_marks import WaterMarks

EAST = 7


@pytest.fixture
def marks() -> WaterMarks:
    marks = WaterMarks()
    marks.watch(EAST, queue_events_max=100)
    return marks


@pytest.mark.feature("S0-130")
def test_each_mark_is_told_once_and_there_is_room_between_them(marks: WaterMarks) -> None:
    levels = [0, 74, 75, 100, 60, 26, 25, 0, 60, 75]
    told = [news for level in levels for news in marks.judge({EAST: level})]
    assert told == [
        WaterMarkCrossed(EAST, True, 75),
        WaterMarkCrossed(EAST, False, 25),
        WaterMarkCrossed(EAST, True, 75),
    ]


def test_a_queue_of_one_event_has_marks_too() -> None:
    marks = WaterMarks()
    marks.watch(EAST, queue_events_max=1)
    told = [news.is_on for level in (0, 1, 0) for news in marks.judge({EAST: level})]
    assert told == [True, False]


def test_a_channel_that_is_forgotten_starts_anew(marks: WaterMarks) -> None:
    marks.judge({EAST: 90})
    marks.forget(EAST)
    assert marks.channel_ids() == ()
    assert marks.judge({EAST: 0}) == []
    marks.watch(EAST, queue_events_max=100)
    assert marks.judge({EAST: 90}) == [WaterMarkCrossed(EAST, True, 90)]
