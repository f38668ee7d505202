"""Bands at work: contracts are lowered for a request that does not fit, and raised again later."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from gridstat.broker.requests.banded_contracts import BandedContracts
from gridstat.broker.settings import AccessSettings, BandSettings, BrokerSettings
from gridstat.console.cli.explain import explained_subscription
from gridstat.model.band_law import BandPolicy
from gridstat.model.cloud import EventChannel, Router, RouterRole
from gridstat.model.errors import ChannelFull, Preempted, StorageFailed
from gridstat.model.identifiers import ChannelId
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.model.rate_law import NS_PER_S, Period
from gridstat.net.command.endpoint_messages import (
    ChangePublication,
    ChangeSubscription,
    ContractChanged,
    GrantedOutcome,
    RefusedOutcome,
    Subscribe,
    SubscriptionRequest,
    Unpublished,
    Unsubscribe,
)
from gridstat.net.command.machine import Received
from gridstat.net.command.operator_messages import Explain
from lab.open_access import OPEN_RULE
from tests.unit.broker.clouds import EVENT_BYTES, wide_enough
from tests.unit.broker.conversation import Conversation
from tests.unit.broker.stand_ins import CENTRE, CLOUD, PMU, subscribe

if TYPE_CHECKING:
    from gridstat.broker.capacity.allocation import AllocationRequest
    from gridstat.model.access_rules import AccessRule
    from gridstat.net.command.endpoint_messages import Outcome

IN, OUT = f"{CLOUD}/e0", f"{CLOUD}/e2"
OTHER = f"{CLOUD}/desk"
WIDE = QosRequest(every_worst=60)
URGENT = QosRequest(priority=1)
HOLD_NS = BandSettings().raise_after_ns


def one_channel(
    events_per_s: int,
    policy: BandPolicy = BandPolicy.BANDS,
    *,
    may_preempt: bool = False,
    rules: tuple[AccessRule, ...] = (),
) -> Conversation:
    """A publisher of 40 variables and a subscriber, with one channel between their edges."""
    routers = [Router(name, RouterRole.EDGE) for name in (IN, OUT)]
    bandwidth = wide_enough(events_per_s * EVENT_BYTES)
    channels = [
        EventChannel(ChannelId(number), *ends, bandwidth_bytes_per_s=bandwidth, security="none")
        for number, ends in enumerate(((IN, OUT), (OUT, IN)), start=1)
    ]
    settings = BrokerSettings(
        CLOUD,
        bands=BandSettings(policy=policy),
        access=AccessSettings(rules=rules or (replace(OPEN_RULE, may_preempt=may_preempt),)),
        modes_defined=frozenset(range(1, 20)),
    )
    cloud = Conversation((routers, channels), settings=settings).start()
    cloud.attach(PMU, IN, data_port=0)
    cloud.attach(CENTRE, OUT)
    for number in range(40):
        cloud.publish(name(number), IN, period=Period(1, 60))
    return cloud


def name(number: int) -> str:
    return f"{PMU}/v{number}"


def ask(cloud: Conversation, number: int, qos: QosRequest = WIDE) -> Outcome:
    (outcome,) = cloud.ask(CENTRE, OUT, subscribe(name(number), qos))
    return outcome


def everys(cloud: Conversation) -> dict[str, int]:
    """The divisor of each variable's contract, by the broker's memory."""
    return {
        found.record.name.rpartition("/")[2]: found.record.granted[0].every
        for found in cloud.broker.registry.subscriptions.values()
    }


def ordered(cloud: Conversation) -> dict[str, int]:
    """The divisors that the first router carries of each variable, when nothing is under way."""
    published = cloud.broker.registry.publications
    names = {int(one.variable.variable_id): each for each, one in published.items()}
    found: dict[str, int] = {}
    for order in cloud.path_orders(IN):
        key = names[order.variable_id].rpartition("/")[2]
        assert key not in found, "old paths are still there"
        found[key] = order.every
    return found


def told(cloud: Conversation) -> dict[int, list[int]]:
    """The divisors of which notices have told, by subscription."""
    found: dict[int, list[int]] = {}
    for notice in cloud.notices.get(CENTRE, []):
        if isinstance(notice, ContractChanged):
            granted = notice.granted
            found.setdefault(granted.subscription_id, []).append(granted.granted[0].every)
    return found


def test_ten_early_subscribers_make_room_for_a_higher_priority() -> None:
    cloud = one_channel(600)
    for number in range(10):
        ask(cloud, number)
    outcome = ask(cloud, 10, URGENT)
    assert isinstance(outcome, GrantedOutcome)
    assert outcome.granted[0].every == 1
    assert sorted(everys(cloud).values()) == [1] * 9 + [2] * 2


def test_first_come_shuts_it_out() -> None:
    cloud = one_channel(600, BandPolicy.FIRST_COME)
    for number in range(10):
        ask(cloud, number)
    outcome = ask(cloud, 10, URGENT)
    assert isinstance(outcome, RefusedOutcome)
    assert outcome.code == ChannelFull.code
    assert set(everys(cloud).values()) == {1}


def test_the_lowered_are_notified_and_their_routers_follow() -> None:
    cloud = one_channel(60)
    ask(cloud, 0)
    outcome = ask(cloud, 1, QosRequest(every=2, priority=1))
    assert isinstance(outcome, GrantedOutcome)
    cloud.advance(NS_PER_S)
    assert ordered(cloud) == {"v0": 2, "v1": 2}
    (number,) = cloud.broker.registry.publications[name(0)].subscriptions
    assert told(cloud) == {number: [2]}
    (notice,) = cloud.notices[CENTRE]
    assert isinstance(notice, ContractChanged)
    assert notice.granted.degraded == (
        f"every 1 lowered to every 2: room for subscription {outcome.subscription_id} "
        "with priority 1",
    )


def test_the_old_rate_ends_only_when_the_new_one_is_up() -> None:
    """Make before break: a subscriber that knows of every slot gets every slot until it is told."""
    cloud = one_channel(60)
    ask(cloud, 0)
    cloud.routers[IN].is_silent = True
    cloud.send(CENTRE, OUT, subscribe(name(1), QosRequest(every=2, priority=1)))
    cloud.settle()
    assert sorted(order.every for order in cloud.path_orders(IN)) == [1, 2, 2]
    assert not told(cloud)


def test_thirty_fit_and_all_rise_when_the_urgent_one_leaves() -> None:
    cloud = one_channel(600)
    for number in range(30):
        assert isinstance(ask(cloud, number), GrantedOutcome)
    outcome = ask(cloud, 30, URGENT)
    assert isinstance(outcome, GrantedOutcome)
    assert everys(cloud).pop("v30") == 1
    assert sorted(everys(cloud).values()) == [1] + [3] * 18 + [4] * 12
    cloud.ask(CENTRE, OUT, Unsubscribe(subscription_ids=(outcome.subscription_id,)))
    cloud.advance(3 * HOLD_NS)
    assert everys(cloud) == {f"v{number}": 3 for number in range(30)}
    assert ordered(cloud) == everys(cloud)
    for number, found in cloud.broker.registry.subscriptions.items():
        assert told(cloud)[number][-1] == found.record.granted[0].every


@pytest.mark.parametrize("first", range(0, 100, 10))
def test_a_hundred_orders_of_arrival_end_in_one_split(first: int) -> None:
    for seed in range(first, first + 10):
        cloud = one_channel(600)
        order = list(range(31))
        Random(seed).shuffle(order)
        for number in order:
            outcome = ask(cloud, number, URGENT if number == 30 else WIDE)
            assert isinstance(outcome, GrantedOutcome)
        cloud.advance(3 * HOLD_NS)
        found = ordered(cloud)
        assert found == everys(cloud)
        assert found.pop("v30") == 1
        assert sorted(found.values()) == [3] * 18 + [4] * 12


def test_a_contract_that_asks_for_more_lowers_others() -> None:
    cloud = one_channel(45)
    ask(cloud, 0, QosRequest(every=2, every_worst=60))
    other = ask(cloud, 1, QosRequest(every=4, priority=2))
    assert isinstance(other, GrantedOutcome)
    more = ModalQos({0: QosRequest(every=2, priority=2)})
    change = ChangeSubscription(subscription_id=other.subscription_id, qos=more)
    (outcome,) = cloud.ask(CENTRE, OUT, change)
    assert isinstance(outcome, GrantedOutcome)
    cloud.advance(NS_PER_S)
    assert ordered(cloud) == everys(cloud) == {"v0": 4, "v1": 2}


def test_nobody_is_raised_before_the_hold_down() -> None:
    cloud = one_channel(60)
    ask(cloud, 0)
    urgent = ask(cloud, 1, QosRequest(every=2, priority=1))
    assert isinstance(urgent, GrantedOutcome)
    cloud.ask(CENTRE, OUT, Unsubscribe(subscription_ids=(urgent.subscription_id,)))
    cloud.advance(HOLD_NS // 2)
    assert everys(cloud) == {"v0": 2}
    cloud.advance(2 * HOLD_NS)
    assert everys(cloud) == {"v0": 1}


def test_room_that_a_replaced_path_leaves_raises_the_lowered() -> None:
    """The path before a change is charged until the routers have torn it down."""
    cloud = one_channel(45)
    ask(cloud, 0, QosRequest(every=2, every_worst=60))
    urgent = ask(cloud, 1, QosRequest(every=2, priority=1))
    assert isinstance(urgent, GrantedOutcome)
    assert everys(cloud) == {"v0": 4, "v1": 2}
    cloud.advance(2 * HOLD_NS)
    cloud.routers[IN].is_silent = True
    less = ModalQos({0: QosRequest(every=4, priority=1)})
    change = ChangeSubscription(subscription_id=urgent.subscription_id, qos=less)
    cloud.send(CENTRE, OUT, change)
    cloud.advance(2 * HOLD_NS)
    assert everys(cloud) == {"v0": 4, "v1": 4}
    cloud.routers[IN].is_silent = False
    cloud.confirm(IN)
    cloud.advance(2 * HOLD_NS)
    assert everys(cloud) == {"v0": 2, "v1": 4}
    assert ordered(cloud) == everys(cloud)


def test_who_is_lowered_by_a_change_of_period_is_raised_when_room_returns() -> None:
    """Not every decision that gives less than desired is one about bands."""
    cloud = one_channel(60)
    slow = ChangePublication(name=name(0), period=Period(1, 30))
    fast = ChangePublication(name=name(0), period=Period(1, 60))
    cloud.ask(PMU, IN, slow)
    cloud.advance(10 * NS_PER_S)
    ask(cloud, 0)
    other = ask(cloud, 1, QosRequest(every=2))
    assert isinstance(other, GrantedOutcome)
    cloud.ask(PMU, IN, fast)
    cloud.advance(10 * NS_PER_S)
    assert everys(cloud) == {"v0": 2, "v1": 2}
    cloud.ask(CENTRE, OUT, Unsubscribe(subscription_ids=(other.subscription_id,)))
    cloud.advance(3 * HOLD_NS)
    assert everys(cloud) == ordered(cloud) == {"v0": 1}


def test_a_subscriber_that_comes_and_goes_moves_others_ever_more_rarely() -> None:
    cloud = one_channel(60)
    ask(cloud, 0)
    changes: list[int] = []
    for _ in range(60):
        urgent = ask(cloud, 1, QosRequest(every=2, priority=1))
        assert isinstance(urgent, GrantedOutcome)
        cloud.advance(NS_PER_S)
        cloud.ask(CENTRE, OUT, Unsubscribe(subscription_ids=(urgent.subscription_id,)))
        cloud.advance(2 * HOLD_NS)
        changes.append(len(told(cloud).get(1, ())))
    assert changes[29] < 16, "it is not moved each time"
    assert changes[59] - changes[29] <= changes[29]


def test_a_failed_write_lowers_nobody() -> None:
    cloud = one_channel(60)
    ask(cloud, 0)
    before = cloud.broker.snapshot()[2:]  # Without the numbers that are spent.
    cloud.is_disk_full = True
    outcome = ask(cloud, 1, QosRequest(every=2, priority=1))
    assert isinstance(outcome, RefusedOutcome)
    assert outcome.code == StorageFailed.code
    assert cloud.broker.snapshot()[2:] == before
    assert cloud.broker.reservations.allocator.contracts.keys() == {1}


@pytest.mark.parametrize("is_retired", [False, True])
def test_a_killed_broker_knows_who_was_lowered_and_raises_it_later(*, is_retired: bool) -> None:
    cloud = one_channel(60)
    ask(cloud, 0)
    urgent = ask(cloud, 1, QosRequest(every=2, priority=1))
    assert isinstance(urgent, GrantedOutcome)
    if is_retired:
        cloud.advance(NS_PER_S)
    charged = cloud.broker.reservations.resources.channel(1).bytes.value
    cloud.kill_broker()
    cloud.start()
    assert cloud.broker.reservations.resources.channel(1).bytes.value == charged
    assert everys(cloud) == {"v0": 2, "v1": 2}
    cloud.ask(CENTRE, OUT, Unsubscribe(subscription_ids=(urgent.subscription_id,)))
    cloud.advance(3 * HOLD_NS)
    assert everys(cloud) == {"v0": 1}
    assert ordered(cloud) == {"v0": 1}


def test_a_router_that_is_away_keeps_its_contracts_from_being_lowered() -> None:
    """It would carry the former rate on, and the channel would carry more than it can."""
    cloud = one_channel(60)
    ask(cloud, 0)
    cloud.disconnect(IN)
    outcome = ask(cloud, 1, QosRequest(every=2, priority=1))
    assert not isinstance(outcome, GrantedOutcome)
    assert everys(cloud) == {"v0": 1}


def test_explain_says_who_lowered_whom() -> None:
    cloud = one_channel(60)
    ask(cloud, 0)
    ask(cloud, 1, QosRequest(every=2, priority=1))
    lowered, cause = explained(cloud, 0), explained(cloud, 1)
    assert lowered["band"] == {0: [1, 60]}
    assert lowered["lowered_for"]["name"] == name(1)
    assert lowered["lowered_for"]["priority"] == 1
    assert cause["lowered_for"] is None
    assert [(each["name"], each["every"]) for each in cause["lowered"]] == [(name(0), 2)]
    assert cause["band"] == {}
    lines = list(explained_subscription(lowered))
    assert "    agreed: from every 1. to every 60. slot" in lines
    assert f"    lowered for subscription 2 of {CENTRE} to {name(1)} (priority 1)" in lines
    told_by = (
        f"    has lowered subscription 1 of {CENTRE} to {name(0)} (priority 3) to every 2. slot"
    )
    assert told_by in list(explained_subscription(cause))


def explained(cloud: Conversation, number: int) -> dict[str, Any]:
    cloud.tell(Received("operator/o", Explain(request_id=1, name=name(number))))
    (found,) = cloud.operator_answers[-1].facts["subscriptions"]
    return dict(found)


# Cost.


def test_who_makes_others_give_way_again_and_again_waits_for_it() -> None:
    """What the splits of its requests take is charged to its search time, and to nobody else's."""
    cloud = one_channel(15 * 39)
    cloud.attach(OTHER, OUT)
    for number in range(39):
        ask(cloud, number, QosRequest(every=4, every_worst=60))
    wanted = subscribe(name(39), WIDE)
    for _ in range(100):
        last = cloud.send(CENTRE, OUT, wanted)
        cloud.settle()
        if (CENTRE, last) not in cloud.answers:
            break
        (outcome,) = cloud.answers[CENTRE, last]
        assert isinstance(outcome, GrantedOutcome)
        cloud.ask(CENTRE, OUT, Unsubscribe(subscription_ids=(outcome.subscription_id,)))
    else:
        raise AssertionError("it was never held back")
    assert cloud.broker.survey()["requests"]["search_ms"] > 200
    (outcome,) = cloud.ask(OTHER, OUT, subscribe(name(39), WIDE))
    assert isinstance(outcome, GrantedOutcome)
    assert (CENTRE, last) not in cloud.answers


