"""A broker whose disk takes nothing more promises nothing more; events flow, and it recovers."""

from __future__ import annotations

import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from gridstat.endpoint.options import qos
from gridstat.model.errors import GridStatError, StorageFailed
from gridstat.model.status import BuiltinType
from lab.declared_delay import DELAY_MS
from tests.cluster.eventually import eventually
from tests.cluster.one_cloud.cloud import EAST, WEST
from tests.cluster.one_cloud.streams import Stream, slots_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.endpoint.connection import Connection
    from tests.cluster.one_cloud.cloud import Cloud

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


@contextmanager
def full_disk(process_id: int) -> Iterator[None]:
    """No file of the process may grow: every write beyond what there is fails."""
    before = resource.prlimit(process_id, resource.RLIMIT_FSIZE)
    resource.prlimit(process_id, resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        yield
    finally:
        resource.prlimit(process_id, resource.RLIMIT_FSIZE, before)


def test_a_full_disk_refuses_contracts_and_costs_no_event(cloud: Cloud) -> None:
    publisher = cloud.connect("c1/disk/pmu", WEST)
    subscriber = cloud.connect("c1/disk/desk", EAST)
    stream = publisher.publish("value", BuiltinType.FLOAT64, rate=60, delay_ms=DELAY_MS)
    taken = subscriber.subscribe(stream.name, qos=qos(redundancy=2), keep_events=65_536)
    with Stream(stream) as sending:
        eventually(lambda: sending.complaint_below(20))
        with full_disk(cloud.daemons["broker"].pid):
            with pytest.raises(StorageFailed) as refused:
                subscriber.subscribe(stream.name, qos=qos(rate=1))
            assert refused.value.hint
            assert len(cloud.explain(stream.name)["subscriptions"]) == 1
        eventually(lambda: _complaint_of_asking(subscriber, stream.name))
        before = len(sending.sent)
        eventually(lambda: sending.complaint_below(before + 30))
    got: list[int] = []

    def missing() -> str | None:
        got.extend(slots_of(taken))
        lost = set(sending.sent) - set(got)
        return f"{len(lost)} of {len(sending.sent)} lost" if lost else None

    eventually(missing)


def _complaint_of_asking(subscriber: Connection, name: str) -> str | None:
    try:
        subscriber.subscribe(name, qos=qos(rate=1)).unsubscribe()
    except GridStatError as error:
        return str(error)
    return None
