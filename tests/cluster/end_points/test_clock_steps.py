"""A publisher's clock that is set while its stream runs: what is lost to it is in the ledger."""

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


def test_the_second_that_a_clock_set_back_costs_is_in_the_ledger(
    cloud: LocalCloud, pmu: Connection
) -> None:
    stream = pmu.publish("stepped", BuiltinType.FLOAT64, rate=RATE)
    with cloud.connect("c1/desk") as desk:
        found = desk.subscribe(stream.name, preset="wide-area")
        sent = send_for(stream, 2.0) + send_for(stream, 4.0, clock_ns=-8_000_000_000)
        ledger = found.ledger()
    assert RATE - 5 <= ledger.lost_to_clock <= 1.5 * RATE, ledger
    assert abs(ledger.expected - sent) <= 5, ledger
