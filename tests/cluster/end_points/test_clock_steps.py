"""A publisher's clock that is set while its stream runs: its edge router stops it, and says so."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from gridstat.endpoint.options import qos
from gridstat.model.status import BuiltinType
from lab.declared_delay import DELAY_MS
from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from gridstat.endpoint.connection import Connection
    from gridstat.endpoint.publisher import Publication
    from tests.cluster.end_points.local_cloud import LocalCloud

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
RATE = 50
PERIOD_NS = 1_000_000_000 // RATE
EDGES = 2
"""Edge routers of the publisher: each refuses every event of a wrong clock."""
EARLY_MAX = 2
"""Events before the stamp from which they are promised, which the ledger does not count."""


def send_for(stream: Publication, first: int, seconds: float, *, clock_ns: int = 0) -> int:
    """Send a value in each period from this one on, by a clock that is set; return the next."""
    end = first + round(seconds * RATE)
    for slot in range(first, end):
        time.sleep(max(0, slot * PERIOD_NS - time.time_ns()) / 1e9)
        stream.send(1.0, created_ns=slot * PERIOD_NS + clock_ns)
    return end


@pytest.mark.parametrize("step_ns", [-3_600_000_000_000, 3_600_000_000_000], ids=["back", "ahead"])
def test_a_publisher_whose_own_clock_is_an_hour_off_is_stopped_and_told(
    cloud: LocalCloud, pmu: Connection, step_ns: int
) -> None:
    """Its events are lost and counted as such; when its clock is right again, none is."""
    stream = pmu.publish("stepped", BuiltinType.FLOAT64, rate=RATE, delay_ms=DELAY_MS)
    with cloud.connect("c1/desk") as desk:
        found = desk.subscribe(
            stream.name, qos=qos(latency_ms=5_000, redundancy=2), keep_events=4_096
        )
        began = time.time_ns() // PERIOD_NS + 1
        stepped = send_for(stream, began, 2.0)
        right = send_for(stream, stepped, 2.0, clock_ns=step_ns)
        ended = send_for(stream, right, 4.0)
        good, wrong = [*range(began, stepped), *range(right, ended)], right - stepped
        taken: list[int] = []

        def is_missing() -> str | None:
            taken.extend(int(each["created_ns"]) // PERIOD_NS for each in found.read())
            return None if len(taken) >= len(good) else f"{len(taken)} of {len(good)} have come"

        eventually(is_missing)
        assert sorted(taken) == good
        refused = EDGES * wrong
        eventually(lambda: None if stream.policed >= refused else f"{stream.policed} are policed")
        assert stream.policed == refused
        found.unsubscribe()  # What has not come by now is lost, however patient the contract.
        ledger = found.ledger()
    assert ledger.lost == wrong, ledger
    assert 0 <= len(good) - ledger.delivered <= EARLY_MAX, ledger
