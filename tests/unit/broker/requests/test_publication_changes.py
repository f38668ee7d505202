"""Change of a variable's period from an announced slot, without a gap, even in a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.broker.records.operations import SNAPSHOT_MARK
from gridstat.broker.requests.publication_changes import first_slot_ns
from gridstat.broker.settings import BrokerSettings
from gridstat.model.errors import (
    ChannelFull,
    IntervalNotSatisfiable,
    InvalidPeriod,
    NotPublished,
    Refused,
    RouterFull,
)
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.model.rate_law import NS_PER_S, Period, slot_of
from gridstat.net.command.endpoint_messages import (
    ChangePublication,
    ChangeSubscription,
    PublicationChanged,
    PublishedOutcome,
    Unpublish,
)
from gridstat.net.command.messages import ChannelStateChanged
from tests.unit.broker.conversation import Conversation, pair, refusal
from tests.unit.broker.stand_ins import CENTRE, PMU, VOLTAGE, WALL_NS, variable

if TYPE_CHECKING:
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import GrantedOutcome

FASTER = ChangePublication(name=VOLTAGE, period=Period(1, 120))


@pytest.fixture
def cloud() -> Conversation:
    return pair()


def published(cloud: Conversation) -> tuple[StatusVariable, GrantedOutcome]:
    voltage = cloud.publish(VOLTAGE, "c1/e0")
    return voltage, cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(redundancy=2))


def carried(cloud: Conversation, router: str) -> set[int]:
    return set(cloud.routers[router].table.variables)


@pytest.mark.feature("S0-75")
def test_publisher_and_subscribers_are_told_the_same_slot_well_ahead(cloud: Conversation) -> None:
    old, granted = published(cloud)

    (outcome,) = cloud.ask(PMU, "c1/e0", FASTER)

    assert isinstance(outcome, PublishedOutcome)
    new = outcome.variable
    assert (new.period, new.variable_id > old.variable_id) == (Period(1, 120), True)
    assert outcome.from_ns >= WALL_NS + cloud.settings.change_lead_ns
    (notice, again) = cloud.notices[CENTRE]
    assert notice == again
    assert isinstance(notice, PublicationChanged)
    assert (notice.subscription_id, notice.variable) == (granted.subscription_id, new)
    assert notice.from_ns == outcome.from_ns


def test_both_identifiers_are_carried_until_the_change_is_over(cloud: Conversation) -> None:
    old, granted = published(cloud)
    (outcome,) = cloud.ask(PMU, "c1/e0", FASTER)
    assert isinstance(outcome, PublishedOutcome)
    both = {old.variable_id, outcome.variable.variable_id}
    for path in granted.paths:
        for router in path.routers:
            assert carried(cloud, router) == both
            assert {order.variable_id for order in cloud.path_orders(router)} == both

    cloud.advance(10 * NS_PER_S)
    cloud.settle()

    for name in cloud.routers:
        assert carried(cloud, name) <= {outcome.variable.variable_id}
    assert cloud.broker.registry.changing == set()
    assert cloud.differing() == []


def test_nothing_is_announced_before_the_routers_carry_the_new_identifier(
    cloud: Conversation,
) -> None:
    published(cloud)
    for name in ("c1/i0", "c1/i1"):
        cloud.routers[name].is_silent = True
    assert cloud.ask(PMU, "c1/e0", FASTER) == ()
    assert CENTRE not in cloud.notices
    for name in ("c1/i0", "c1/i1"):
        cloud.confirm(name)
    assert isinstance(cloud.answers[PMU, cloud.request_id][0], PublishedOutcome)


@pytest.mark.parametrize("is_older", [True, False])
def test_the_end_of_a_change_leaves_paths_that_a_later_move_still_needs(
    cloud: Conversation, *, is_older: bool
) -> None:
    """A contract from before the change or after it moves to paths that nobody confirms yet."""
    old = cloud.publish(VOLTAGE, "c1/e0")
    if not is_older:
        cloud.ask(PMU, "c1/e0", FASTER)
    number = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE).subscription_id
    if is_older:
        cloud.ask(PMU, "c1/e0", FASTER)
    found = cloud.broker.registry.subscriptions[number]
    before = found.record
    routers = before.paths[0].routers
    for router in routers:
        cloud.routers[router].is_silent = True
    qos = ModalQos({0: QosRequest(every=3)})
    cloud.send(CENTRE, "c1/e2", ChangeSubscription(subscription_id=number, qos=qos))

    cloud.advance(10 * NS_PER_S)

    assert cloud.broker.registry.changing == set()
    assert [each.replaced for each in found.retiring] == [before]
    for router in routers:
        assert old.variable_id not in carried(cloud, router)
        paths = {order.path_id >> 8 & 0xFF for order in cloud.path_orders(router)}
        assert paths == {before.generation, found.record.generation}
    for router in routers:
        cloud.routers[router].is_silent = False
        cloud.confirm(router)
    cloud.advance(10 * NS_PER_S)
    assert not found.retiring
    assert cloud.differing() == []


def test_a_kill_in_the_middle_of_a_change_loses_neither_identifier(cloud: Conversation) -> None:
    old, granted = published(cloud)
    (outcome,) = cloud.ask(PMU, "c1/e0", FASTER)
    assert isinstance(outcome, PublishedOutcome)
    before = {name: len(router.changes) for name, router in cloud.routers.items()}

    cloud.kill_broker()
    cloud.start()

    assert {name: len(router.changes) for name, router in cloud.routers.items()} == before
    router = granted.paths[0].routers[0]
    assert old.variable_id in carried(cloud, router)
    (again,) = cloud.ask(PMU, "c1/e0", FASTER, request_id=cloud.request_id)
    assert again == outcome
    cloud.advance(10 * NS_PER_S)
    cloud.settle()
    assert carried(cloud, router) == {outcome.variable.variable_id}
    assert cloud.differing() == []


def test_a_kill_before_the_announcement_is_made_good_at_the_next_start(
    cloud: Conversation,
) -> None:
    old, granted = published(cloud)
    for name in ("c1/i0", "c1/i1"):
        cloud.routers[name].is_silent = True
    cloud.ask(PMU, "c1/e0", FASTER)
    for name in ("c1/i0", "c1/i1"):
        cloud.routers[name].is_silent = False
    cloud.kill_broker()
    cloud.start()

    assert old.variable_id in carried(cloud, granted.paths[0].routers[0])
    assert any(isinstance(notice, PublicationChanged) for notice in cloud.notices[CENTRE])
    (again,) = cloud.ask(PMU, "c1/e0", FASTER, request_id=cloud.request_id)
    assert isinstance(again, PublishedOutcome)
    assert again.from_ns > WALL_NS


def test_a_change_that_a_subscription_cannot_follow_is_refused_and_changes_nothing() -> None:
    cloud = pair(bandwidth_bytes_per_s=5_000)
    old, granted = published(cloud)
    before = {name: router.table.digest for name, router in cloud.routers.items()}

    refused = refusal(cloud.ask(PMU, "c1/e0", FASTER))

    assert refused.code == ChannelFull.code
    assert CENTRE in refused.reason
    registry = cloud.broker.registry
    assert registry.publications[VOLTAGE].variable == old
    assert registry.subscriptions[granted.subscription_id].record.generation == 0
    assert {name: router.table.digest for name, router in cloud.routers.items()} == before
    numbers = {number for path in granted.paths for number in path.channel_ids}
    for number in numbers:
        carriage = cloud.broker.reservations.resources.channel(number)
        assert carriage.bytes.value == 68 * 60


def test_the_same_period_again_changes_nothing(cloud: Conversation) -> None:
    voltage, _ = published(cloud)
    same = ChangePublication(name=VOLTAGE, period=Period(1, 60))
    assert cloud.ask(PMU, "c1/e0", same) == (PublishedOutcome(variable=voltage),)


def test_a_second_change_waits_for_the_first(cloud: Conversation) -> None:
    published(cloud)
    cloud.ask(PMU, "c1/e0", FASTER)
    other = ChangePublication(name=VOLTAGE, period=Period(1, 30))
    assert refusal(cloud.ask(PMU, "c1/e0", other)).code == Refused.code
    cloud.advance(10 * NS_PER_S)
    assert isinstance(cloud.ask(PMU, "c1/e0", other)[0], PublishedOutcome)


def test_withdrawing_a_variable_in_the_middle_of_its_change_leaves_nothing(
    cloud: Conversation,
) -> None:
    published(cloud)
    cloud.ask(PMU, "c1/e0", FASTER)
    cloud.ask(PMU, "c1/e0", Unpublish(names=(VOLTAGE,)))
    assert not any(router.table.variables for router in cloud.routers.values())
    assert not any(router.table.paths for router in cloud.routers.values())
    resources = cloud.broker.reservations.resources
    assert all(not found.events for found in resources.routers.values())


def test_a_failure_in_the_middle_of_a_change_ends_the_old_identifier_no_earlier(
    cloud: Conversation,
) -> None:
    old, granted = published(cloud)
    (outcome,) = cloud.ask(PMU, "c1/e0", FASTER)
    assert isinstance(outcome, PublishedOutcome)
    dead = granted.paths[0].channel_ids[0]
    receiver = granted.paths[0].routers[1]
    cloud.hear(receiver, ChannelStateChanged(channel_id=dead, is_up=False))
    cloud.settle()
    cloud.advance(NS_PER_S)  # Long enough for an ordinary move to be over.
    cloud.settle()
    for path in granted.paths:
        for router in path.routers:
            assert old.variable_id in {order.variable_id for order in cloud.path_orders(router)}

    cloud.advance(10 * NS_PER_S)
    cloud.settle()
    assert not any(old.variable_id in carried(cloud, name) for name in cloud.routers)
    assert cloud.differing() == []


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_publisher_that_attaches_anew_in_the_middle_of_a_change_sources_both(
    cloud: Conversation, is_restarted: bool
) -> None:
    old, _ = published(cloud)
    (outcome,) = cloud.ask(PMU, "c1/e0", FASTER)
    assert isinstance(outcome, PublishedOutcome)
    cloud.lose(PMU, "c1/e0", "c1/e1")
    (attached,) = cloud.attach(
        PMU, "c1/e0", incarnation="b" if is_restarted else "a", first_time=is_restarted, data_port=0
    )
    for number in (old.variable_id, outcome.variable.variable_id):
        order = cloud.routers["c1/e0"].table.variables[number]
        assert order.source == attached.up_channel_id

    cloud.advance(10 * NS_PER_S)
    cloud.settle()
    assert old.variable_id not in carried(cloud, "c1/e0")
    cloud.ask(PMU, "c1/e0", Unpublish(names=(VOLTAGE,)))
    resources = cloud.broker.reservations.resources
    assert all(not found.events for found in resources.routers.values())
    assert cloud.differing() == []


def test_only_the_publisher_changes_a_period_and_only_of_what_has_one(
    cloud: Conversation,
) -> None:
    published(cloud)
    assert refusal(cloud.ask(CENTRE, "c1/e2", FASTER)).code == NotPublished.code
    alarm = cloud.publish(
        f"{PMU}/alarm", "c1/e0", period=None, is_alert=True, interval_ns_min=1_000_000
    )
    command = ChangePublication(name=alarm.name, period=Period(1, 30))
    assert refusal(cloud.ask(PMU, "c1/e0", command)).code == InvalidPeriod.code


@pytest.mark.parametrize("period", [Period(1, 30), Period(1001, 30_000), Period(7, 3)])
@pytest.mark.parametrize("phase_ns", [0, 123_456_789])
def test_the_announced_time_is_the_first_stamp_of_a_slot(period: Period, phase_ns: int) -> None:
    found = variable(VOLTAGE, period=period, phase_ns=phase_ns)
    earliest_ns = WALL_NS + 1
    at_ns = first_slot_ns(found, earliest_ns)
    slot = slot_of(at_ns, period, phase_ns)
    nominal_ns = phase_ns + slot * period.period_ns
    assert 0 <= at_ns - nominal_ns < 1
    assert at_ns >= earliest_ns > at_ns - period.period_ns - 1


def test_a_period_that_the_edges_cannot_take_in_is_refused_and_changes_nothing(
    cloud: Conversation,
) -> None:
    published(cloud)
    accounts = cloud.broker.reservations.resources.routers
    before = {name: account.events.value for name, account in accounts.items()}
    too_much = ChangePublication(name=VOLTAGE, period=Period(1, 1_000_000))
    too_short = ChangePublication(name=VOLTAGE, period=Period(1, 2**32 - 1))

    answer = refusal(cloud.ask(PMU, "c1/e0", too_much))
    assert (answer.code, answer.bottleneck) == (RouterFull.code, "router c1/e0")
    answer = refusal(cloud.ask(PMU, "c1/e0", too_short))
    assert answer.code == IntervalNotSatisfiable.code

    assert {name: account.events.value for name, account in accounts.items()} == before
    assert isinstance(cloud.ask(PMU, "c1/e0", FASTER)[0], PublishedOutcome)


def test_a_path_that_fails_during_a_change_leaves_the_old_identifier_charged() -> None:
    cloud = pair(bandwidth_bytes_per_s=10_000_000)
    old, granted = published(cloud)
    cloud.send(PMU, "c1/e0", ChangePublication(name=VOLTAGE, period=Period(1, 30)))
    cloud.settle()
    record = cloud.broker.registry.subscriptions[granted.subscription_id].record
    failed = record.paths[0].channel_ids[0]
    to = next(one.to_router for one in cloud.channels_given if one.channel_id == failed)
    cloud.hear(to, ChannelStateChanged(channel_id=failed, is_up=False))
    cloud.advance(NS_PER_S // 10)
    cloud.settle()
    channels = cloud.broker.reservations.resources.channels
    ordered = {
        order.channel_id
        for name in cloud.routers
        for order in cloud.broker.tables[name].wanted.paths.values()
        if order.variable_id == old.variable_id and order.channel_id in channels
    }
    charged = {number for number, found in channels.items() if old.variable_id in found.streams}
    assert ordered, "the publisher has not switched yet"
    assert ordered == charged
    cloud.advance(100 * NS_PER_S)
    cloud.settle()
    assert not any(old.variable_id in found.streams for found in channels.values())


@pytest.mark.parametrize(
    ("period", "phase_ns"),
    [(Period(1, 50), 20_000_000), (Period(1, 50), 2**64 - 1), (Period(86_401, 1), 0)],
)
def test_a_law_whose_next_slot_would_lie_far_ahead_is_refused(
    cloud: Conversation, period: Period, phase_ns: int
) -> None:
    old, _ = published(cloud)
    command = ChangePublication(name=VOLTAGE, period=period, phase_ns=phase_ns)
    assert refusal(cloud.ask(PMU, "c1/e0", command)).code == InvalidPeriod.code
    assert cloud.broker.registry.publications[VOLTAGE].variable == old
    assert cloud.broker.registry.changing == set()


def test_a_snapshot_in_the_middle_of_a_change_leads_to_the_same_as_the_journal(
    cloud: Conversation,
) -> None:
    _, granted = published(cloud)
    cloud.ask(PMU, "c1/e0", FASTER)
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)  # Of the new identifier only.
    whole, short = cloud.new_broker(), cloud.new_broker()
    whole.restore(cloud.journal)
    short.restore(cloud.broker.snapshot())

    change = short.registry.publications[VOLTAGE].change
    assert change == cloud.broker.registry.publications[VOLTAGE].change
    assert short.registry.changing == {VOLTAGE}
    for name in cloud.routers:
        assert short.tables[name].wanted.digest == whole.tables[name].wanted.digest
    assert granted.subscription_id in short.registry.subscriptions


def test_a_journal_is_compacted_while_a_change_is_under_way() -> None:
    cloud = pair(settings=BrokerSettings("c1", snapshot_after=20))
    published(cloud)
    cloud.ask(PMU, "c1/e0", ChangePublication(name=VOLTAGE, period=Period(86_400, 1)))
    for number in range(100):
        cloud.publish(f"{PMU}/w{number}", "c1/e0")
    assert cloud.broker.registry.changing == {VOLTAGE}
    assert cloud.journal[0] == SNAPSHOT_MARK
