"""What is lost, and what is only late, at the end of a paced run."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from benchmarks import measurements
from benchmarks.measurements import LONE, Paced, pace_once
from benchmarks.plan import Outlet
from benchmarks.rig import CORE, Window
from benchmarks.roles import pacing

if TYPE_CHECKING:
    import pytest

    from benchmarks.processes import Answer

SENT = 1_300


class Arrivals:
    """A subscriber that gets one more event each time it is looked at, up to a last one."""

    def __init__(self, *, first: int, last: int) -> None:
        self._arrived, self._last = first, last
        self.pages = self

    def delivered(self) -> list[int]:
        self._arrived = min(self._last, self._arrived + 1)
        return [self._arrived]

    def outlet(self, channel_id: int) -> Outlet:
        return Outlet(channel_id, "127.0.0.1", 1, 2)

    def take(self, **_wanted: float) -> Answer:
        times = dict.fromkeys(("p50_us", "p99_us", "mean_us", "max_us"), 60.0)
        return {"taken": self._arrived, "summary": times}


def paced(monkeypatch: pytest.MonkeyPatch, subscriber: Arrivals) -> Paced:
    hop = SimpleNamespace(process=None, policed=lambda: 0)
    rig = SimpleNamespace(
        prepare=lambda _kind: None,
        subscriber=lambda *_about, **_more: subscriber,
        forwarder=lambda _kind, _plan: hop,
        publisher=lambda *_about, **_more: None,
    )

    def run_watched(*_about: Any, **_more: Any) -> tuple[Answer, Window]:
        return {"sent": SENT}, Window(1.0, (0.1,), 0)

    monkeypatch.setattr(measurements, "Rig", lambda: nullcontext(rig))
    monkeypatch.setattr(measurements, "run_watched", run_watched)
    monkeypatch.setattr(pacing, "STALL_S", 0.01)
    return pace_once(CORE, LONE, 1.0)


def test_events_on_their_way_when_the_publisher_is_done_are_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert paced(monkeypatch, Arrivals(first=SENT - 3, last=SENT)).lost == 0


def test_an_event_that_never_arrives_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    assert paced(monkeypatch, Arrivals(first=SENT - 3, last=SENT - 1)).lost == 1
