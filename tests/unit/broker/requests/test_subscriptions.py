"""Subscribing by name and by pattern: types, quotas, intervals, refusals, silent routers."""

from __future__ import annotations

import pytest

from gridstat.broker.settings import BrokerSettings, Quotas
from gridstat.model.errors import (
    ChannelFull,
    IntervalNotSatisfiable,
    LatencyNotSatisfiable,
    LayoutError,
    NoSuchVariable,
    NotAttached,
    QuotaReached,
    RedundancyNotSatisfiable,
    TypeMismatch,
)
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType
from gridstat.net.command.endpoint_messages import (
    GrantedOutcome,
    Matched,
    RefusedOutcome,
    Subscribe,
    SubscriptionRequest,
    Unpublish,
    Unpublished,
    Unsubscribe,
)
from tests.unit.broker.conversation import Conversation, pair, refusal
from tests.unit.broker.stand_ins import (
    CENTRE,
    CLOUD,
    EVERY_MODE,
    PMU,
    VOLTAGE,
    publish,
    subscribe,
    variable,
)


@pytest.fixture
def cloud() -> Conversation:
    found = pair(settings=BrokerSettings(CLOUD, modes_defined=EVERY_MODE))
    found.publish(VOLTAGE, "c1/e0")
    return found


@pytest.mark.feature("S0-21")
def test_a_subscriber_that_expects_another_type_is_refused(cloud: Conversation) -> None:
    asked = subscribe(VOLTAGE, value_type=BuiltinType.INT64)
    refused = refusal(cloud.ask(CENTRE, "c1/e2", asked))
    assert refused.code == TypeMismatch.code
    assert "float64" in refused.reason
    outcomes = cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE, value_type=BuiltinType.FLOAT64))
    assert isinstance(outcomes[0], GrantedOutcome)


def test_a_type_that_is_none_is_refused(cloud: Conversation) -> None:
    refused = refusal(cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE, value_type={"name": 1})))
    assert refused.code == LayoutError.code


def test_an_unknown_variable_is_refused_by_its_code(cloud: Conversation) -> None:
    refused = refusal(cloud.ask(CENTRE, "c1/e2", subscribe(f"{PMU}/nothing")))
    assert refused.code == NoSuchVariable.code
    assert "pattern" in refused.hint


@pytest.mark.feature("S3-37")
def test_subscribing_before_attaching_is_refused(cloud: Conversation) -> None:
    refused = refusal(cloud.ask("c1/new", "c1/e2", subscribe(VOLTAGE)))
    assert refused.code == NotAttached.code


def test_a_subscriber_without_a_port_is_told_so(cloud: Conversation) -> None:
    refused = refusal(cloud.ask(PMU, "c1/e0", subscribe(VOLTAGE)))
    assert refused.code == LayoutError.code
    assert "port" in refused.reason


@pytest.mark.feature("S0-63")
def test_an_interval_is_rounded_down_to_a_multiple_and_reported(cloud: Conversation) -> None:
    cloud.publish(f"{PMU}/fast", "c1/e0", period=Period(1, 100))
    granted = cloud.subscribe(
        CENTRE, "c1/e2", f"{PMU}/fast", QosRequest(interval=Period(25, 1_000))
    )
    assert granted.granted[0].every == 2
    assert {order.every for order in cloud.path_orders("c1/e0")} <= {2}
    refused = refusal(
        cloud.ask(CENTRE, "c1/e2", subscribe(f"{PMU}/fast", QosRequest(interval=Period(1, 200))))
    )
    assert refused.code == IntervalNotSatisfiable.code


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (QosRequest(latency_us=1), LatencyNotSatisfiable.code),
        (QosRequest(redundancy=4), RedundancyNotSatisfiable.code),
    ],
)
def test_what_the_cloud_cannot_do_is_refused_by_its_own_code(
    cloud: Conversation, request_: QosRequest, code: int
) -> None:
    cloud.attach("c1/centre/lone", "c1/e2")  # Two channels lead there, so at most two paths.
    refused = refusal(cloud.ask("c1/centre/lone", "c1/e2", subscribe(VOLTAGE, request_)))
    assert refused.code == code
    assert refused.bottleneck
    assert cloud.broker.registry.subscriptions == {}


