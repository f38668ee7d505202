"""The detection time of a contract: the longest silence limit over the channels of its paths."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gridstat.broker.settings import BrokerSettings
from gridstat.broker.tables.detection import longest
from gridstat.console.cli.explain import explained_subscription
from gridstat.model.probe_law import ProbeSettings
from gridstat.model.qos import QosRequest
from gridstat.net.command.machine import Received
from gridstat.net.command.messages import Explain
from tests.unit.broker.conversation import Conversation, pair
from tests.unit.broker.stand_ins import CENTRE, CLOUD, PMU, VOLTAGE, ring

NARROW_BYTES_PER_S = 64_000
"""512 kbit/s: an interval of 94 ms, and a limit of 376."""


def explained(cloud: Conversation) -> dict[str, Any]:
    cloud.tell(Received("operator/c1/alice", Explain(request_id=8, name=VOLTAGE)))
    (facts,) = cloud.operator_answers[-1].facts["subscriptions"]
    assert isinstance(facts, dict)
    return facts


@pytest.mark.parametrize(
    ("bandwidth_bytes_per_s", "detection_ms"), [(0, 100), (NARROW_BYTES_PER_S, 376), (10**9, 100)]
)
def test_a_grant_states_the_silence_limit_of_its_channels(
    bandwidth_bytes_per_s: int, detection_ms: int
) -> None:
    cloud = pair(bandwidth_bytes_per_s=bandwidth_bytes_per_s)
    cloud.publish(VOLTAGE, "c1/e0")
    assert cloud.subscribe(CENTRE, "c1/e2", VOLTAGE).detection_ms == detection_ms
    facts = explained(cloud)
    assert facts["detection_ms"] == detection_ms
    line = f"    a dead channel is noticed after {detection_ms} ms of silence"
    assert line in list(explained_subscription(facts))


def test_an_operator_who_allows_a_longer_silence_is_stated() -> None:
    cloud = pair(settings=BrokerSettings(CLOUD, probes=ProbeSettings(125, 500)))
    cloud.publish(VOLTAGE, "c1/e0")
    assert cloud.subscribe(CENTRE, "c1/e2", VOLTAGE).detection_ms == 500


def test_the_slowest_channel_of_all_paths_counts() -> None:
    routers, channels = ring()
    cloud = Conversation(
        (
            routers,
            [
                replace(channel, bandwidth_bytes_per_s=NARROW_BYTES_PER_S)
                if "c1/i1" in (channel.from_router, channel.to_router)
                else channel
                for channel in channels
            ],
        )
    ).start()
    cloud.attach(PMU, "c1/e0", data_port=0)
    cloud.attach(CENTRE, "c1/e2")
    cloud.publish(VOLTAGE, "c1/e0")
    both = QosRequest(redundancy=2)
    assert cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, both).detection_ms == 376


def test_a_channel_that_is_not_probed_makes_the_detection_time_unknown() -> None:
    cloud = Conversation(ring(security="none"))
    for router in cloud.routers.values():
        router.versions, router.endpoint_security = (1,), "none"
    cloud.start()
    cloud.attach(PMU, "c1/e0", data_port=0, security="none")
    cloud.attach(CENTRE, "c1/e2", security="none")
    cloud.publish(VOLTAGE, "c1/e0")
    assert cloud.subscribe(CENTRE, "c1/e2", VOLTAGE).detection_ms is None
    assert any("is unknown" in line for line in explained_subscription(explained(cloud)))


def test_a_contract_without_a_channel_has_nothing_to_detect() -> None:
    cloud = pair()
    cloud.attach("c1/near", "c1/e0")
    cloud.publish(VOLTAGE, "c1/e0")
    granted = cloud.subscribe("c1/near", "c1/e0", VOLTAGE)
    assert granted.paths[0].channel_ids == ()
    assert granted.detection_ms == 0


def test_one_unknown_limit_makes_the_longest_unknown() -> None:
    assert longest([100, 376, 0]) == 376
    assert longest([100, None, 376]) is None
    assert longest([]) == 0
