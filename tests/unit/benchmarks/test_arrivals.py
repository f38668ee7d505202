"""Lost and late events at the end of a paced run."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from benchmarks import cloud_chain, measurements
from benchmarks.experiments import changes
from benchmarks.lanes import Cut
from benchmarks.measurements import LONE, Paced, pace_once
from benchmarks.plan import Outlet
from benchmarks.rig import CORE, Window
from benchmarks.roles import pacing
from benchmarks.statistics import summary_of

if TYPE_CHECKING:
    import pytest

    from benchmarks.cloud_rig import CloudRig
    from benchmarks.processes import Answer, RoleProcess
    from benchmarks.rig import Subscriber

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


class CloudArrivals:
    """The subscribers of a chain, who get one more event each time that they are asked."""

    def __init__(self, *, first: int, last: int) -> None:
        self._arrived, self._last = first, last

    def ask(self, question: dict[str, Any], *, within_s: float) -> Answer:
        assert within_s > 0
        self._arrived = min(self._last, self._arrived + 1)
        if question["do"] == "arrived":
            return {"arrived": self._arrived}
        summary = asdict(summary_of(np.full(self._arrived, 60_000)))
        return {"taken": self._arrived, "summary": summary, "bins": []}


def lost_on_a_chain(monkeypatch: pytest.MonkeyPatch, subscribers: CloudArrivals) -> int:
    path = {"latency_us": 100, "routers": [], "channel_ids": []}
    explained = {"subscriptions": [{"paths": [path]}]}
    publisher = SimpleNamespace(
        ask=lambda *_, **__: {}, begin=lambda _: None, finish=lambda **_: {"sent": SENT}
    )
    ends = iter((publisher, subscribers))
    rig = SimpleNamespace(
        end_points=lambda _: next(ends),
        await_in_step=lambda: None,
        broker=SimpleNamespace(cpu_ns=lambda: 0),
        local_latency=lambda _: (),
        survey=lambda: {"routers": [], "channels": []},
        explain=lambda _: explained,
    )
    monkeypatch.setattr(cloud_chain, "SETTLE_S", 0)
    monkeypatch.setattr(cloud_chain, "LATENCY_MS", 10)
    monkeypatch.setattr(cloud_chain, "_subscribe", lambda *_, **__: None)
    monkeypatch.setattr(cloud_chain, "hops_of", lambda *_: ())
    chain = cloud_chain.CloudChain(cast("CloudRig", rig), (1,), tick=(1, 60))
    chain.begin(1.0)
    return chain.finish(Cut()).lost


def test_events_on_their_way_through_a_cloud_are_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lost_on_a_chain(monkeypatch, CloudArrivals(first=SENT - 5, last=SENT)) == 0


def test_an_event_that_never_arrives_through_a_cloud_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert lost_on_a_chain(monkeypatch, CloudArrivals(first=SENT - 5, last=SENT - 2)) == 2


class ToggledArrivals:
    """A subscriber of rows that changes switch: of the probe it gets one more at each look."""

    def __init__(self, last: int) -> None:
        self._arrived, self._last, self._is_probed = 7, 7 + last, False
        self.pages = self

    def ask(self, _question: dict[str, Any]) -> Answer:
        self._is_probed = True
        return {}

    def delivered(self) -> list[int]:
        self._arrived = min(self._last, self._arrived + self._is_probed)
        return [0, self._arrived]


def ineffective(monkeypatch: pytest.MonkeyPatch, arrivals: ToggledArrivals, routed: int) -> int:
    monkeypatch.setattr(changes, "SETTLE_S", 0)
    monkeypatch.setattr(pacing, "STALL_S", 0.01)
    return changes._ineffective(cast("Subscriber", arrivals), cast("RoleProcess", arrivals), routed)


def test_a_change_is_in_force_though_its_event_comes_late(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ineffective(monkeypatch, ToggledArrivals(50), 50) == 0


def test_a_change_that_is_not_in_force_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ineffective(monkeypatch, ToggledArrivals(49), 50) == 1
    assert ineffective(monkeypatch, ToggledArrivals(51), 50) == 1
