"""A broker is killed while a stream flows and requests are under way; another takes over."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gridstat.endpoint.options import qos
from gridstat.model.status import BuiltinType
from lab.declared_delay import DELAY_MS
from lab.stand_by import is_in_charge
from tests.cluster.eventually import eventually
from tests.cluster.one_cloud.streams import Stream
from tests.cluster.stand_by.asking import Asking
from tests.cluster.stand_by.rooted import EAST, WEST, WITHIN_S
from tests.cluster.two_clouds.test_contracts import missing

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.endpoint.subscriber import Subscription
    from tests.cluster.stand_by.rooted import RootedClouds

FLOAT64 = BuiltinType.FLOAT64
RATE = 50
OTHERS = 60


class Replaced(NamedTuple):
    """Requests refused meanwhile, the contract of the stream, and the broker's term before."""

    refused: list[str]
    taken: Subscription
    term: int


def replaced(clouds: RootedClouds, place: str, term_of: Callable[[], int]) -> Replaced:
    """Each slot of the stream comes once, in order, and each request is granted in the end."""
    first, second = (clouds.daemons[name] for name in (clouds.doubled, clouds.standing_by))
    pmu = clouds.connect(f"c1/{place}/pmu", WEST)
    desk = clouds.connect(f"c2/{place}/desk", EAST)
    stream = pmu.publish("value", FLOAT64, rate=RATE, delay_ms=DELAY_MS)
    others = [pmu.publish(f"extra-{number}", FLOAT64, rate=1).name for number in range(OTHERS)]
    taken = desk.subscribe(stream.name, qos=qos(latency_ms=10_000), keep_events=65_536)
    term = term_of()
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
    return Replaced(asking.refused, taken, term)
