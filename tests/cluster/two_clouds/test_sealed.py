"""Contracts between clouds that demand sealed channels, where one of two ways is not sealed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.endpoint.options import qos
from gridstat.model.errors import SecurityNotSatisfiable
from gridstat.model.status import BuiltinType
from tests.cluster.eventually import eventually
from tests.cluster.one_cloud.streams import Stream, slots_of
from tests.cluster.two_clouds.clouds import EAST, WEST, TwoClouds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
SEALED = qos(latency_ms=1_000, security="hop")
PLAIN_WAY = ("c1/b1", "c2/b1")
SEALED_WAY = ("c1/b0", "c2/b0")


@pytest.fixture
def half_sealed(tmp_path: Path) -> Iterator[TwoClouds]:
    """Two clouds whose channels between b1 and b1 are not sealed; those by b0 can be cut."""
    with TwoClouds(tmp_path, plain=("b1",)) as running:
        running.start()
        yield running


def test_a_sealed_contract_between_clouds_stays_off_the_plain_channel(
    half_sealed: TwoClouds,
) -> None:
    clouds = half_sealed
    stream = clouds.connect("c1/sealed/pmu", WEST).publish("value", BuiltinType.FLOAT64, rate=50)
    desk = clouds.connect("c2/sealed/desk", EAST)
    with pytest.raises(SecurityNotSatisfiable, match="channel c1/b1→c2/b1 is not sealed") as failed:
        desk.subscribe(stream.name, qos=qos(latency_ms=1_000, redundancy=2, security="hop"))
    assert 'security = "hop"' in failed.value.hint
    subscription = desk.subscribe(stream.name, qos=SEALED, keep_events=1_024)
    (path,) = subscription.contract.paths
    assert set(SEALED_WAY) <= set(path.routers)
    with Stream(stream):
        eventually(lambda: None if slots_of(subscription) else "no event has come")
    # The only sealed way fails: the contract waits for it, and is not moved to the plain one.
    channels = clouds.survey("root")["channels"]
    (number,) = [one["channel_id"] for one in channels if one["channel"] == "c1/b0→c2/b0"]
    clouds.wire.cut(number)
    eventually(lambda: None if subscription.contract.paths_down else "the cut is not noticed")
    clouds.wire.mend()
    eventually(lambda: "still down" if subscription.contract.paths_down else None)
    (path,) = subscription.contract.paths
    assert not set(PLAIN_WAY) & set(path.routers)
    facts = clouds.survey("root")
    loaded = {one["channel"] for one in facts["channels"] if one["promised_bytes_per_s"]}
    assert loaded == {"c1/b0→c2/b0"}
