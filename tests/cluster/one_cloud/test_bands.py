"""Bands under events: thirty share a channel for ten, give way to an urgent one, and rise again."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from gridstat.endpoint.options import qos
from gridstat.model.status import BuiltinType
from tests.cluster.banded_streams import PERIOD, Streams, await_everys, wide_enough
from tests.cluster.one_cloud.cloud import Cloud, cloud_text

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
ROOM_EVENTS_PER_S = 600
BANDS = "[bands]\nraise_after_s = 1\n"


@pytest.fixture
def narrow_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """A cloud whose channels carry 600 events a second beside their probes."""
    bandwidth = wide_enough(ROOM_EVENTS_PER_S)
    folder = tmp_path_factory.mktemp("narrow")
    with Cloud(folder, cloud_text(bandwidth), broker=BANDS) as running:
        running.start()
        yield running


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
