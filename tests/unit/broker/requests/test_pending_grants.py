"""Granted is up: no answer grants a contract before routers have confirmed a path of it."""

from __future__ import annotations

import pytest

from gridstat.broker.requests.pending_grants import GrantState
from gridstat.model.cloud import EventChannel, Router, RouterRole
from gridstat.model.errors import DeadlinePassed, NoSuchVariable
from gridstat.model.identifiers import ChannelId
from gridstat.model.qos import QosRequest
from gridstat.model.rate_law import NS_PER_S, Period
from gridstat.net.command.endpoint_messages import (
    ChangePublication,
    ContractChanged,
    GrantedOutcome,
    Matched,
    PublicationChanged,
    Subscribe,
    Unpublish,
)
from gridstat.net.command.messages import ChannelStateChanged
from tests.unit.broker.conversation import Conversation, pair, refusal
from tests.unit.broker.stand_ins import CENTRE, PMU, VOLTAGE, subscribe

INNER = ("c1/i0", "c1/i1")
TWO_PATHS = subscribe(VOLTAGE, QosRequest(redundancy=2))


@pytest.fixture
def cloud() -> Conversation:
    found = pair()
    found.publish(VOLTAGE, "c1/e0")
    return found


@pytest.fixture
def silent(cloud: Conversation) -> Conversation:
    """The same cloud, whose inner routers take orders and confirm none of them."""
    for name in INNER:
        cloud.routers[name].is_silent = True
    return cloud


def let_confirm(cloud: Conversation) -> None:
    """The inner routers confirm what they have, and all that comes."""
    for name in INNER:
        cloud.confirm(name)
        cloud.routers[name].is_silent = False
    cloud.settle()


def answered(cloud: Conversation, number: int = 0) -> GrantedOutcome:
    """The contract that a request, or the last one, was granted."""
    return cloud.only(GrantedOutcome, cloud.answers[CENTRE, number or cloud.request_id])


def test_a_silent_router_of_one_path_is_named_and_the_other_path_is_granted(
    cloud: Conversation,
) -> None:
    cloud.routers["c1/i0"].is_silent = True
    assert cloud.ask(CENTRE, "c1/e2", TWO_PATHS) == ()

    cloud.advance(cloud.settings.confirm_within_ns)

    outcome = answered(cloud)
    assert outcome.degraded == ("router c1/i0 has not confirmed its part yet",)


def test_a_subscription_of_which_no_path_is_up_is_refused_and_taken_back(
    silent: Conversation,
) -> None:
    silent.ask(CENTRE, "c1/e2", TWO_PATHS)

    silent.advance(silent.settings.confirm_within_ns)
    silent.settle()

    refused = refusal(silent.answers[CENTRE, silent.request_id])
    assert refused.code == DeadlinePassed.code
    assert silent.broker.registry.subscriptions == {}
    let_confirm(silent)
    assert silent.differing() == []


def test_a_contract_that_cannot_be_taken_back_on_a_full_disk_is_neither_refused_nor_granted(
    silent: Conversation,
) -> None:
    silent.ask(CENTRE, "c1/e2", TWO_PATHS)
    silent.is_disk_full = True
    silent.advance(2 * silent.settings.confirm_within_ns)
    assert silent.ask(CENTRE, "c1/e2", TWO_PATHS, request_id=silent.request_id) == ()

    silent.is_disk_full = False
    silent.advance(2 * silent.settings.confirm_within_ns)
    refused = refusal(silent.answers[CENTRE, silent.request_id])
    assert refused.code == DeadlinePassed.code
    assert silent.broker.registry.subscriptions == {}


def test_a_grant_is_recorded_in_one_state_at_a_time_until_it_is_answered(
    silent: Conversation,
) -> None:
    grants = silent.broker._grants
    silent.is_journal_held = True
    silent.send(CENTRE, "c1/e2", TWO_PATHS)
    assert grants.states() == [GrantState.WRITING]

    silent.is_journal_held = False
    silent.write()
    assert grants.states() == [GrantState.CONFIRMING]

    silent.is_disk_full = True
    silent.advance(silent.settings.confirm_within_ns)
    assert grants.states() == [GrantState.RETRYING]

    silent.is_disk_full = False
    silent.advance(silent.settings.retry_after_ns)
    assert grants.states() == [GrantState.CONFIRMING]

    let_confirm(silent)
    assert grants.states() == []
    answered(silent)