@pytest.mark.feature("S0-4")
def test_residuals_match_the_hand_calculation() -> None:
    bandwidth = 20_000
    cloud = pair(bandwidth_bytes_per_s=bandwidth)
    cloud.publish(VOLTAGE, "c1/e0")
    resources = cloud.broker.reservations.resources

    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(every=2))

    # 28 bytes of IP and UDP, 16 of the datagram, 24 of the event; half of sixty a second.
    charged = (28 + 16 + 24) * 30
    used = {number for path in granted.paths for number in path.channel_ids}
    for number, carriage in resources.channels.items():
        assert carriage.bytes.value == (charged if number in used else 0)
    first, *_, last = granted.paths[0].routers
    assert resources.router(first).events.value == 60 + 30
    assert resources.router(last).events.value == 30 + 30


def test_a_full_channel_is_named_with_what_is_missing() -> None:
    cloud = pair(bandwidth_bytes_per_s=5_000)
    names = [cloud.publish(f"{PMU}/v{number}", "c1/e0").name for number in range(10)]
    outcomes = cloud.ask(CENTRE, "c1/e2", subscribe(*names))

    refused = [outcome for outcome in outcomes if isinstance(outcome, RefusedOutcome)]
    assert refused
    assert {outcome.code for outcome in refused} == {ChannelFull.code}
    assert all("→" in outcome.bottleneck and outcome.shortfall for outcome in refused)
    assert len(cloud.broker.registry.subscriptions) == len(outcomes) - len(refused)


@pytest.mark.feature("S0-60")
def test_a_second_subscription_at_the_same_edge_costs_only_its_own_path_orders(
    cloud: Conversation,
) -> None:
    cloud.attach("c1/centre/logger", "c1/e2", data_port=8_000)
    first = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    (path,) = first.paths
    before = {
        name: (dict(router.table.variables), dict(router.table.channels), set(router.table.paths))
        for name, router in cloud.routers.items()
    }
    promised = {
        number: carriage.bytes.value
        for number, carriage in cloud.broker.reservations.resources.channels.items()
    }

    edge = path.routers[-1]
    if edge != "c1/e2":  # The first may have taken its second edge.
        cloud.attach("c1/centre/logger", edge, data_port=8_000)
    second = cloud.subscribe("c1/centre/logger", "c1/e2", VOLTAGE)

    assert second.paths[0].channel_ids == path.channel_ids
    for name, router in cloud.routers.items():
        variables, _, paths = before[name]
        assert router.table.variables == variables
        new = [order for number, order in router.table.paths.items() if number not in paths]
        assert len(new) == (1 if name in path.routers else 0)
    after = {
        number: carriage.bytes.value
        for number, carriage in cloud.broker.reservations.resources.channels.items()
    }
    assert after == promised


def test_only_the_edges_of_subscribers_keep_the_newest_event(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(redundancy=2))
    last = {path.routers[-1] for path in granted.paths}
    keeping = {
        name
        for name, router in cloud.routers.items()
        if any(order.keeps_newest for order in router.table.variables.values())
    }
    assert keeping == last


def test_an_end_point_has_a_quota_of_subscriptions() -> None:
    cloud = pair(settings=BrokerSettings(CLOUD, quotas=Quotas(subscriptions_max=1)))
    cloud.publish(VOLTAGE, "c1/e0")
    outcomes = cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE, VOLTAGE))
    assert isinstance(outcomes[0], GrantedOutcome)
    assert isinstance(outcomes[1], RefusedOutcome)
    assert outcomes[1].code == QuotaReached.code


def test_too_many_qualities_over_the_modes_are_refused(cloud: Conversation) -> None:
    modes = {mode: QosRequest(every=2**mode, priority=1 + mode % 6) for mode in range(20)}
    request = SubscriptionRequest(name=VOLTAGE, qos=ModalQos(modes))
    refused = refusal(cloud.ask(CENTRE, "c1/e2", Subscribe(subscriptions=(request,))))
    assert refused.code == LayoutError.code
    assert all(not one.bytes for one in cloud.broker.reservations.resources.channels.values())


