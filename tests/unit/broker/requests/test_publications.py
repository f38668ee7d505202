"""Publishing: names, types, periods, alerts, identifiers; and withdrawing, always accepted."""

from __future__ import annotations

import pytest

from gridstat.broker.settings import BrokerSettings, Quotas
from gridstat.model.errors import (
    IntervalNotSatisfiable,
    LayoutError,
    NotAttached,
    NotAuthorised,
    NotPublished,
    QuotaReached,
    RouterFull,
    VariableExists,
)
from gridstat.model.qos import PRIORITY_REPLAY, QosRequest
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, DerivedValue, Field, FieldKind, RecordType
from gridstat.net.command.endpoint_messages import (
    DoneOutcome,
    PublishedOutcome,
    RefusedOutcome,
    Unpublish,
    Unpublished,
)
from tests.unit.broker.conversation import Conversation, pair, refusal
from tests.unit.broker.stand_ins import CENTRE, CLOUD, PMU, VOLTAGE, publish, variable


@pytest.fixture
def cloud() -> Conversation:
    return pair()


def test_a_variable_is_registered_with_an_identifier_of_its_own(cloud: Conversation) -> None:
    asked = variable(
        VOLTAGE,
        value_type=RecordType("phasor", (Field("magnitude", FieldKind.FLOAT32),)),
        period=Period(1, 50),
        phase_ns=5_000_000,
        derived=(DerivedValue("average", BuiltinType.FLOAT64),),
    )
    (outcome,) = cloud.ask(PMU, "c1/e0", publish(asked))

    assert isinstance(outcome, PublishedOutcome)
    registered = outcome.variable
    assert registered.variable_id > 0
    assert (registered.value_type, registered.derived) == (asked.value_type, asked.derived)
    for edge in ("c1/e0", "c1/e1"):
        order = cloud.routers[edge].table.variables[registered.variable_id]
        up = cloud.broker.registry.endpoints[PMU].attachments[edge].up_channel_id
        assert (order.period, order.phase_ns, order.source) == (Period(1, 50), 5_000_000, up)


@pytest.mark.feature("S0-27")
def test_an_alert_is_registered_with_its_minimum_interval(cloud: Conversation) -> None:
    alarm = cloud.publish(
        f"{PMU}/alarm", "c1/e0", period=None, is_alert=True, interval_ns_min=100_000_000
    )
    order = cloud.routers["c1/e0"].table.variables[alarm.variable_id]
    assert (order.is_urgent, order.interval_ns_min, order.period) == (True, 100_000_000, None)


def test_an_aperiodic_variable_that_nothing_bounds_is_refused(cloud: Conversation) -> None:
    refused = refusal(cloud.ask(PMU, "c1/e0", publish(variable(VOLTAGE, period=None))))
    assert refused.code == IntervalNotSatisfiable.code


@pytest.mark.feature("S0-26")
def test_a_name_is_published_once(cloud: Conversation) -> None:
    cloud.publish(VOLTAGE, "c1/e0")
    refused = refusal(cloud.ask(PMU, "c1/e1", publish(variable(VOLTAGE))))
    assert refused.code == VariableExists.code


@pytest.mark.parametrize("name", ["c1/south/pmu/voltage", "c1/north/pmu", "c1/north/pmu2/v"])
def test_a_publisher_publishes_only_below_its_own_name(cloud: Conversation, name: str) -> None:
    refused = refusal(cloud.ask(PMU, "c1/e0", publish(variable(name))))
    assert (refused.code, "rule name" in refused.reason) == (NotAuthorised.code, True)


@pytest.mark.parametrize("name", [PMU, VOLTAGE, f"{VOLTAGE}/angle"])
def test_nobody_publishes_what_lies_below_another_end_point(cloud: Conversation, name: str) -> None:
    station = PMU.rpartition("/")[0]
    cloud.attach(station, "c1/e0", data_port=0)
    refused = refusal(cloud.ask(station, "c1/e0", publish(variable(name))))
    assert (refused.code, "rule name" in refused.reason) == (NotAuthorised.code, True)
    cloud.publish(VOLTAGE, "c1/e0")
    cloud.publish(f"{station}/frequency", "c1/e0")


