"""Quotas of identities: shares of channels, catches of patterns, and what an old journal holds."""

from __future__ import annotations

from dataclasses import fields, replace
from fractions import Fraction

from gridstat.broker.requests.pattern_matching import MATCH_TIMER
from gridstat.broker.settings import BrokerSettings, Quotas
from gridstat.model.access_rules import AccessRule
from gridstat.model.errors import QuotaReached
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.model.quota import Quota
from gridstat.model.rate_law import Period
from gridstat.net.command.endpoint_messages import (
    ChangePublication,
    ChangeSubscription,
    GrantedOutcome,
    RefusedOutcome,
)
from gridstat.net.command.operator_messages import WhyAccess
from lab.open_access import with_open_access
from lab.simulation.properties.shares import check_shares
from tests.unit.broker.access.ruled_cloud import facts
from tests.unit.broker.conversation import Conversation, pair, refusal
from tests.unit.broker.stand_ins import CENTRE, CLOUD, PMU, publish, subscribe, variable

BANDWIDTH = 200_000
EVENT_BYTES = 68
FIGURES = {each.name for each in fields(Quota)}
FAST = Period(1, 100)
"""A hundred events a second: 6,800 bytes/s on a channel."""


def cloud_of(
    share: float, *rules: AccessRule, is_enforced: bool = True, **quotas: int
) -> Conversation:
    settings = BrokerSettings(CLOUD, quotas=Quotas(capacity_share=share, **quotas))
    access = with_open_access(settings).access
    settings = replace(
        settings, access=replace(access, rules=(*access.rules, *rules), is_enforced=is_enforced)
    )
    return pair(settings=settings, bandwidth_bytes_per_s=BANDWIDTH)


def published(cloud: Conversation, count: int, publisher: str = PMU) -> list[str]:
    names = [f"{publisher}/v{number}" for number in range(count)]
    edge = min(cloud.broker.registry.endpoints[publisher].attachments)
    cloud.ask(publisher, edge, publish(*(variable(name, period=FAST) for name in names)))
    return names


def used_most(cloud: Conversation, who: str) -> Fraction:
    return cloud.broker.reservations.shares.most_used(who)[1]


def test_an_identity_reserves_at_most_its_share_of_each_channel() -> None:
    cloud = cloud_of(0.1)
    outcomes = cloud.ask(CENTRE, "c1/e2", subscribe(*published(cloud, 40)))

    granted = [each for each in outcomes if isinstance(each, GrantedOutcome)]
    refused = [each for each in outcomes if isinstance(each, RefusedOutcome)]
    assert refused
    assert {each.code for each in refused} == {QuotaReached.code}
    for number in range(1, 19):
        assert cloud.broker.reservations.shares.used(CENTRE, number) <= BANDWIDTH // 10
    ways = {path.routers for each in granted for path in each.paths}
    assert len(ways) > 1, "a full share of one way leads to other ways"


def test_a_refused_share_names_channel_share_use_and_the_rule_to_ask_for() -> None:
    cloud = cloud_of(0.05)
    outcomes = cloud.ask(CENTRE, "c1/e2", subscribe(*published(cloud, 40)))
    (last,) = [each for each in outcomes if isinstance(each, RefusedOutcome)][-1:]

    assert f"{CENTRE} may reserve 5 % of channel" in last.reason
    assert "10000 of its 200000 bytes/s; it has reserved 6800" in last.reason
    assert "capacity_share" in last.reason
    assert last.bottleneck.startswith("channel ")
    assert last.shortfall == "3600 bytes/s"


def test_the_share_of_one_identity_leaves_the_others_room() -> None:
    cloud = cloud_of(0.25)
    cloud.attach("c1/other", "c1/e2")
    names = published(cloud, 60)
    cloud.ask(CENTRE, "c1/e2", subscribe(*names))

    outcomes = cloud.ask("c1/other", "c1/e2", subscribe(*names[:4]))
    assert all(isinstance(each, GrantedOutcome) for each in outcomes)


def test_a_release_gives_the_share_back_and_a_smaller_change_is_never_refused() -> None:
    cloud = cloud_of(1.0)
    granted = cloud.subscribe(CENTRE, "c1/e2", published(cloud, 1)[0])
    cloud.settings = replace(cloud.settings, quotas=Quotas(capacity_share=0.01))
    cloud.kill_broker()
    cloud.start()
    assert used_most(cloud, CENTRE) == Fraction(6_800, BANDWIDTH), "what was granted is kept"

    slower = ModalQos({0: QosRequest(every=2)})
    command = ChangeSubscription(subscription_id=granted.subscription_id, qos=slower)
    cloud.only(GrantedOutcome, cloud.ask(CENTRE, "c1/e2", command))
    check_shares(cloud.broker)
    assert used_most(cloud, CENTRE) == Fraction(3_400, BANDWIDTH)

    faster = ModalQos({0: QosRequest(every=1)})
    command = ChangeSubscription(subscription_id=granted.subscription_id, qos=faster)
    assert refusal(cloud.ask(CENTRE, "c1/e2", command)).code == QuotaReached.code
    assert used_most(cloud, CENTRE) == Fraction(3_400, BANDWIDTH)