def test_a_contract_that_could_not_be_taken_back_is_granted_once_its_paths_are_up(
    silent: Conversation,
) -> None:
    silent.ask(CENTRE, "c1/e2", TWO_PATHS)
    silent.is_disk_full = True
    silent.advance(silent.settings.confirm_within_ns)
    for name in INNER:
        silent.confirm(name)
    silent.advance(silent.settings.retry_after_ns)

    outcome = answered(silent)
    assert outcome.subscription_id in silent.broker.registry.subscriptions


def test_a_kept_answer_grants_nothing_after_a_restart_before_its_paths_are_up(
    silent: Conversation,
) -> None:
    number = silent.send(CENTRE, "c1/e2", TWO_PATHS)
    silent.kill_broker()
    silent.start()
    assert silent.ask(CENTRE, "c1/e2", TWO_PATHS, request_id=number) == ()
    silent.advance(2 * silent.settings.confirm_within_ns)
    assert (CENTRE, number) not in silent.answers

    silent.confirm("c1/i0")
    silent.advance(silent.settings.confirm_within_ns)
    outcome = answered(silent, number)
    assert outcome.subscription_id in silent.broker.registry.subscriptions


def test_a_withdrawal_that_the_disk_cannot_take_is_answered_when_it_can(
    silent: Conversation,
) -> None:
    silent.ask(CENTRE, "c1/e2", subscribe(VOLTAGE))
    number = silent.request_id
    silent.ask(PMU, "c1/e0", Unpublish(names=(VOLTAGE,)))
    silent.is_disk_full = True
    let_confirm(silent)
    assert (CENTRE, number) not in silent.answers

    silent.is_disk_full = False
    silent.advance(silent.settings.retry_after_ns)
    assert refusal(silent.answers[CENTRE, number]).code == NoSuchVariable.code


def test_a_router_that_leaves_while_asked_is_not_waited_for_if_another_path_works(
    cloud: Conversation,
) -> None:
    cloud.routers["c1/i0"].is_silent = True
    cloud.ask(CENTRE, "c1/e2", TWO_PATHS)
    cloud.disconnect("c1/i0")

    outcome = answered(cloud)
    assert outcome.degraded


def test_a_router_that_leaves_and_returns_in_time_confirms_by_its_digest(
    silent: Conversation,
) -> None:
    silent.ask(CENTRE, "c1/e2", subscribe(VOLTAGE))
    for name in INNER:
        silent.disconnect(name)
        silent.routers[name].is_silent = False
        silent.connect(name)
    silent.settle()

    outcome = answered(silent)
    assert outcome.degraded == ()


def test_a_variable_that_goes_while_its_paths_are_set_up_was_never_granted(
    silent: Conversation,
) -> None:
    silent.ask(CENTRE, "c1/e2", subscribe(VOLTAGE))
    number = silent.request_id
    silent.ask(PMU, "c1/e0", Unpublish(names=(VOLTAGE,)))
    let_confirm(silent)

    refused = silent.answers[CENTRE, number]
    assert refusal(refused).code == NoSuchVariable.code
    assert silent.ask(CENTRE, "c1/e2", subscribe(VOLTAGE), request_id=number) == refused


def set_channels(cloud: Conversation, router: str, *, is_up: bool) -> None:
    """Report that all channels to a router are up, or silent."""
    for channel in cloud.channels_given:
        if channel.to_router == router:
            cloud.hear(router, ChannelStateChanged(channel_id=channel.channel_id, is_up=is_up))


def cut_off(cloud: Conversation, router: str) -> int:
    """All channels to a router of the only contract fall silent; the number of the contract."""
    set_channels(cloud, router, is_up=False)
    cloud.settle()
    (number,) = cloud.broker.registry.subscriptions
    assert all(router not in routers for routers in routers_held(cloud, number))
    return number


def routers_held(cloud: Conversation, number: int) -> list[tuple[str, ...]]:
    paths = cloud.broker.registry.subscriptions[number].record.paths
    return [path.routers for path in paths]


def test_a_contract_that_has_moved_off_a_silent_router_is_granted_on_its_new_path(
    cloud: Conversation,
) -> None:
    """The router of the first path confirms nothing, and is cut off meanwhile."""
    cloud.routers["c1/i0"].is_silent = True
    assert cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE)) == ()
    number = cut_off(cloud, "c1/i0")

    cloud.advance(2 * cloud.settings.confirm_within_ns)

    outcome = answered(cloud)
    assert outcome.subscription_id == number
    assert [path.routers for path in outcome.paths] == routers_held(cloud, number)
    assert outcome.degraded == ()
    again = cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE), request_id=cloud.request_id)
    assert again == (outcome,)


