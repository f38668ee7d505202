"""Bands under events: thirty share a channel for ten, give way to an urgent one, and rise again."""

from __future__ import annotations

import threading
import time
from random import Random
from typing import TYPE_CHECKING, Self

import pytest

from gridstat.endpoint.options import qos
from gridstat.model.probe_law import INTERVALS_PER_SILENCE, ProbeSettings
from gridstat.model.rate_law import NS_PER_S, Period, slot_of
from gridstat.model.status import BuiltinType
from tests.cluster.eventually import eventually
from tests.cluster.one_cloud.cloud import Cloud, cloud_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gridstat.endpoint.publisher import Publication
    from gridstat.endpoint.subscriber import Subscription

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
PERIOD = Period(1, 60)
ROOM_EVENTS_PER_S = 600
SEALED_EVENT_BYTES = 28 + 16 + 24 + 16
PROBES = ProbeSettings(500 // INTERVALS_PER_SILENCE, 500)
BANDS = "[bands]\nraise_after_s = 1\n"


@pytest.fixture
def narrow_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """A cloud whose channels carry 600 events a second beside their probes."""
    wanted = ROOM_EVENTS_PER_S * SEALED_EVENT_BYTES
    bandwidth = wanted
    while bandwidth - PROBES.bytes_per_s_of(bandwidth) < wanted:
        bandwidth += 1
    folder = tmp_path_factory.mktemp("narrow")
    with Cloud(folder, cloud_text(bandwidth), broker=BANDS) as running:
        running.start()
        yield running


class Streams:
    """Sends each slot of several variables while the block lasts."""

    def __init__(self, publications: Sequence[Publication]) -> None:
        self._publications = publications
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.slots = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        slot = slot_of(time.time_ns(), PERIOD) + 1
        while not self._is_over.is_set():
            created_ns = slot * NS_PER_S // 60
            time.sleep(max(0, created_ns - time.time_ns()) / NS_PER_S)
            for each in self._publications:
                each.send(float(slot), created_ns=created_ns)
            slot += 1
            self.slots += 1

    def await_more(self, count: int) -> None:
        until = self.slots + count
        eventually(lambda: None if self.slots >= until else f"{until - self.slots} slots to go")


def everys(subscriptions: Sequence[Subscription]) -> list[int]:
    return sorted(each.contract.granted[0].every for each in subscriptions)


def await_everys(subscriptions: Sequence[Subscription], wanted: list[int]) -> None:
    def complaint() -> str | None:
        found = everys(subscriptions)
        return None if found == wanted else f"every {found} instead of {wanted}"

    eventually(complaint)


@pytest.mark.parametrize("seed", range(2))
def test_thirty_in_the_room_of_ten_give_way_and_rise_without_a_loss(
    narrow_cloud: Cloud, seed: int
) -> None:
    publisher = narrow_cloud.connect("c1/crowd/pmu", ("c1/e0",))
    desk = narrow_cloud.connect("c1/crowd/desk", ("c1/e2",))
    published = [
        publisher.publish(f"v{number}", BuiltinType.FLOAT64, period=PERIOD) for number in range(31)
    ]
    order = list(range(30))
    Random(seed).shuffle(order)
    wide = qos(every_worst=60, latency_ms=30_000)
    with Streams(published) as sending:
        crowd = [desk.subscribe(published[number].name, qos=wide) for number in order]
        await_everys(crowd, [3] * 30)
        urgent = desk.subscribe(published[30].name, qos=qos(priority=1, latency_ms=30_000))
        assert urgent.contract.granted[0].every == 1
        await_everys(crowd, [3] * 18 + [4] * 12)
        (facts,) = narrow_cloud.explain(urgent.name)["subscriptions"]
        assert len(facts["lowered"]) == 12
        sending.await_more(240)
        assert urgent.ledger().lost == 0
        urgent.unsubscribe()
        await_everys(crowd, [3] * 30)
        sending.await_more(240)
    ledgers = [each.ledger() for each in crowd]
    assert [one.lost for one in ledgers] == [0] * 30
    assert min(one.delivered for one in ledgers) >= 480 // 4