def test_what_a_pattern_catches_is_charged_to_the_publisher_too() -> None:
    cloud = cloud_of(0.5, subscriptions_max=6)
    cloud.attach("c1/mallory", "c1/e0", data_port=0)
    published(cloud, 2)
    cloud.ask(CENTRE, "c1/e2", subscribe(f"{PMU}/**"))
    cloud.attach("c1/stranger", "c1/e3")
    cloud.ask("c1/stranger", "c1/e3", subscribe("c1/**"))
    published(cloud, 10, "c1/mallory")
    cloud.advance(10**9)

    books = cloud.broker.reservations.shares.caught_books()
    assert books["c1/mallory"][0] <= 6
    assert books[PMU][0] == 2, "each variable counts once for the publisher"
    assert PMU not in cloud.broker.reservations.shares.books(), "its own account is free"
    check_shares(cloud.broker)


def test_strangers_patterns_use_up_no_quota_of_a_publisher() -> None:
    cloud = cloud_of(0.1, subscriptions_max=3)
    names = published(cloud, 3)
    for number in range(4):
        cloud.attach(f"c1/stranger{number}", "c1/e2")
        cloud.ask(f"c1/stranger{number}", "c1/e2", subscribe("c1/**"))
    cloud.ask(CENTRE, "c1/e2", subscribe("c1/**"))
    cloud.advance(10**9)

    assert len(cloud.broker.registry.endpoints[CENTRE].subscriptions) == 3
    assert cloud.broker.reservations.shares.caught_of(PMU) == dict.fromkeys(
        (cloud.broker.registry.publications[name].variable.variable_id for name in names), 5
    )
    check_shares(cloud.broker)


def test_a_publisher_with_all_it_has_caught_subscribes_itself() -> None:
    cloud = cloud_of(0.05, subscriptions_max=1)
    name = published(cloud, 1)[0]
    cloud.attach("c1/other", "c1/e2")
    published(cloud, 1, "c1/other")
    cloud.ask(CENTRE, "c1/e2", subscribe(f"{PMU}/**"))
    assert cloud.broker.reservations.shares.caught_books()[PMU][0] == 1

    cloud.attach("c1/reader", "c1/e0")
    cloud.subscribe("c1/reader", "c1/e0", name)
    cloud.attach(PMU, "c1/e0", data_port=9)
    cloud.subscribe(PMU, "c1/e0", "c1/other/v0")
    check_shares(cloud.broker)


def test_a_publishers_limit_does_not_bound_a_subscriber_whose_own_rule_raises_it() -> None:
    rule = AccessRule("all", CENTRE, ("subscribe",), "**", capacity_share=1.0, subscriptions=100)
    cloud = cloud_of(0.05, rule, subscriptions_max=2)
    published(cloud, 12)
    cloud.attach("c1/stranger", "c1/e2")
    cloud.ask("c1/stranger", "c1/e2", subscribe("c1/**"))
    cloud.ask(CENTRE, "c1/e2", subscribe("c1/**"))
    cloud.advance(10**9)

    assert len(cloud.broker.registry.endpoints["c1/stranger"].subscriptions) == 2
    assert len(cloud.broker.registry.endpoints[CENTRE].subscriptions) == 12
    check_shares(cloud.broker)


def test_a_publisher_fills_its_own_share_of_a_strangers_pattern_and_no_more() -> None:
    cloud = cloud_of(0.25)
    cloud.attach("c1/mallory", "c1/e0", data_port=0)
    cloud.ask(CENTRE, "c1/e2", subscribe("c1/**"))
    published(cloud, 60, "c1/mallory")
    cloud.advance(10**9)
    refused = [note for note in cloud.notes if note.word == "pattern_refused"]

    assert refused
    texts = str(refused[-1].facts)
    assert "c1/mallory may let patterns reserve 25 %" in texts or CENTRE in texts
    caught = cloud.broker.reservations.shares.caught_books()["c1/mallory"][1]
    assert max(caught.values()) <= BANDWIDTH // 4


def test_contracts_asked_for_by_name_are_not_charged_to_the_publisher() -> None:
    cloud = cloud_of(0.25)
    cloud.subscribe(CENTRE, "c1/e2", published(cloud, 1)[0])
    assert PMU not in cloud.broker.reservations.shares.books()