def test_a_change_that_waited_for_another_is_charged_too() -> None:
    cloud = one_channel(15 * 39)
    for number in range(39):
        ask(cloud, number, QosRequest(every=4, every_worst=60))
    outcome = ask(cloud, 39, QosRequest(every=60, every_worst=90))
    assert isinstance(outcome, GrantedOutcome)
    cloud.advance(NS_PER_S)
    cloud.routers[IN].is_silent = True
    number = outcome.subscription_id
    for qos in (QosRequest(every=90), WIDE):
        change = ChangeSubscription(subscription_id=number, qos=ModalQos({0: qos}))
        last = cloud.send(CENTRE, OUT, change)
    cloud.settle()
    before_ms = cloud.broker.survey()["requests"]["search_ms"]
    cloud.routers[IN].is_silent = False
    cloud.confirm(IN)
    cloud.settle()
    (outcome,) = cloud.answers[CENTRE, last]
    assert isinstance(outcome, GrantedOutcome)
    assert outcome.granted[0].every == 5
    assert cloud.broker.survey()["requests"]["search_ms"] > before_ms + 2


def test_a_pattern_whose_search_time_is_used_up_lowers_nobody_for_now() -> None:
    """What it catches is decided in turns of others, which it must not delay."""
    cloud = one_channel(15 * 39)
    for number in range(39):
        ask(cloud, number, QosRequest(every=4, every_worst=60))
    cloud.attach(OTHER, IN, data_port=0)
    cloud.ask(CENTRE, OUT, subscribe(f"{OTHER}/*", QosRequest(priority=2)))
    before_ms = cloud.broker.survey()["requests"]["search_ms"]
    for number in range(150):
        cloud.publish(f"{OTHER}/w{number}", IN, period=Period(1, 3))
    cloud.settle()
    caught = {key for key in everys(cloud) if key.startswith("w")}
    assert 10 < len(caught) < 100
    assert cloud.broker.survey()["requests"]["search_ms"] < before_ms + 50, "not the publisher's"
    cloud.advance(60 * NS_PER_S)
    cloud.publish(f"{OTHER}/last", IN, period=Period(1, 3))
    cloud.settle()
    assert everys(cloud)["last"] == 1


