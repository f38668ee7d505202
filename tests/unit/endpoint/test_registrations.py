"""Registrations that are repeated to a cloud that forgot them, and those that are not."""

from __future__ import annotations

import pytest

from gridstat.endpoint.session_events import (
    EdgeAttached,
    NoticeReceived,
    PublicationRestored,
    SubscriptionRestored,
)
from gridstat.model.errors import NoSuchVariable
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.model.rate_law import Period
from gridstat.net.command.endpoint_messages import (
    Attach,
    ChangePublication,
    ChangeSubscription,
    Detach,
    DoneOutcome,
    Publish,
    RefusedOutcome,
    Subscribe,
    Unpublish,
    Unpublished,
    Unsubscribe,
)
from tests.unit.endpoint.scripted_cloud import (
    NAME,
    ScriptedCloud,
    attached,
    attached_cloud,
    granted,
    publish,
    published,
    subscribe,
)

ABSENT = RefusedOutcome(code=NoSuchVariable.code, reason="nobody publishes it")


@pytest.mark.feature("S0-118")
def test_a_mere_link_failure_registers_nothing_again() -> None:
    cloud = attached_cloud()
    cloud.ask(publish(f"{NAME}/voltage"))
    cloud.answer(published(f"{NAME}/voltage"))
    cloud.cut()
    cloud.submitted.clear()
    cloud.attach(code=1)
    assert [type(command) for command in cloud.commands()] == [Attach]


@pytest.mark.feature("S0-120")
def test_a_restarted_edge_registers_nothing_again_and_gives_new_ports() -> None:
    cloud = attached_cloud()
    cloud.ask(subscribe("a"))
    cloud.answer(granted("a", 5))
    cloud.cut()
    cloud.submitted.clear()
    cloud.connect(instance="two")
    said = cloud.words(cloud.answer(attached(code=4)))
    assert said == [EdgeAttached("c1/e0", attached(code=4))]
    assert [type(command) for command in cloud.commands()] == [Attach]


@pytest.mark.feature("S0-119")
def test_a_cloud_that_lost_our_state_hears_of_all_that_is_still_wanted() -> None:
    cloud = attached_cloud()
    cloud.ask(publish(f"{NAME}/a", f"{NAME}/b"))
    cloud.answer(published(f"{NAME}/a"), published(f"{NAME}/b"))
    cloud.ask(subscribe("x", "y"))
    cloud.answer(granted("x", 5), granted("y", 6))
    cloud.ask(Unpublish(names=(f"{NAME}/b",)))
    cloud.ask(Unsubscribe(subscription_ids=(6,)))
    cloud.cut()
    cloud.submitted.clear()
    cloud.attach(code=3)
    restoring = [each for each in cloud.commands() if isinstance(each, Publish | Subscribe)]
    assert restoring == [publish(f"{NAME}/a"), subscribe("x")]


def test_what_was_restored_is_told_with_its_new_identifiers() -> None:
    cloud = attached_cloud()
    cloud.ask(publish(f"{NAME}/a"))
    cloud.answer(published(f"{NAME}/a", 7))
    cloud.ask(subscribe("x"))
    cloud.answer(granted("x", 5))
    cloud.cut()
    cloud.attach(code=3)
    assert cloud.words(cloud.answer(published(f"{NAME}/a", 8), at=-2)) == [
        PublicationRestored(f"{NAME}/a", published(f"{NAME}/a", 8))
    ]
    assert cloud.words(cloud.answer(granted("x", 9))) == [
        SubscriptionRestored("x", granted("x", 9), (b"newest",))
    ]


def test_what_cannot_be_restored_yet_is_told_and_tried_again() -> None:
    cloud = attached_cloud()
    cloud.ask(subscribe("x"))
    cloud.answer(granted("x", 5))
    cloud.cut()
    cloud.attach(code=3)
    assert cloud.words(cloud.answer(ABSENT)) == [SubscriptionRestored("x", ABSENT, (b"newest",))]
    cloud.submitted.clear()
    cloud.wait(2)
    assert cloud.commands() == [subscribe("x")]
    cloud.answer(granted("x", 9))
    cloud.submitted.clear()
    cloud.wait(20)
    assert cloud.submitted == []


def test_what_is_no_longer_wanted_when_it_comes_back_is_given_back() -> None:
    cloud = attached_cloud()
    cloud.ask(subscribe("x"))
    cloud.answer(granted("x", 5))
    cloud.cut()
    cloud.attach(code=3)
    at = len(cloud.submitted) - 1
    cloud.ask(Unsubscribe(subscription_ids=(5,)))
    assert cloud.words(cloud.answer(granted("x", 9), at=at)) == []
    assert cloud.commands()[-1] == Unsubscribe(subscription_ids=(9,))


def test_a_cloud_that_greets_us_as_a_stranger_has_lost_our_state_too() -> None:
    cloud = attached_cloud()
    cloud.ask(subscribe("x"))
    cloud.answer(granted("x", 5))
    cloud.cut()
    cloud.attach(code=0)
    assert cloud.commands()[-1] == subscribe("x")


def test_a_second_edge_that_is_new_has_lost_nothing() -> None:
    cloud = ScriptedCloud("c1/e0", "c1/e1")
    cloud.attach("c1/e0")
    cloud.ask(subscribe("x"))
    cloud.answer(granted("x", 5))
    cloud.attach("c1/e1")
    assert isinstance(cloud.commands()[-1], Attach)