def test_a_name_with_a_wildcard_is_refused(cloud: Conversation) -> None:
    refused = refusal(cloud.ask(PMU, "c1/e0", publish(variable(f"{PMU}/*"))))
    assert refused.code == LayoutError.code


@pytest.mark.feature("S3-32")
def test_publishing_before_attaching_is_refused(cloud: Conversation) -> None:
    refused = refusal(cloud.ask("c1/new", "c1/e0", publish(variable("c1/new/v"))))
    assert refused.code == NotAttached.code


def test_each_of_many_has_an_outcome_of_its_own(cloud: Conversation) -> None:
    wanted = [f"{PMU}/a", f"{PMU}/a", "c1/elsewhere/b", f"{PMU}/c"]
    outcomes = cloud.ask(PMU, "c1/e0", publish(*(variable(name) for name in wanted)))

    kinds = [type(outcome) for outcome in outcomes]
    assert kinds == [PublishedOutcome, RefusedOutcome, RefusedOutcome, PublishedOutcome]
    assert sorted(cloud.broker.registry.publications) == [f"{PMU}/a", f"{PMU}/c"]


def test_an_end_point_has_a_quota_of_publications() -> None:
    settings = BrokerSettings(CLOUD, quotas=Quotas(publications_max=1))
    cloud = pair(settings=settings)
    cloud.publish(VOLTAGE, "c1/e0")
    refused = refusal(cloud.ask(PMU, "c1/e0", publish(variable(f"{PMU}/b"))))
    assert refused.code == QuotaReached.code


@pytest.mark.feature("S0-29", "S3-34")
def test_withdrawing_is_accepted_the_subscribers_are_told_and_the_paths_go(
    cloud: Conversation,
) -> None:
    voltage = cloud.publish(VOLTAGE, "c1/e0")
    other = cloud.publish(f"{PMU}/current", "c1/e0")
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(redundancy=2))
    kept = cloud.subscribe(CENTRE, "c1/e2", other.name)

    outcomes = cloud.ask(PMU, "c1/e0", Unpublish(names=(VOLTAGE, f"{PMU}/nothing")))

    assert outcomes[0] == DoneOutcome()
    assert isinstance(outcomes[1], RefusedOutcome)
    assert outcomes[1].code == NotPublished.code
    notice = Unpublished(subscription_id=granted.subscription_id, name=VOLTAGE)
    assert cloud.notices[CENTRE] == [notice, notice]  # Once by each of its edges.
    for router in cloud.routers.values():
        assert voltage.variable_id not in router.table.variables
        assert all(order.variable_id == other.variable_id for order in router.table.paths.values())
    assert list(cloud.broker.registry.subscriptions) == [kept.subscription_id]


def test_an_identifier_is_never_given_twice(cloud: Conversation) -> None:
    first = cloud.publish(VOLTAGE, "c1/e0")
    cloud.ask(PMU, "c1/e0", Unpublish(names=(VOLTAGE,)))
    second = cloud.publish(VOLTAGE, "c1/e0")
    cloud.ask(PMU, "c1/e0", Unpublish(names=(VOLTAGE,)))
    cloud.kill_broker()
    cloud.start()
    third = cloud.publish(VOLTAGE, "c1/e0")

    assert first.variable_id < second.variable_id < third.variable_id


def test_a_second_edge_attached_later_carries_what_was_published_before() -> None:
    cloud = Conversation().start()
    cloud.attach(PMU, "c1/e0", data_port=0)
    voltage = cloud.publish(VOLTAGE, "c1/e0")

    (later,) = cloud.attach(PMU, "c1/e1", data_port=0)

    order = cloud.routers["c1/e1"].table.variables[voltage.variable_id]
    assert order.source == later.up_channel_id