# Pre-emption.

LAST = QosRequest(every=2, priority=6)


def test_below_the_bands_a_higher_priority_ends_the_fewest_and_tells_them() -> None:
    cloud = one_channel(90, BandPolicy.PREEMPT, may_preempt=True)
    for number in range(3):
        ask(cloud, number, LAST)
    outcome = ask(cloud, 3, QosRequest(every=2, priority=1))
    assert isinstance(outcome, GrantedOutcome)
    assert everys(cloud) == {"v0": 2, "v1": 2, "v3": 2}
    (notice,) = cloud.notices[CENTRE]
    assert isinstance(notice, Unpublished)
    assert (notice.name, notice.code, notice.is_over) == (name(2), Preempted.code, True)
    assert (
        notice.reason == f"subscription {outcome.subscription_id} with priority 1 needed its room"
    )
    cloud.advance(NS_PER_S)
    assert ordered(cloud) == everys(cloud)


def test_bands_are_used_before_anybody_is_ended() -> None:
    cloud = one_channel(60, BandPolicy.PREEMPT, may_preempt=True)
    ask(cloud, 0, QosRequest(every_worst=60, priority=6))
    assert isinstance(ask(cloud, 1, QosRequest(every=2, priority=1)), GrantedOutcome)
    assert everys(cloud) == {"v0": 2, "v1": 2}


