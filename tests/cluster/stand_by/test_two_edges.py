"""A contract between clouds over two disjoint ways, on two edges, while a broker is replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.endpoint.options import qos
from gridstat.model.status import BuiltinType
from lab.declared_delay import DELAY_MS
from lab.stand_by import is_in_charge
from tests.cluster.eventually import eventually
from tests.cluster.one_cloud.streams import Stream
from tests.cluster.stand_by.databases import own_database
from tests.cluster.stand_by.rooted import CLOUDS, WITHIN_S, RootedClouds
from tests.cluster.two_clouds.test_contracts import missing

if TYPE_CHECKING:
    from pathlib import Path

    from lab.postgres import DatabaseServer

pytestmark = [pytest.mark.cluster, pytest.mark.apart, pytest.mark.timeout(240)]
RATE = 50


@pytest.mark.parametrize("doubled", ["root", *CLOUDS])
def test_a_take_over_loses_and_repeats_nothing_of_two_disjoint_ways(
    doubled: str, tmp_path: Path, database_server: DatabaseServer
) -> None:
    url = own_database(database_server, f"edges_{doubled}")
    with RootedClouds(tmp_path, url, doubled=doubled, edges=2) as clouds:
        clouds.start()
        first, second = (clouds.daemons[name] for name in (doubled, clouds.standing_by))
        stream = clouds.connect("c1/two/pmu", "c1/e0", "c1/e1").publish(
            "value", BuiltinType.FLOAT64, rate=RATE, delay_ms=DELAY_MS
        )
        taken = clouds.connect("c2/two/desk", "c2/e0", "c2/e1").subscribe(
            stream.name, qos=qos(latency_ms=10_000, redundancy=2), keep_events=65_536
        )
        assert {path.routers for path in taken.contract.paths} == {
            ("c1/e0", "c2/e0"),
            ("c1/e1", "c2/e1"),
        }
        with Stream(stream) as sending:
            eventually(lambda: sending.complaint_below(RATE))
            first.kill()
            eventually(lambda: None if is_in_charge(second) else "nobody is in charge")
            eventually(clouds.complaint, within_s=WITHIN_S)
            sent = len(sending.sent)
            eventually(lambda: sending.complaint_below(sent + RATE))
        got: list[int] = []
        eventually(lambda: missing(taken, got, sending.sent))
        assert got == sorted(set(got)), "each slot once, in order"
        ledger = taken.ledger()
        assert (ledger.lost, ledger.delivered) == (0, len(sending.sent))
        assert not taken.is_over
