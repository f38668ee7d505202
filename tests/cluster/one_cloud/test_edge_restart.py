"""Edge routers that were killed: end-points attach again and receive the new ports."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

import pytest

from gridstat.endpoint.options import qos
from gridstat.model.status import BuiltinType
from tests.cluster.eventually import eventually
from tests.cluster.one_cloud.cloud import EAST, WEST, Cloud, cloud_text
from tests.cluster.one_cloud.streams import Stream, slots_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gridstat.endpoint.connection import Connection
    from gridstat.endpoint.subscriber import Subscription

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
EDGE_WAS_RESTARTED = 4


@pytest.fixture
def own_cloud(tmp_path: Path) -> Iterator[Cloud]:
    """The cloud of the other tests keeps its processes."""
    with Cloud(tmp_path / "cloud", cloud_text()) as running:
        running.start()
        yield running


@pytest.mark.feature("S0-120")
def test_end_points_of_a_killed_edge_are_told_code_4_and_its_new_ports(
    own_cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    publisher = own_cloud.connect("c1/north/pmu", WEST[:1])
    subscriber = own_cloud.connect("c1/centre/desk", EAST[:1])
    stream = publisher.publish("value", BuiltinType.FLOAT64, rate=60)
    taken = subscriber.subscribe(stream.name, qos=qos(latency_ms=5_000), keep_events=65_536)
    number = taken.contract.subscription_id
    caplog.set_level(logging.INFO)
    for edge, end_point in ((WEST[0], publisher), (EAST[0], subscriber)):
        with Stream(stream):
            eventually(lambda: _silence(taken))
        before = ports_of(own_cloud, edge)
        kill_and_restart(own_cloud, edge, end_point)
        assert not ports_of(own_cloud, edge) & before
        told = re.findall(rf"attached edge={edge} code=(\d+)", caplog.text)
        assert [int(code) for code in told] == [EDGE_WAS_RESTARTED]
        slots_of(taken)
        with Stream(stream):
            eventually(lambda: _silence(taken))
    assert taken.contract.subscription_id == number
    assert (taken.is_over, taken.error_code) == (False, 0)


def kill_and_restart(cloud: Cloud, edge: str, end_point: Connection) -> None:
    """Kill and restart an edge; its only end-point loses it in between, and attaches again."""
    daemon = cloud.daemons[edge.partition("/")[2]]
    daemon.kill()
    eventually(lambda: "it is still connected" if end_point.is_connected else None)
    daemon.start()
    daemon.wait_ready()
    eventually(lambda: None if end_point.is_connected else "it is not connected")
    eventually(cloud.complaint)


def ports_of(cloud: Cloud, edge: str) -> set[str]:
    """Return the ports at which an edge receives events, from its ready line."""
    output = cloud.daemons[edge.partition("/")[2]].output
    (ports,) = re.findall(r"data port (\d+), urgent port (\d+)", output)
    return set(ports)


def _silence(taken: Subscription) -> str | None:
    return None if slots_of(taken) else "nothing has come"
