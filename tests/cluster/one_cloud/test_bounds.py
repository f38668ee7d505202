"""Bounds of contracts: promised for every path and class, and each event beyond them counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from gridstat.endpoint.options import qos
from gridstat.model.errors import LatencyNotSatisfiable
from gridstat.model.qos import PRESETS
from gridstat.model.status import BuiltinType
from lab.declared_delay import DELAY_MS
from tests.cluster.eventually import eventually
from tests.cluster.one_cloud.cloud import EAST, WEST
from tests.cluster.one_cloud.streams import Stream

if TYPE_CHECKING:
    from gridstat.core.samples import Samples
    from gridstat.endpoint.subscriber import Subscription
    from tests.cluster.one_cloud.cloud import Cloud

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
FLOAT64 = BuiltinType.FLOAT64
NS_PER_US = 1_000


@pytest.mark.feature("S0-50")
def test_each_path_of_a_contract_is_within_the_bound_and_brings_every_event(cloud: Cloud) -> None:
    publisher = cloud.connect("c1/bounds/pmu", WEST)
    subscriber = cloud.connect("c1/bounds/desk", EAST)
    stream = publisher.publish("value", FLOAT64, rate=60, delay_ms=DELAY_MS)
    taken = subscriber.subscribe(stream.name, qos=qos(latency_ms=5_000, redundancy=2))
    paths = cloud.explain(stream.name)["subscriptions"][0]["paths"]
    assert len(paths) == 2
    # What is predicted is far less than what a machine with too much to do may need.
    assert all(0 < path["latency_us"] <= 2_000_000 for path in paths)
    assert not set(paths[0]["routers"]) & set(paths[1]["routers"])
    with Stream(stream) as sending:
        eventually(lambda: sending.complaint_below(60))
    sent = len(sending.sent)
    eventually(lambda: _other_copies(taken, (sent, sent)))
    eventually(lambda: _short_of(taken, sent))
    ledger = taken.ledger()
    assert (ledger.delivered, ledger.duplicate, ledger.late) == (sent, sent, 0)


@pytest.mark.feature("S0-50")
def test_what_comes_by_each_path_is_measured_against_the_bound(cloud: Cloud) -> None:
    """Each copy of an event, also the one that came second."""
    publisher = cloud.connect("c1/measured/pmu", WEST)
    subscriber = cloud.connect("c1/measured/desk", EAST)
    stream = publisher.publish("value", FLOAT64, rate=60)
    taken = subscriber.subscribe(stream.name, qos=qos(latency_ms=30_000, redundancy=2))
    with Stream(stream):
        eventually(lambda: _uncounted_of_paths(taken, 60))
    assert [path.late for path in taken.ledger().paths] == [0, 0]


@pytest.mark.feature("S0-50")
def test_two_paths_of_which_none_is_fast_enough_are_refused(cloud: Cloud) -> None:
    publisher = cloud.connect("c1/hasty/pmu", WEST)
    subscriber = cloud.connect("c1/hasty/desk", EAST)
    stream = publisher.publish("value", FLOAT64, rate=60)
    for redundancy in (1, 2):
        with pytest.raises(LatencyNotSatisfiable):
            subscriber.subscribe(stream.name, qos=qos(latency_ms=0.2, redundancy=redundancy))
    assert cloud.explain(stream.name)["subscriptions"] == []


@pytest.mark.feature("S3-75")
@pytest.mark.parametrize("name", sorted(PRESETS))
def test_each_class_is_held_to_its_own_bound_by_what_was_measured_of_its_events(
    cloud: Cloud, name: str
) -> None:
    wanted = PRESETS[name]
    publisher = cloud.connect(f"c1/{name}/pmu", WEST)
    subscriber = cloud.connect(f"c1/{name}/desk", EAST)
    stream = publisher.publish("value", FLOAT64, rate=60)
    taken = subscriber.subscribe(stream.name, preset=name, keep_events=4_096)
    (facts,) = cloud.explain(stream.name)["subscriptions"]
    assert len(facts["paths"]) == wanted.redundancy
    assert all(path["latency_us"] <= wanted.latency_us for path in facts["paths"])
    with Stream(stream) as sending:
        eventually(lambda: sending.complaint_below(60))
    sent = len(sending.sent)
    eventually(lambda: _short_of(taken, sent))
    samples, ledger = _read_all(taken, sent), taken.ledger()
    took_ns = np.subtract(samples["received_ns"], samples["created_ns"], dtype=np.int64)
    late = int((took_ns > wanted.latency_us * NS_PER_US).sum())
    assert (len(samples), ledger.delivered + ledger.recovered) == (sent, sent)
    # Whatever came after its slot was given up is no delivery, and need not be called late.
    assert ledger.late <= late <= ledger.late + ledger.recovered


def _read_all(taken: Subscription, wanted: int) -> Samples:
    """Wait until the wanted events can be read, since they are counted earlier; return them."""
    batches: list[Samples] = []

    def missing() -> str | None:
        batches.append(taken.read())
        came = sum(map(len, batches))
        return None if came >= wanted else f"{came} of {wanted} can be read"

    eventually(missing)
    return np.concatenate(batches)


def _other_copies(taken: Subscription, wanted: tuple[int, ...]) -> str | None:
    copies = taken.ledger().copies
    return None if copies == wanted else f"copies {copies} instead of {wanted}"


def _uncounted_of_paths(taken: Subscription, wanted: int) -> str | None:
    """Return a complaint while fewer events are counted on either path; counting begins late."""
    counted = [path.delivered for path in taken.ledger().paths if path.is_counted]
    is_whole = len(counted) == 2 and min(counted) >= wanted
    return None if is_whole else f"by the paths came {counted}"


def _short_of(taken: Subscription, wanted: int) -> str | None:
    ledger = taken.ledger()
    came = ledger.delivered + ledger.recovered
    return None if came >= wanted else f"{came} of {wanted} came"