def test_a_changed_contract_and_period_are_what_is_restored() -> None:
    cloud = attached_cloud()
    cloud.ask(publish(f"{NAME}/a"))
    cloud.answer(published(f"{NAME}/a"))
    cloud.ask(ChangePublication(name=f"{NAME}/a", period=Period(1, 30)))
    slower = published(f"{NAME}/a", 8)
    cloud.answer(slower)
    cloud.ask(subscribe("x"))
    cloud.answer(granted("x", 5))
    qos = ModalQos({0: QosRequest(every=3)})
    cloud.ask(ChangeSubscription(subscription_id=5, qos=qos))
    cloud.answer(granted("x", 5))
    cloud.cut()
    cloud.attach(code=3)
    publishing, subscribing = cloud.commands()[-2:]
    assert isinstance(publishing, Publish)
    assert publishing.publications[0].variable == slower.variable
    assert isinstance(subscribing, Subscribe)
    assert subscribing.subscriptions[0].qos == qos


def test_a_variable_that_is_gone_for_good_is_not_restored() -> None:
    cloud = attached_cloud()
    cloud.ask(subscribe("x"))
    cloud.answer(granted("x", 5))
    gone = Unpublished(subscription_id=5, name="c1/x/x")
    assert cloud.words(cloud.tell(gone)) == [NoticeReceived(gone, ())]
    cloud.cut()
    cloud.attach(code=3)
    assert isinstance(cloud.commands()[-1], Attach)


@pytest.mark.feature("S0-34")
def test_leaving_ends_everything_that_was_wanted() -> None:
    cloud = attached_cloud()
    cloud.ask(subscribe("x"))
    cloud.answer(granted("x", 5))
    cloud.ask(Detach())
    cloud.answer(DoneOutcome())
    cloud.cut()
    cloud.attach(code=3)
    assert isinstance(cloud.commands()[-1], Attach)


def test_a_loss_that_both_edges_tell_of_is_one_loss() -> None:
    cloud = attached_cloud("c1/e0", "c1/e1")
    cloud.ask(subscribe("x"))
    cloud.answer(granted("x", 5))
    cloud.cut("c1/e0")
    cloud.cut("c1/e1")
    cloud.submitted.clear()
    cloud.attach("c1/e0", code=3)
    cloud.attach("c1/e1", code=3)
    assert [type(command) for command in cloud.commands()] == [Attach, Subscribe, Attach]


@pytest.mark.parametrize("code", [0, 3])
def test_the_first_attachment_to_a_second_edge_is_no_loss_though_the_first_is_gone(
    code: int,
) -> None:
    cloud = ScriptedCloud("c1/e0", "c1/e1")
    cloud.attach("c1/e0", code, known_since=1_000)
    cloud.ask(subscribe("x"))
    cloud.answer(granted("x", 5))
    cloud.cut("c1/e0")
    cloud.submitted.clear()
    cloud.attach("c1/e1", code, known_since=1_000)
    assert [type(command) for command in cloud.commands()] == [Attach]


def test_a_loss_is_seen_though_the_edge_that_was_told_of_it_broke_before_it_told_us() -> None:
    cloud = ScriptedCloud("c1/e0", "c1/e1")
    cloud.attach("c1/e0", known_since=1_000)
    cloud.attach("c1/e1", known_since=1_000)
    cloud.ask(subscribe("x"))
    cloud.answer(granted("x", 5))
    cloud.cut("c1/e0")
    cloud.cut("c1/e1")
    cloud.connect("c1/e0")
    cloud.cut("c1/e0")
    cloud.submitted.clear()
    cloud.attach("c1/e1", code=1, known_since=1_003)
    assert [type(command) for command in cloud.commands()] == [Attach, Subscribe]
    cloud.attach("c1/e0", code=3, known_since=1_003)
    assert [type(command) for command in cloud.commands()] == [Attach, Subscribe, Attach]


def test_a_loss_is_seen_though_the_next_broker_learnt_of_us_by_an_older_request() -> None:
    cloud = ScriptedCloud("c1/e0", "c1/e1")
    cloud.attach("c1/e1", known_since=1_007)
    cloud.ask(subscribe("x"))
    cloud.answer(granted("x", 5))
    cloud.submitted.clear()
    cloud.attach("c1/e0", code=3, known_since=1_006)
    assert [type(command) for command in cloud.commands()] == [Attach, Subscribe]
    cloud.cut("c1/e1")
    cloud.attach("c1/e1", code=1, known_since=1_006)
    assert [type(command) for command in cloud.commands()] == [Attach, Subscribe, Attach]


def test_two_that_a_broker_without_its_journal_grants_each_other_s_numbers_both_end() -> None:
    cloud = attached_cloud()
    cloud.ask(subscribe("x", "y"))
    cloud.answer(granted("x", 1), granted("y", 2))
    cloud.cut()
    cloud.attach(code=3)
    cloud.answer(granted("x", 2), granted("y", 1))
    cloud.ask(Unsubscribe(subscription_ids=(1,)))
    cloud.ask(Unsubscribe(subscription_ids=(2,)))
    cloud.cut()
    cloud.submitted.clear()
    cloud.attach(code=3)
    assert not [command for command in cloud.commands() if isinstance(command, Subscribe)]