@pytest.mark.parametrize(
    ("policy", "may_preempt", "priority"),
    [
        (BandPolicy.BANDS, True, 1),
        (BandPolicy.PREEMPT, False, 1),
        (BandPolicy.PREEMPT, True, 6),
    ],
)
def test_nobody_is_ended_without_policy_rule_and_priority(
    policy: BandPolicy, priority: int, *, may_preempt: bool
) -> None:
    cloud = one_channel(60, policy, may_preempt=may_preempt)
    ask(cloud, 0, LAST)
    ask(cloud, 1, LAST)
    assert isinstance(ask(cloud, 2, QosRequest(priority=priority)), RefusedOutcome)
    assert everys(cloud) == {"v0": 2, "v1": 2}


def test_a_request_that_would_not_fit_alone_ends_nobody() -> None:
    cloud = one_channel(59, BandPolicy.PREEMPT, may_preempt=True)
    ask(cloud, 0, LAST)
    charged = cloud.broker.reservations.resources.channel(1).bytes.value
    assert isinstance(ask(cloud, 1, URGENT), RefusedOutcome)
    assert everys(cloud) == {"v0": 2}
    assert cloud.broker.reservations.resources.channel(1).bytes.value == charged


def test_a_failed_write_ends_nobody() -> None:
    cloud = one_channel(60, BandPolicy.PREEMPT, may_preempt=True)
    ask(cloud, 0, LAST)
    ask(cloud, 1, LAST)
    before = cloud.broker.snapshot()[2:]
    cloud.is_disk_full = True
    assert isinstance(ask(cloud, 2, URGENT), RefusedOutcome)
    assert cloud.broker.snapshot()[2:] == before
    assert cloud.broker.reservations.allocator.contracts.keys() == {1, 2}


