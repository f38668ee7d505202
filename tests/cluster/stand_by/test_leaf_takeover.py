"""A cloud's broker dies below its parent, another process takes over: it joins, and all stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.endpoint.asking import qos
from gridstat.model.status import BuiltinType
from lab.stand_by import is_in_charge
from tests.cluster.eventually import eventually
from tests.cluster.one_cloud.streams import Stream
from tests.cluster.stand_by.asking import Asking
from tests.cluster.stand_by.databases import own_database
from tests.cluster.stand_by.rooted import CLOUDS, EAST, WEST, WITHIN_S, RootedClouds
from tests.cluster.two_clouds.test_contracts import missing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.postgres import DatabaseServer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
FLOAT64 = BuiltinType.FLOAT64
RATE = 50


@pytest.fixture(params=CLOUDS, ids=("publisher's", "subscriber's"))
def clouds(
    request: pytest.FixtureRequest, tmp_path: Path, database_server: DatabaseServer
) -> Iterator[RootedClouds]:
    url = own_database(database_server, f"leaf_{request.param}")
    with RootedClouds(tmp_path, url, doubled=request.param) as made:
        made.start()
        yield made


@pytest.mark.feature("S0-123", "S0-122", "S1-92")
def test_a_leaf_broker_that_is_killed_in_the_middle_of_requests_between_clouds_is_replaced(
    clouds: RootedClouds,
) -> None:
    first, second = (clouds.daemons[name] for name in (clouds.doubled, clouds.standing_by))
    pmu = clouds.connect("c1/below/pmu", WEST)
    desk = clouds.connect("c2/below/desk", EAST)
    stream = pmu.publish("value", FLOAT64, rate=RATE)
    others = [pmu.publish(f"extra-{number}", FLOAT64, rate=1).name for number in range(60)]
    taken = desk.subscribe(stream.name, qos=qos(latency_ms=10_000), keep_events=65_536)
    term = term_as_joined(clouds)
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
    if clouds.doubled == "c2":
        assert asking.refused == []
    else:  # The root waits for a publisher's cloud for some seconds, and says so if that is over.
        assert all("c1" in words for words in asking.refused), asking.refused
    assert not taken.is_over
    assert term_as_joined(clouds) > term
    facts = clouds.survey(("root", *CLOUDS))
    assert facts["root"]["contracts"] == 1 + len(others)
    for cloud in CLOUDS:
        assert facts[cloud]["totals"]["stretches"] == 1 + len(others), cloud


def term_as_joined(clouds: RootedClouds) -> int:
    """Of the broker that is doubled, as its parent has heard it."""
    children = clouds.survey()["root"]["children"]
    return next(int(one["term"]) for one in children if one["name"] == clouds.doubled)
