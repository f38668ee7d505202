"""Path ledgers of an end-point itself, for two paths that end at two edge routers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import gridstat
from tests.cluster.end_points.feeding import feeding
from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from tests.cluster.end_points.local_cloud import LocalCloud

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]
RATE = 50


def test_each_of_two_edges_brings_every_event_by_its_own_path(cloud: LocalCloud) -> None:
    with cloud.connect("c1/north/pmu-7") as pmu, cloud.connect("c1/reader") as reader:
        voltage = pmu.publish("voltage", gridstat.FLOAT64, rate=RATE)
        wish = gridstat.qos(redundancy=2, latency_ms=2_000)
        found = reader.subscribe(voltage.name, qos=wish)
        assert [path.name for path in found.contract.paths] == ["path 1", "path 2"]

        def complaint() -> str | None:
            told = found.ledger().paths
            is_whole = len(told) == 2 and all(path.delivered >= RATE for path in told)
            return None if is_whole else f"{told}"

        with feeding(voltage, RATE):
            eventually(complaint, within_s=60.0)
        ledger = found.ledger()
        paths = ledger.paths
        assert [path.routers for path in paths] == [path.routers for path in found.contract.paths]
        assert {path.routers[-1] for path in paths} == {"c1/e0", "c1/e1"}
        assert all(path.is_counted and path.is_open for path in paths)
        # An edge may stop for a while: one ledger, of one moment, is compared with itself.
        assert min(path.lost for path in paths) <= ledger.lost
        assert all(path.expected == path.delivered + path.lost for path in paths)
        assert sum(path.first for path in paths) >= RATE
