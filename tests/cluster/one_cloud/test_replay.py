"""Replay and alarms in a real cloud: old events fill what live ones leave, alarms come once."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from gridstat.console.daemons.alarm_publisher import (
    Alarm,
    FeedbackSettings,
    alarm_publisher,
)
from gridstat.console.daemons.replay_publisher import ReplayPublisher, run_name
from gridstat.model.qos import PRIORITY_REPLAY
from gridstat.model.rate_law import NS_PER_S, Period, slot_of
from gridstat.model.status import BuiltinType, EventFlag
from gridstat.net.command.address import address_text
from gridstat.net.command.identity import Role
from lab.declared_delay import DELAY_MS
from tests.cluster.eventually import eventually
from tests.cluster.one_cloud.cloud import EAST, WEST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.endpoint.connection import Connection
    from gridstat.endpoint.delivery import Delivery
    from gridstat.endpoint.publisher import Publication
    from gridstat.endpoint.subscriber import Subscription
    from tests.cluster.one_cloud.cloud import Cloud

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

FLOAT64 = BuiltinType.FLOAT64
RATE = Period(1, 50)
VARIABLES = 20
KEEP = 1 << 20
AN_HOUR_AGO_NS = 3_600 * NS_PER_S
SPEED = 10
PAST_S = 30
"""Seconds of the past that are replayed: ten thousand events a second, twice what the line has."""

PATIENT = FeedbackSettings(settle_s=5.0)
"""Settings for a busy machine, where paths to a new alarm take longer than a second."""


@dataclass(frozen=True)
class Archived:
    name: str
    streams: tuple[int, ...]
    value_type: str = "float64"
    period: Period = RATE
    phase_ns: int = 0


class Live:
    """Twenty streams at their slots, packed, while the block lasts."""

    def __init__(self, grid: Connection, publications: list[Publication]) -> None:
        self._grid = grid
        self._publications = publications
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.slots: list[int] = []

    def __enter__(self) -> Live:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        slot = slot_of(time.time_ns(), RATE) + 1
        while not self._is_over.is_set():
            created_ns = slot * NS_PER_S // RATE.per_seconds
            time.sleep(max(0, created_ns - time.time_ns()) / NS_PER_S)
            values = np.full(VARIABLES, float(slot))
            assert self._grid.send_many(self._publications, values, created_ns) == VARIABLES
            self.slots.append(slot)
            slot += 1


def archived_events(from_ns: int) -> Iterator[pa.RecordBatch]:
    for second in range(PAST_S):
        slots = np.repeat(np.arange(second * 50, second * 50 + 50), VARIABLES)
        yield pa.record_batch(
            {
                "stream": pa.array(np.tile(np.arange(VARIABLES), 50), pa.int32()),
                "created_ns": pa.array(from_ns + slots * (NS_PER_S // 50)),
                "flags": pa.array(np.zeros(len(slots)), pa.int16()),
                "value": pa.array(slots.astype(float)),
                "word": pa.array(slots),
            }
        )


def replay(grid: Connection, from_ns: int) -> tuple[ReplayPublisher, list[str]]:
    publisher = ReplayPublisher(grid, SPEED)
    names = publisher.register(Archived(f"c1/then/v{n}", (n,)) for n in range(VARIABLES))
    return publisher, names


def stamps_of(subscriptions: list[Subscription]) -> list[list[int]]:
    return [one.read()["created_ns"].tolist() for one in subscriptions]


def fewer_than(count: int, seen: list[Delivery]) -> str | None:
    return f"{len(seen)} of {count} came" if len(seen) < count else None


def missing(live: Live, subscriptions: list[Subscription], came: list[set[int]]) -> str | None:
    """Return a complaint while events of the live streams are missing."""
    for slots, subscription in zip(came, subscriptions, strict=True):
        slots.update(int(value) for value in subscription.read()["value"].view("f8").tolist())
    absent = sum(len(set(live.slots) - slots) for slots in came)
    return f"{absent} live events have not come" if absent else None


def test_live_streams_lose_nothing_to_a_replay_that_fills_the_rest_of_the_line(
    cloud: Cloud,
) -> None:
    publisher = cloud.connect("c1/now/pmu", WEST[:1])
    again = cloud.connect(run_name("c1", "first"), WEST[:1])
    desk = cloud.connect("c1/now/desk", EAST[:1])
    names = [f"v{n}" for n in range(VARIABLES)]
    streams = publisher.publish_many(names, FLOAT64, period=RATE, delay_ms=DELAY_MS)
    from_ns = (time.time_ns() - AN_HOUR_AGO_NS) // NS_PER_S * NS_PER_S
    replaying, old_names = replay(again, from_ns)
    old = desk.subscribe_many(old_names, keep_events=KEEP)
    assert {one.contract.granted[0].priority for one in old} == {PRIORITY_REPLAY}
    # From the grant on slots are due: it comes last.
    live = desk.subscribe_many([one.name for one in streams], keep_events=KEEP)

    came: list[set[int]] = [set() for _ in streams]
    with Live(publisher, streams) as sending:
        tally = replaying.run(archived_events(from_ns), threading.Event())
    eventually(lambda: missing(sending, live, came))

    assert tally.is_whole
    assert tally.sent == VARIABLES * 50 * PAST_S
    assert all(one.ledger().lost == 0 for one in live)
    replayed = stamps_of(old)
    count = sum(map(len, replayed))
    assert 0.1 * tally.sent < count < tally.sent  # Much of it, and not all: the line is too small.
    assert all(stamps == sorted(set(stamps)) for stamps in replayed)
    assert min(map(min, replayed)) == from_ns
    assert sum(one.ledger().late for one in old) == 0
    facts = cloud.survey()
    assert not any(one["is_back_pressured"] for one in facts["channels"])


def test_the_same_hour_can_be_replayed_twice_and_says_what_it_is(cloud: Cloud) -> None:
    desk = cloud.connect("c1/twice/desk", EAST[:1])
    from_ns = (time.time_ns() - AN_HOUR_AGO_NS) // NS_PER_S * NS_PER_S
    for run in ("one", "two"):
        again = cloud.connect(run_name("c1", run), WEST[:1])
        replaying, names = replay(again, from_ns)
        seen: list[Delivery] = []
        subscription = desk.subscribe(names[0], on_event=seen.append)
        batches = list(archived_events(from_ns))[:2]
        replaying.run(batches, threading.Event())
        eventually(partial(fewer_than, 90, seen))
        assert {one.flags for one in seen} == {EventFlag.REPLAYED}
        assert seen[0].created_ns == from_ns
        subscription.unsubscribe()


def test_an_alarm_that_is_published_twice_is_delivered_once_with_its_identity(
    cloud: Cloud,
) -> None:
    desk = cloud.connect("c1/alarms/desk", EAST)
    seen: list[Delivery] = []
    desk.subscribe_pattern(
        "c1/pipeline/alarms/**",
        on_event=seen.append,
    )
    edges = [f"{edge}@{address_text(cloud.access.edges[edge])}" for edge in WEST]
    onset_ns = time.time_ns() - 25 * NS_PER_S  # Older than any live event may be.
    low = Alarm("frequency-low", "c1/north/pmu-1/frequency", onset_ns, 4_711, 49.7)
    with alarm_publisher(cloud.access, edges, "c1/pipeline", PATIENT) as publisher:
        assert publisher.publish([low]) == 1
        assert publisher.flush(30)
        eventually(partial(fewer_than, 1, seen))
        publisher.publish([low, low._replace(sequence=4_712)])
        assert publisher.flush(30)
        eventually(partial(fewer_than, 2, seen))
        assert publisher.counters()["published"] == 3
    came = [(one.created_ns, one.sequence, one.value) for one in seen]
    assert came == [(onset_ns, 4_711, 49.7), (onset_ns, 4_712, 49.7)]


PUBLISHING = """
import sys, time
from pathlib import Path
from gridstat.console.access import load_access
from gridstat.console.daemons.alarm_publisher import Alarm, FeedbackSettings, alarm_publisher
folder, edge, settle_s, onset_ns, *sequences = sys.argv[1:]
settings = FeedbackSettings(settle_s=float(settle_s))
publisher = alarm_publisher(load_access(Path(folder)), [edge], "c1/killed", settings)
publisher.start()
publisher.publish([Alarm("low", "c1/a/f", int(onset_ns), int(each), 1.0) for each in sequences])
assert publisher.flush(60)
print(publisher.counters()["published"], flush=True)
time.sleep(600)
"""


def test_alarms_that_a_killed_pipeline_publishes_again_are_delivered_once(cloud: Cloud) -> None:
    desk = cloud.connect("c1/killed-alarms/desk", EAST)
    seen: list[Delivery] = []
    desk.subscribe_pattern("c1/killed/alarms/**", on_event=seen.append)
    cloud.access.files_of(Role.ENDPOINT, "c1/killed")
    edge = f"{WEST[0]}@{address_text(cloud.access.edges[WEST[0]])}"
    onset_ns = str(time.time_ns() - 5 * NS_PER_S)
    words = [PUBLISHING, str(cloud.folder), edge, str(PATIENT.settle_s), onset_ns]
    for sequences in (("1", "2"), ("1", "2", "3")):
        command = [sys.executable, "-c", *words, *sequences]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as pipeline:
            try:
                assert pipeline.stdout is not None
                assert pipeline.stdout.readline() == f"{len(sequences)}\n"
                eventually(partial(fewer_than, len(sequences), seen))
            finally:
                pipeline.kill()
    assert [one.sequence for one in seen] == [1, 2, 3]
