"""Facts for people: budgets that add up, what is scarce, and the survey of the cloud."""

from __future__ import annotations

import json

import pytest

from gridstat.broker.capacity.allocator import Allocator
from gridstat.broker.capacity.explanation import (
    bottleneck_facts,
    channel_facts,
    contract_facts,
    path_facts,
    rounded,
    router_facts,
    utilisation,
    variable_channel_facts,
)
from gridstat.model.errors import NoSuchSubscription
from gridstat.model.qos import QosRequest
from tests.unit.broker.clouds import LADDER, LINE, ask, cloud, grant, variable


def test_the_parts_of_a_budget_add_up_to_the_prediction() -> None:
    allocator = Allocator(cloud(LADDER, bandwidth=100_000))
    qos = QosRequest(redundancy=2, latency_us=60_000)
    contract = grant(allocator, ask(1, variable(), ("e0 e1", "e2 e3"), qos))
    for path in contract.paths:
        facts = path_facts(allocator.resources, path, 60_000)
        assert sum(part["latency_us"] for part in facts["parts"]) == facts["latency_us"]
        assert facts["spare_us"] == 60_000 - facts["latency_us"]
        assert facts["latency_us_granted"] == facts["latency_us"]
        # The ends, each router, and each channel between them.
        assert len(facts["parts"]) == 1 + 2 * len(path.routers) - 1


def test_a_contract_is_explained_with_granted_paths_and_bottleneck() -> None:
    allocator = Allocator(cloud(LINE, bandwidth=10_000))
    grant(allocator, ask(1, variable(), ("a", "c"), QosRequest(every=2), subscriber="c1/ems"))
    facts = contract_facts(allocator, 1)
    assert facts["subscriber"] == "c1/ems"
    assert facts["granted"][0]["every"] == 2
    assert facts["paths"][0]["routers"] == ["a", "b", "c"]
    assert facts["bottleneck"]["what"] == "channel a→b"
    assert (facts["bottleneck"]["used"], facts["bottleneck"]["capacity"]) == (1_120, 10_000)
    assert json.loads(json.dumps(facts))["degraded"] == []


def test_the_most_utilised_element_is_the_bottleneck() -> None:
    allocator = Allocator(cloud(LINE, events_per_s_max=100))
    contract = grant(allocator, ask(1, variable(), ("a", "c"), QosRequest(every=3)))
    facts = bottleneck_facts(allocator.resources, contract)
    # 30 in from the publisher and 10 out load the first router most.
    assert facts == {
        "what": "router a",
        "used": 40,
        "capacity": 100,
        "unit": "events/s",
        "utilisation": 0.4,
    }


@pytest.mark.feature("S3-46")
def test_capacity_used_and_free_of_a_channel_follow_each_admission() -> None:
    allocator = Allocator(cloud(LINE, bandwidth=10_000))
    idle = channel_facts(allocator.resources, 1)
    assert (idle["bytes_per_s"], idle["free_bytes_per_s"]) == (0, 9_900)
    grant(allocator, ask(1, variable(), ("a", "c")))
    used = channel_facts(allocator.resources, 1)
    assert (used["bytes_per_s"], used["free_bytes_per_s"]) == (2_040, 7_860)
    assert (used["variables"], used["paths"], used["burst_events"]) == (1, 1, 1)
    allocator.release(1)
    assert channel_facts(allocator.resources, 1) == idle


def test_a_channel_without_a_declared_bandwidth_has_no_free_one() -> None:
    resources = cloud(LINE)
    assert channel_facts(resources, 1)["free_bytes_per_s"] is None
    assert utilisation(resources, 1) == 0


def test_states_are_shown_where_they_stand() -> None:
    resources = cloud(LINE)
    resources.mark_back_pressure(1, is_on=True)
    resources.mark_channel(3, is_up=False)
    resources.mark_router("b", is_up=False)
    assert channel_facts(resources, 1)["is_back_pressured"]
    assert not channel_facts(resources, 3)["is_up"]
    assert not router_facts(resources, "b")["is_up"]


def test_a_router_is_shown_with_its_load_variables_and_paths() -> None:
    allocator = Allocator(cloud(LINE))
    grant(allocator, ask(1, variable(1), ("a", "c")))
    grant(allocator, ask(2, variable(2), ("b", "c")))
    facts = router_facts(allocator.resources, "b")
    assert (facts["variables"], facts["paths"], facts["events_per_s"]) == (2, 2, 120)


def test_the_channels_of_a_variable_tell_who_takes_it_how_often() -> None:
    allocator = Allocator(cloud(LINE))
    grant(allocator, ask(1, variable(), ("a", "c"), {0: QosRequest(every=3)}))
    grant(allocator, ask(2, variable(), ("a", "b"), {2: QosRequest(every=2)}))
    first, second = variable_channel_facts(allocator.resources, 1)
    assert first["divisors"] == {0: [3], 2: [2]}
    assert first["variable_events_per_s"] == {0: 10, 2: 10}
    assert second["divisors"] == {0: [3]}


def test_numbers_for_people_are_whole_or_short() -> None:
    allocator = Allocator(cloud(LINE))
    grant(allocator, ask(1, variable(1, 100), ("a", "c"), QosRequest(every=3)))
    assert rounded(allocator.resources.channel(1).bytes.value) == 2_266.666667


def test_a_contract_that_is_not_there_cannot_be_explained() -> None:
    with pytest.raises(NoSuchSubscription):
        contract_facts(Allocator(cloud(LINE)), 3)