@pytest.mark.parametrize("facts", [{"period": Period(1, 2**32 - 1)}, {"period": None}])
def test_more_often_than_every_microsecond_nothing_is_published(
    cloud: Conversation, facts: dict[str, Period | None]
) -> None:
    is_aperiodic = facts["period"] is None
    asked = variable(
        VOLTAGE, **facts, is_alert=is_aperiodic, interval_ns_min=999 if is_aperiodic else 0
    )
    answer = refusal(cloud.ask(PMU, "c1/e0", publish(asked)))
    assert answer.code == IntervalNotSatisfiable.code
    assert "longer period" in answer.hint


def test_what_the_edges_of_a_publisher_cannot_take_in_is_refused_with_the_shortfall(
    cloud: Conversation,
) -> None:
    accounts = cloud.broker.reservations.resources.routers
    before = {name: account.events.value for name, account in accounts.items()}
    fast = [variable(f"{PMU}/v{number}", period=Period(1, 400_000)) for number in range(3)]

    first, second, third = cloud.ask(PMU, "c1/e0", publish(*fast))

    assert isinstance(first, PublishedOutcome)
    assert isinstance(second, PublishedOutcome)
    assert isinstance(third, RefusedOutcome)
    assert (third.code, third.bottleneck) == (RouterFull.code, "router c1/e0")
    assert third.shortfall == "200000 events/s"
    assert accounts["c1/e1"].events.value == 800_000
    cloud.ask(PMU, "c1/e0", Unpublish(names=(fast[0].name, fast[1].name)))
    assert {name: account.events.value for name, account in accounts.items()} == before


def test_a_publisher_does_not_make_granted_contracts_late(cloud: Conversation) -> None:
    cloud.publish(VOLTAGE, "c1/e0")
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(latency_us=2_000))
    edge = granted.paths[0].routers[0]
    answer = refusal(
        cloud.ask(PMU, "c1/e0", publish(variable(f"{PMU}/flood", period=Period(1, 999_000))))
    )
    assert (answer.code, answer.bottleneck) == (RouterFull.code, f"router {edge}")
    assert cloud.broker.reservations.resources.router(edge).latency_us < 2_000


def test_a_replayed_variable_is_ordered_with_the_interval_that_bounds_its_pace(
    cloud: Conversation,
) -> None:
    replayed = cloud.publish(f"{PMU}/then", "c1/e0", period=Period(1, 50), replay_speed=10)
    assert replayed.is_replay
    for edge in ("c1/e0", "c1/e1"):
        order = cloud.routers[edge].table.variables[replayed.variable_id]
        assert (order.period, order.interval_ns_min) == (Period(1, 50), 2_000_000)
    granted = cloud.subscribe(CENTRE, "c1/e2", f"{PMU}/then")
    assert granted.granted[0].priority == PRIORITY_REPLAY
    assert {path.priority for path in cloud.path_orders("c1/e0")} == {PRIORITY_REPLAY}


def test_more_replay_than_an_edge_has_a_share_for_is_refused_and_live_is_not(
    cloud: Conversation,
) -> None:
    asked = [variable(f"{PMU}/{n}", period=Period(1, 100), replay_speed=1_000) for n in range(3)]
    first, second, third = cloud.ask(PMU, "c1/e0", publish(*asked))
    assert isinstance(first, PublishedOutcome)
    assert isinstance(second, PublishedOutcome)
    assert isinstance(third, RefusedOutcome)
    assert third.code == RouterFull.code
    live = variable(f"{PMU}/live", period=Period(1, 100_000))
    assert isinstance(cloud.ask(PMU, "c1/e0", publish(live))[0], PublishedOutcome)


@pytest.mark.parametrize("is_belated", [False, True])
def test_only_a_belated_alert_is_ordered_with_a_phase(
    cloud: Conversation, is_belated: bool
) -> None:
    alarm = cloud.publish(
        f"{PMU}/alarm",
        "c1/e0",
        period=None,
        is_alert=True,
        interval_ns_min=10**9,
        is_belated=is_belated,
    )
    assert cloud.routers["c1/e0"].table.variables[alarm.variable_id].phase_ns == is_belated
