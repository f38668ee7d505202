"""A publisher's clock that is set while its stream runs: its edge router stops it, and says so."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from gridstat.model.status import BuiltinType

if TYPE_CHECKING:
    from gridstat.endpoint.connection import Connection
    from gridstat.endpoint.publisher import Publication
    from tests.cluster.end_points.local_cloud import LocalCloud

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
RATE = 50
PERIOD_NS = 1_000_000_000 // RATE


def send_for(stream: Publication, seconds: float, *, clock_ns: int = 0) -> int:
    """Send a value in each period for so long, by a clock that is set; return how many."""
    first = time.time_ns() // PERIOD_NS + 1
    for slot in range(first, first + round(seconds * RATE)):
        time.sleep(max(0, slot * PERIOD_NS - time.time_ns()) / 1e9)
        stream.send(1.0, created_ns=slot * PERIOD_NS + clock_ns)
    return round(seconds * RATE)


@pytest.mark.parametrize("step_ns", [-3_600_000_000_000, 3_600_000_000_000], ids=["back", "ahead"])
def test_a_publisher_whose_own_clock_is_an_hour_off_is_stopped_and_told(
    cloud: LocalCloud, pmu: Connection, step_ns: int
) -> None:
    """Its events are lost and counted as such; when its clock is right again, none is."""
    stream = pmu.publish("stepped", BuiltinType.FLOAT64, rate=RATE)
    with cloud.connect("c1/desk") as desk:
        found = desk.subscribe(stream.name, preset="wide-area")
        sent = send_for(stream, 2.0)
        wrong = send_for(stream, 2.0, clock_ns=step_ns)
        sent += send_for(stream, 4.0)
        ledger = found.ledger()
        deadline_s = time.monotonic() + 30
        while stream.policed < wrong and time.monotonic() < deadline_s:
            time.sleep(0.1)
    assert stream.policed >= wrong
    assert abs(ledger.delivered - sent) <= 5, ledger
    assert abs(ledger.lost - wrong) <= 5, ledger