def test_the_right_to_end_others_comes_from_the_rule_that_allows_the_contract() -> None:
    """One rule lets it end others at low priorities, another one lets it have high ones."""
    low = replace(OPEN_RULE, identifier="low", priority_best=5, may_preempt=True)
    cloud = one_channel(60, BandPolicy.PREEMPT, rules=(OPEN_RULE, low))
    ask(cloud, 0, LAST)
    ask(cloud, 1, LAST)
    assert isinstance(ask(cloud, 2, URGENT), RefusedOutcome)
    assert everys(cloud) == {"v0": 2, "v1": 2}
    assert isinstance(ask(cloud, 2, QosRequest(every=2, priority=5)), GrantedOutcome)
    assert everys(cloud) == {"v0": 2, "v2": 2}


def test_the_right_to_end_others_ends_with_the_bytes_of_its_rule() -> None:
    few = replace(OPEN_RULE, identifier="few", reserved_bytes_per_s=5_000, may_preempt=True)
    cloud = one_channel(60, BandPolicy.PREEMPT, rules=(OPEN_RULE, few))
    ask(cloud, 0, LAST)
    ask(cloud, 1, LAST)
    assert isinstance(ask(cloud, 2, URGENT), RefusedOutcome)
    assert everys(cloud) == {"v0": 2, "v1": 2}