def test_an_answer_names_the_paths_of_a_contract_that_moved_while_it_was_confirmed(
    silent: Conversation,
) -> None:
    silent.ask(CENTRE, "c1/e2", subscribe(VOLTAGE))
    number = cut_off(silent, "c1/i0")
    let_confirm(silent)

    outcome = answered(silent)
    assert [path.routers for path in outcome.paths] == routers_held(silent, number)


def test_a_moved_contract_of_which_no_path_is_up_is_refused_and_taken_back(
    silent: Conversation,
) -> None:
    silent.ask(CENTRE, "c1/e2", subscribe(VOLTAGE))
    cut_off(silent, "c1/i0")
    silent.advance(3 * silent.settings.confirm_within_ns)

    refused = refusal(silent.answers[CENTRE, silent.request_id])
    assert refused.code == DeadlinePassed.code
    assert silent.broker.registry.subscriptions == {}
    let_confirm(silent)
    assert silent.differing() == []


def test_a_match_names_the_paths_of_a_contract_that_moved_while_it_was_confirmed(
    silent: Conversation,
) -> None:
    silent.ask(CENTRE, "c1/e2", subscribe(f"{PMU}/*"))
    number = cut_off(silent, "c1/i0")
    let_confirm(silent)

    (match, *_) = [each for each in silent.notices[CENTRE] if isinstance(each, Matched)]
    assert [path.routers for path in match.granted.paths] == routers_held(silent, number)
    assert match.granted.degraded == ()


@pytest.mark.parametrize("name", [VOLTAGE, f"{PMU}/*"], ids=["by name", "by a pattern"])
def test_a_path_that_fails_before_the_answer_is_reported_after_it(name: str) -> None:
    """The end-point does not know the contract before, and drops a notice about it."""
    routers = [Router("c1/a", RouterRole.EDGE), Router("c1/b", RouterRole.EDGE)]
    cloud = Conversation((routers, [EventChannel(ChannelId(1), "c1/a", "c1/b")])).start()
    cloud.attach(PMU, "c1/a", data_port=0)
    cloud.attach(CENTRE, "c1/b")
    cloud.publish(VOLTAGE, "c1/a")
    cloud.routers["c1/a"].is_silent = True
    cloud.ask(CENTRE, "c1/b", subscribe(name))
    cloud.hear("c1/b", ChannelStateChanged(channel_id=1, is_up=False, silent_ms=100))
    cloud.settle()
    cloud.notices.clear()
    cloud.confirm("c1/a")

    *_, notice = cloud.notices[CENTRE]
    assert isinstance(notice, ContractChanged)
    assert notice.granted.paths_down == ("path 1",)


def move(cloud: Conversation) -> None:
    """Let recovery move the only contract, if it lives, to the other inner router."""
    for found in cloud.broker.registry.subscriptions.values():
        (_, cut, _) = found.record.paths[0].routers
        for router in INNER:
            set_channels(cloud, router, is_up=router != cut)
    cloud.settle()


def move_each_turn(cloud: Conversation, turns: int) -> None:
    for _ in range(turns):
        move(cloud)
        cloud.advance(4 * NS_PER_S)


def test_a_contract_that_moves_again_and_again_is_answered_in_time(silent: Conversation) -> None:
    silent.ask(CENTRE, "c1/e2", subscribe(VOLTAGE))
    move_each_turn(silent, 5)

    refused = refusal(silent.answers[CENTRE, silent.request_id])
    assert refused.code == DeadlinePassed.code
    assert silent.broker.registry.subscriptions == {}
    let_confirm(silent)
    assert silent.differing() == []


def test_a_contract_that_moves_again_and_again_is_granted_on_the_path_that_is_up(
    silent: Conversation,
) -> None:
    """The routers of its last path alone confirm, shortly before its answer is due."""
    silent.ask(CENTRE, "c1/e2", subscribe(VOLTAGE))
    move_each_turn(silent, 2)
    move(silent)
    (number,) = silent.broker.registry.subscriptions
    ((_, router, _),) = routers_held(silent, number)
    silent.confirm(router)
    silent.routers[router].is_silent = False
    silent.advance(3 * NS_PER_S)

    outcome = answered(silent)
    assert [path.routers for path in outcome.paths] == routers_held(silent, number)


def test_a_match_that_moves_again_and_again_is_reported_in_time(silent: Conversation) -> None:
    silent.ask(CENTRE, "c1/e2", subscribe(f"{PMU}/*"))
    move_each_turn(silent, 5)

    matches = [each for each in silent.notices[CENTRE] if isinstance(each, Matched)]
    assert matches
    assert matches[0].granted.degraded


