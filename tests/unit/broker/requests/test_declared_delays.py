"""Declared delays of publications: allowed by a rule, ordered at the first router, charged."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gridstat.broker.settings import AccessSettings, BrokerSettings
from gridstat.model.errors import LatencyNotSatisfiable, LayoutError, NotAuthorised
from gridstat.model.qos import QosRequest
from gridstat.model.stamp_law import DELAY_MS_DEFAULT
from lab.open_access import OPEN_RULE
from tests.unit.broker.conversation import Conversation, pair, refusal
from tests.unit.broker.stand_ins import CENTRE, CLOUD, PMU, publish, subscribe, variable

if TYPE_CHECKING:
    from gridstat.model.access_rules import AccessRule

NAME = f"{PMU}/load"


def cloud_with(*rules: AccessRule) -> Conversation:
    return pair(settings=BrokerSettings(CLOUD, access=AccessSettings(rules=rules)))


def test_a_longer_delay_needs_a_rule_that_says_so() -> None:
    cloud = cloud_with(replace(OPEN_RULE, delay_ms_max=2_000))
    refused = refusal(cloud.ask(PMU, "c1/e0", publish(variable(NAME, delay_ms=2_001))))
    assert refused.code == NotAuthorised.code
    assert "up to 2000 ms late, not 2001" in refused.reason
    assert "delay_ms_max = 2001" in refused.hint
    assert cloud.publish(NAME, "c1/e0", delay_ms=2_000).delay_ms == 2_000


def test_a_rule_for_other_names_allows_no_delay_here() -> None:
    plain = replace(OPEN_RULE, delay_ms_max=DELAY_MS_DEFAULT)
    elsewhere = replace(OPEN_RULE, identifier="slow", what="c1/other/**")
    cloud = cloud_with(plain, elsewhere)
    refused = refusal(cloud.ask(PMU, "c1/e0", publish(variable(NAME, delay_ms=200))))
    assert refused.code == NotAuthorised.code


def test_a_declared_delay_is_part_of_the_predicted_latency() -> None:
    cloud = cloud_with(OPEN_RULE)
    cloud.publish(NAME, "c1/e0", delay_ms=2_000)
    refused = refusal(cloud.ask(CENTRE, "c1/e2", subscribe(NAME, QosRequest(latency_us=1_500_000))))
    assert refused.code == LatencyNotSatisfiable.code
    granted = cloud.subscribe(CENTRE, "c1/e2", NAME, QosRequest(latency_us=2_500_000))
    assert all(path.latency_us > 2_000_000 for path in granted.paths)


def test_the_default_delay_costs_no_latency() -> None:
    cloud = cloud_with(OPEN_RULE)
    cloud.publish(NAME, "c1/e0")
    granted = cloud.subscribe(CENTRE, "c1/e2", NAME, QosRequest(latency_us=50_000))
    assert all(path.latency_us < 50_000 for path in granted.paths)


def test_only_the_first_routers_that_know_the_delay_are_ordered_it() -> None:
    cloud = cloud_with(OPEN_RULE)
    cloud.publish(NAME, "c1/e0", delay_ms=700)
    cloud.subscribe(CENTRE, "c1/e2", NAME, QosRequest(redundancy=2))
    cloud.broker.tables.set_delay_support(
        "c1/e0",
        [each.variable for each in cloud.broker.registry.publications.values()],
        is_supported=True,
    )
    wanted = {
        router: order.delay_ms
        for router in cloud.routers
        for order in cloud.broker.tables[router].wanted.variables.values()
    }
    assert wanted.pop("c1/e0") == 700
    assert set(wanted.values()) == {0}, "the others carry it on, or are of an earlier release"


@pytest.mark.parametrize("delay_ms", [0, 99, 10_001])
def test_a_delay_is_from_the_default_to_ten_seconds(delay_ms: int) -> None:
    with pytest.raises(LayoutError, match="delay_ms"):
        variable(NAME, delay_ms=delay_ms)


def test_a_replayed_variable_has_no_delay_to_declare() -> None:
    with pytest.raises(LayoutError, match="replayed or belated"):
        variable(NAME, delay_ms=500, replay_speed=2)
