"""The root of a tree dies, another process takes over: the clouds join it, and lose nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.endpoint.asking import qos
from gridstat.model.status import BuiltinType
from lab.stand_by import is_in_charge
from tests.cluster.eventually import eventually
from tests.cluster.one_cloud.streams import Stream
from tests.cluster.stand_by.asking import Asking
from tests.cluster.stand_by.rooted import EAST, WEST, WITHIN_S, RootedClouds
from tests.cluster.two_clouds.test_contracts import missing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.postgres import DatabaseServer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
FLOAT64 = BuiltinType.FLOAT64
RATE = 50


@pytest.fixture
def clouds(tmp_path: Path, database_server: DatabaseServer) -> Iterator[RootedClouds]:
    with RootedClouds(tmp_path, database_server.url()) as made:
        made.start()
        yield made


@pytest.mark.feature("S0-123", "S1-92")
def test_a_root_that_is_killed_in_the_middle_of_requests_is_replaced(
    clouds: RootedClouds,
) -> None:
    first, second = (clouds.daemons[name] for name in (clouds.doubled, clouds.standing_by))
    pmu = clouds.connect("c1/rooted/pmu", WEST)
    desk = clouds.connect("c2/rooted/desk", EAST)
    stream = pmu.publish("value", FLOAT64, rate=RATE)
    others = [pmu.publish(f"extra-{number}", FLOAT64, rate=1).name for number in range(60)]
    wish = qos(latency_ms=10_000)
    taken = desk.subscribe(stream.name, qos=wish, keep_events=65_536)
    term = clouds.survey()["root"]["term"]
    with Stream(stream) as sending:
        eventually(lambda: sending.complaint_below(RATE))
        with Asking(desk, others) as asking:
            eventually(lambda: asking.complaint_below(4))
            first.kill()
            assert len(asking.granted) < len(others), "it dies while requests are under way"
            eventually(lambda: asking.complaint_below(len(others)), within_s=WITHIN_S)
        assert is_in_charge(second)
        eventually(clouds.complaint)
        sent = len(sending.sent)
        eventually(lambda: sending.complaint_below(sent + RATE))
    got: list[int] = []
    eventually(lambda: missing(taken, got, sending.sent))
    assert got == sorted(set(got)), "each slot once, in order"
    assert asking.refused == []
    facts = clouds.survey()["root"]
    assert facts["contracts"] == 1 + len(others)
    assert facts["term"] > term