def test_a_repeated_answer_is_followed_by_the_present_paths_of_its_contract(
    cloud: Conversation,
) -> None:
    """The answer was lost with the session of the edge, and recovery has moved the contract."""
    cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE))
    number = cut_off(cloud, answered(cloud).paths[0].routers[1])
    cloud.advance(NS_PER_S)
    cloud.notices.clear()
    cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE), request_id=cloud.request_id)

    *_, notice = cloud.notices[CENTRE]
    assert isinstance(notice, ContractChanged)
    assert [path.routers for path in notice.granted.paths] == routers_held(cloud, number)
    assert notice.order > answered(cloud).order


def test_a_repeated_answer_of_a_contract_that_has_not_changed_is_all(cloud: Conversation) -> None:
    first = cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE))
    again = cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE), request_id=cloud.request_id)
    assert again == first
    assert CENTRE not in cloud.notices


def test_a_repeated_answer_is_followed_by_the_failure_of_a_path_since(cloud: Conversation) -> None:
    cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE))
    for router in INNER:
        set_channels(cloud, router, is_up=False)
    cloud.settle()
    cloud.advance(NS_PER_S)
    cloud.notices.clear()
    cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE), request_id=cloud.request_id)

    *_, notice = cloud.notices[CENTRE]
    assert isinstance(notice, ContractChanged)
    assert notice.granted.paths_down == ("path 1",)


def test_an_answer_names_no_identifier_whose_first_slot_is_not_announced(
    cloud: Conversation,
) -> None:
    """An edge of the publisher, on no path of the contract, delays the change of the period."""
    cloud.routers["c1/i0"].is_silent = True
    number = cloud.send(CENTRE, "c1/e2", subscribe(VOLTAGE))
    cloud.settle()
    before = cloud.broker.registry.publications[VOLTAGE].variable
    cloud.routers["c1/e1"].is_silent = True
    cloud.ask(PMU, "c1/e0", ChangePublication(name=VOLTAGE, period=Period(1, 30)))
    cloud.confirm("c1/i0")
    cloud.routers["c1/i0"].is_silent = False
    cloud.settle()

    outcome = answered(cloud, number)
    assert outcome.variable == before
    assert CENTRE not in cloud.notices
    cloud.advance(2 * cloud.settings.confirm_within_ns)
    notice, *_ = cloud.notices[CENTRE]
    assert isinstance(notice, PublicationChanged)
    assert notice.order > outcome.order


def test_an_answer_names_the_identifier_of_a_change_that_is_announced(
    cloud: Conversation,
) -> None:
    """The answer waits for the second path of another contract, when the period changes."""
    cloud.publish(f"{PMU}/current", "c1/e0")
    cloud.routers["c1/i1"].is_silent = True
    names = (VOLTAGE, f"{PMU}/current")
    qualities = (QosRequest(), QosRequest(redundancy=2))
    asked = [subscribe(*each).subscriptions[0] for each in zip(names, qualities, strict=True)]
    number = cloud.send(CENTRE, "c1/e2", Subscribe(subscriptions=tuple(asked)))
    cloud.settle()
    cloud.ask(PMU, "c1/e0", ChangePublication(name=VOLTAGE, period=Period(1, 30)))
    assert (CENTRE, number) not in cloud.answers
    cloud.confirm("c1/i1")
    cloud.routers["c1/i1"].is_silent = False
    cloud.settle()

    publication = cloud.broker.registry.publications[VOLTAGE]
    assert publication.change is not None
    assert publication.change.from_ns
    voltage, _ = cloud.answers[CENTRE, number]
    assert isinstance(voltage, GrantedOutcome)
    assert voltage.variable == publication.variable


def test_a_contract_that_moved_off_a_silent_router_is_not_ended_for_a_change_of_its_period(
    cloud: Conversation,
) -> None:
    """Its first paths never come up, and those of the change do."""
    cloud.routers["c1/i0"].is_silent = True
    request_id = cloud.send(CENTRE, "c1/e2", subscribe(VOLTAGE))
    cloud.settle()
    number = cut_off(cloud, "c1/i0")
    cloud.advance(NS_PER_S)
    cloud.routers["c1/e1"].is_silent = True
    cloud.ask(PMU, "c1/e0", ChangePublication(name=VOLTAGE, period=Period(1, 30)))
    cloud.advance(cloud.settings.confirm_within_ns)

    outcome = answered(cloud, request_id)
    assert [path.routers for path in outcome.paths] == routers_held(cloud, number)