# Routers that keep silent.


def test_a_pattern_catches_what_is_there_and_what_comes_later(cloud: Conversation) -> None:
    cloud.attach("c1/south/pmu", "c1/e1", data_port=0)
    (pattern,) = cloud.ask(CENTRE, "c1/e2", subscribe("c1/*/pmu/voltage"))
    assert isinstance(pattern, GrantedOutcome)
    assert pattern.variable is None

    cloud.publish("c1/south/pmu/voltage", "c1/e1")
    cloud.publish("c1/south/pmu/current", "c1/e1")

    matched = _matched(cloud)
    assert [found.granted.variable.name for found in matched if found.granted.variable] == [
        VOLTAGE,
        "c1/south/pmu/voltage",
    ]
    assert {found.pattern_id for found in matched} == {pattern.subscription_id}
    assert all(found.granted.paths for found in matched)
    assert len(cloud.broker.registry.subscriptions) == 2


def test_a_pattern_with_a_type_catches_only_that_type(cloud: Conversation) -> None:
    cloud.ask(CENTRE, "c1/e2", subscribe("c1/**", value_type=BuiltinType.INT64))
    cloud.publish(f"{PMU}/count", "c1/e0", value_type=BuiltinType.INT64)
    assert [found.granted.variable.name for found in _matched(cloud) if found.granted.variable] == [
        f"{PMU}/count"
    ]


def test_a_pattern_outlives_the_variables_that_it_caught(cloud: Conversation) -> None:
    cloud.ask(CENTRE, "c1/e2", subscribe("c1/**"))
    cloud.ask(PMU, "c1/e0", Unpublish(names=(VOLTAGE,)))
    assert any(isinstance(found, Unpublished) for found in cloud.notices[CENTRE])
    cloud.publish(VOLTAGE, "c1/e0")
    assert len(_matched(cloud)) == 2


def test_the_end_of_a_pattern_ends_all_that_it_caught(cloud: Conversation) -> None:
    (pattern,) = cloud.ask(CENTRE, "c1/e2", subscribe("c1/**"))
    assert isinstance(pattern, GrantedOutcome)
    single = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)

    cloud.ask(CENTRE, "c1/e2", Unsubscribe(subscription_ids=(pattern.subscription_id,)))
    cloud.publish(f"{PMU}/later", "c1/e0")

    assert list(cloud.broker.registry.subscriptions) == [single.subscription_id]


def test_a_pattern_says_what_it_could_not_catch(cloud: Conversation) -> None:
    (pattern,) = cloud.ask(CENTRE, "c1/e2", subscribe("c1/**", QosRequest(latency_us=1)))
    assert isinstance(pattern, GrantedOutcome)
    assert len(pattern.degraded) == 1
    assert VOLTAGE in pattern.degraded[0]


def test_a_pattern_that_is_not_understood_is_refused(cloud: Conversation) -> None:
    refused = refusal(cloud.ask(CENTRE, "c1/e2", subscribe("c1/**/voltage")))
    assert refused.code == LayoutError.code


def test_patterns_survive_a_restart_of_the_broker(cloud: Conversation) -> None:
    cloud.ask(CENTRE, "c1/e2", subscribe("c1/*/pmu/*"))
    cloud.kill_broker()
    cloud.start()
    cloud.ask(PMU, "c1/e0", publish(variable(f"{PMU}/later")))
    names = [found.granted.variable.name for found in _matched(cloud) if found.granted.variable]
    assert names == [VOLTAGE, f"{PMU}/later"]


def _matched(cloud: Conversation) -> list[Matched]:
    """Return the matched variables once each, though they come by each of the edges."""
    found: list[Matched] = []
    for notice in cloud.notices.get(CENTRE, []):
        if isinstance(notice, Matched) and notice not in found:
            found.append(notice)
    return found