def test_a_cloud_that_observes_refuses_nothing_by_quotas_and_notes_each() -> None:
    cloud = cloud_of(
        0.01,
        is_enforced=False,
        subscriptions_max=2,
        publications_max=2,
        edges_max=1,
        commands_per_s=1,
    )
    cloud.attach("c1/two", "c1/e0", "c1/e2")
    names = published(cloud, 8)
    outcomes = [each for name in names for each in cloud.ask(CENTRE, "c1/e2", subscribe(name))]
    assert [type(each) for each in outcomes] == [GrantedOutcome] * len(names)

    found = {
        (each["who"], figure): each
        for each in facts(cloud, WhyAccess(request_id=0, is_observed=True))["refusals_observed"]
        for figure in FIGURES & each["rule"].keys()
    }
    assert found.keys() >= {
        (PMU, "variables"),
        (CENTRE, "subscriptions"),
        (CENTRE, "capacity_share"),
        (CENTRE, "commands_per_s"),
        ("c1/two", "sessions"),
    }
    assert found[PMU, "variables"]["count"] == 6
    assert "--variables" in found[PMU, "variables"]["command"]


def test_a_subscribers_share_does_not_prevent_a_change_of_period() -> None:
    cloud = cloud_of(0.04)
    name = published(cloud, 1)[0]
    cloud.subscribe(CENTRE, "c1/e2", name)
    edge = min(cloud.broker.registry.endpoints[PMU].attachments)
    cloud.ask(PMU, edge, ChangePublication(name=name, period=Period(1, 200)))

    period = cloud.broker.registry.publications[name].variable.period
    assert period == Period(1, 200), "13,600 bytes/s, and the share is 8,000"
    check_shares(cloud.broker)


def test_a_wide_pattern_delays_the_matching_of_no_other_subscriber() -> None:
    cloud = cloud_of(1.0)
    cloud.settings = replace(cloud.settings, catch_at_once=4)
    cloud.kill_broker()
    cloud.start()
    published(cloud, 60)
    for number in range(3):
        cloud.attach(f"c1/stranger{number}", "c1/e2")
    for number in range(3):
        cloud.send(f"c1/stranger{number}", "c1/e2", subscribe(*["c1/**"] * 3))
    cloud.send(CENTRE, "c1/e2", subscribe(f"{PMU}/**"))
    turns = 0
    while len(cloud.broker.registry.endpoints[CENTRE].subscriptions) < 60 and turns < 100:
        turns += 1
        cloud.fire(MATCH_TIMER)
    assert turns <= 4 * 60 // 4, "a slice of each of four subscribers in turn"


def test_refusals_of_catches_are_logged_a_few_a_second() -> None:
    cloud = cloud_of(1.0, subscriptions_max=1)
    cloud.ask(CENTRE, "c1/e2", subscribe("c1/**"))
    published(cloud, 50)
    cloud.advance(10**9)
    assert sum(note.word == "pattern_refused" for note in cloud.notes) <= 20


def test_a_pattern_too_many_is_refused_with_what_to_do() -> None:
    cloud = cloud_of(1.0, patterns_max=1)
    cloud.ask(CENTRE, "c1/e2", subscribe("c1/**"))
    found = refusal(cloud.ask(CENTRE, "c1/e2", subscribe("c1/*/**")))
    assert found.reason == f"{CENTRE} has 1 patterns already"
    assert "patterns_max in the [quota]" in found.hint


def test_the_books_follow_moves_failed_writes_and_a_restart() -> None:
    cloud = cloud_of(0.5)
    names = published(cloud, 6)
    cloud.ask(CENTRE, "c1/e2", subscribe(*names[:3]))
    cloud.is_disk_full = True
    assert isinstance(refusal(cloud.ask(CENTRE, "c1/e2", subscribe(names[3]))), RefusedOutcome)
    check_shares(cloud.broker)
    cloud.is_disk_full = False
    before = cloud.broker.reservations.shares.books()
    cloud.kill_broker()
    assert cloud.broker.reservations.shares.books() == before
    check_shares(cloud.broker)


def test_a_publisher_at_its_quota_publishes_all_its_variables_again_after_a_restart() -> None:
    cloud = cloud_of(1.0, publications_max=3)
    names = published(cloud, 3)
    cloud.lose(PMU, *cloud.broker.registry.endpoints[PMU].attachments)
    cloud.attach(PMU, "c1/e0", incarnation="b", first_time=False, data_port=0)
    assert all(each.is_dormant for each in cloud.broker.registry.publications.values())
    published(cloud, 3)
    live = cloud.broker.registry.publications
    assert [name for name in names if not live[name].is_dormant] == names
    (more,) = cloud.ask(PMU, "c1/e0", publish(variable(f"{PMU}/more", period=FAST)))
    assert isinstance(more, RefusedOutcome)
    assert more.code == QuotaReached.code
