"""Bands between clouds under events: a contract gives way to an urgent one, and rises again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.endpoint.options import qos
from gridstat.model.status import BuiltinType
from tests.cluster.banded_streams import PERIOD, Streams, await_everys, wide_enough
from tests.cluster.two_clouds.clouds import TwoClouds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
WIDE = qos(every_worst=60, latency_ms=30_000)
URGENT = qos(every=2, priority=1, latency_ms=30_000)


@pytest.fixture
def narrow_clouds(tmp_path: Path) -> Iterator[TwoClouds]:
    """Clouds of which c1 has room for 60 events a second on the way to its borders."""
    bands = "[bands]\nraise_after_s = 1\n"
    with TwoClouds(tmp_path, narrow=wide_enough(60), brokers=bands) as running:
        running.start()
        yield running


def test_a_contract_between_clouds_gives_way_and_rises_without_a_loss(
    narrow_clouds: TwoClouds,
) -> None:
    publisher = narrow_clouds.connect("c1/bands/pmu", ("c1/e0",))
    desk = narrow_clouds.connect("c2/bands/desk", ("c2/e0",))
    published = [
        publisher.publish(f"v{number}", BuiltinType.FLOAT64, period=PERIOD) for number in range(2)
    ]
    with Streams(published) as sending:
        low = desk.subscribe(published[0].name, qos=WIDE)
        await_everys([low], [1])
        sending.await_more(60)
        urgent = desk.subscribe(published[1].name, qos=URGENT)
        assert urgent.contract.granted[0].every == 2
        await_everys([low], [2])
        told = narrow_clouds.gridstat("explain", published[0].name)
        assert "lowered for c2#" in told.stdout, told.stderr
        sending.await_more(120)
        assert urgent.ledger().lost == 0
        urgent.unsubscribe()
        await_everys([low], [1])
        sending.await_more(120)
    ledger = low.ledger()
    assert ledger.lost == 0
    assert ledger.delivered >= 60 + 60 + 100