def test_a_request_with_too_many_qualities_ends_nobody() -> None:
    cloud = one_channel(60, BandPolicy.PREEMPT, may_preempt=True)
    ask(cloud, 0, LAST)
    ask(cloud, 1, LAST)
    modes = {mode: QosRequest(every=1 << mode, priority=1) for mode in range(17)}
    wanted = Subscribe(subscriptions=(SubscriptionRequest(name=name(2), qos=ModalQos(modes)),))
    (outcome,) = cloud.ask(CENTRE, OUT, wanted)
    assert isinstance(outcome, RefusedOutcome)
    assert everys(cloud) == {"v0": 2, "v1": 2}


def test_nobody_is_ended_if_the_last_search_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trials may use up the time of a request's searches, of which the last one is short."""
    cloud = one_channel(60, BandPolicy.PREEMPT, may_preempt=True)
    ask(cloud, 0, QosRequest(every=2, every_worst=4, priority=6))
    ask(cloud, 1, LAST)
    charged = cloud.broker.reservations.resources.channel(1).bytes.value

    def one_too_few(bands: BandedContracts, request: AllocationRequest) -> list[int]:
        del bands, request
        return [2]

    monkeypatch.setattr(BandedContracts, "_to_end", one_too_few)
    assert isinstance(ask(cloud, 2, URGENT), RefusedOutcome)
    assert everys(cloud) == {"v0": 2, "v1": 2}
    assert cloud.broker.reservations.resources.channel(1).bytes.value == charged
    assert cloud.broker.reservations.allocator.contracts.keys() == {1, 2}
    cloud.advance(NS_PER_S)
    assert ordered(cloud) == {"v0": 2, "v1": 2}
    assert not cloud.notices.get(CENTRE)
