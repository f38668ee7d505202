"""Granted is up: no answer grants a contract before routers have confirmed a path of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from tests.unit.broker.stand_ins import CENTRE, PMU, VOLTAGE, publish, subscribe, variable

if TYPE_CHECKING:
    from gridstat.model.status import StatusVariable

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


def move_until_late(cloud: Conversation, wait_ns: int) -> None:
    """Let the only contract move every fourth of the time that a confirmation may take."""
    step_ns = cloud.settings.confirm_within_ns // 4
    for _ in range(wait_ns // step_ns):
        move(cloud)
        cloud.advance(step_ns)


def test_a_contract_that_moves_again_and_again_is_answered_in_time(silent: Conversation) -> None:
    """Twice the time of a confirmation is the limit, with a quarter for steps of this test."""
    within_ns = silent.settings.confirm_within_ns
    silent.ask(CENTRE, "c1/e2", subscribe(VOLTAGE))
    move_until_late(silent, 2 * within_ns + within_ns // 4)

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
    within_ns = silent.settings.confirm_within_ns
    silent.ask(CENTRE, "c1/e2", subscribe(f"{PMU}/*"))
    move_until_late(silent, 2 * within_ns + within_ns // 4)

    matches = [each for each in silent.notices[CENTRE] if isinstance(each, Matched)]
    assert matches
    assert matches[0].granted.degraded


def ask_and_move(cloud: Conversation) -> tuple[int, int]:
    """Request two contracts, of which the first moves to a silent router after a short failure.

    Return the request and the first contract.
    """
    cloud.publish(f"{PMU}/current", "c1/e0")
    cloud.routers["c1/i1"].is_silent = True
    qualities = (QosRequest(), QosRequest(redundancy=2))
    names = (VOLTAGE, f"{PMU}/current")
    asked = [subscribe(*each).subscriptions[0] for each in zip(names, qualities, strict=True)]
    request_id = cloud.send(CENTRE, "c1/e2", Subscribe(subscriptions=tuple(asked)))
    cloud.settle()
    number = min(cloud.broker.registry.subscriptions)
    set_channels(cloud, "c1/i0", is_up=False)
    cloud.settle()
    assert routers_held(cloud, number) == [("c1/e0", "c1/i1", "c1/e2")]
    set_channels(cloud, "c1/i0", is_up=True)
    return request_id, number


def test_a_confirmed_contract_is_not_ended_because_a_short_failure_moves_it(
    cloud: Conversation,
) -> None:
    """Its first path works again, while the router of the new one stays silent."""
    request_id, number = ask_and_move(cloud)
    cloud.advance(3 * cloud.settings.confirm_within_ns)

    voltage, _ = cloud.answers[CENTRE, request_id]
    assert isinstance(voltage, GrantedOutcome)
    assert [path.routers for path in voltage.paths] == [("c1/e0", "c1/i0", "c1/e2")]
    assert number in cloud.broker.registry.subscriptions


def test_a_move_that_is_confirmed_while_the_answer_is_written_is_reported_after_it(
    cloud: Conversation,
) -> None:
    request_id, number = ask_and_move(cloud)
    cloud.settle()
    cloud.is_journal_held = True
    cloud.advance(cloud.settings.confirm_within_ns)
    assert (CENTRE, request_id) not in cloud.answers
    cloud.confirm("c1/i1")
    cloud.notices.clear()
    cloud.write(1)

    voltage, _ = cloud.answers[CENTRE, request_id]
    assert isinstance(voltage, GrantedOutcome)
    assert [path.routers for path in voltage.paths] == [("c1/e0", "c1/i0", "c1/e2")]
    notice, *_ = cloud.notices[CENTRE]
    assert isinstance(notice, ContractChanged)
    assert [path.routers for path in notice.granted.paths] == routers_held(cloud, number)
    assert notice.order > voltage.order


def test_a_confirmed_move_is_granted_although_another_row_is_in_flight(
    silent: Conversation,
) -> None:
    """An edge of the path has an order of another variable when the answer is due."""
    silent.ask(CENTRE, "c1/e2", subscribe(VOLTAGE))
    request_id = silent.request_id
    move_each_turn(silent, 2)
    move(silent)
    (number,) = silent.broker.registry.subscriptions
    ((_, router, _),) = routers_held(silent, number)
    silent.confirm(router)
    silent.routers[router].is_silent = False
    silent.advance(1_990_000_000)
    silent.routers["c1/e0"].is_silent = True
    silent.send(PMU, "c1/e0", publish(variable(f"{PMU}/other")))
    silent.advance(100_000_000)

    outcome = answered(silent, request_id)
    assert [path.routers for path in outcome.paths] == routers_held(silent, number)


def test_a_late_answer_grants_no_move_that_is_not_durable() -> None:
    """The routers of the third path confirm everything, and have no order of it yet."""
    inner = [f"c1/i{number}" for number in range(3)]
    edges = [Router(name, RouterRole.EDGE) for name in ("c1/a", "c1/b")]
    pairs = [pair for name in inner for pair in (("c1/a", name), (name, "c1/b"))]
    channels = [EventChannel(ChannelId(k), *pair) for k, pair in enumerate(pairs, start=1)]
    routers = [*edges, *(Router(name, RouterRole.INNER) for name in inner)]
    cloud = Conversation((routers, channels)).start()
    cloud.attach(PMU, "c1/a", data_port=0)
    cloud.attach(CENTRE, "c1/b")
    cloud.publish(VOLTAGE, "c1/a")
    for name in inner[:2]:
        cloud.routers[name].is_silent = True
    request_id = cloud.send(CENTRE, "c1/b", subscribe(VOLTAGE))
    cloud.settle()
    within_ns = cloud.settings.confirm_within_ns
    cut_off(cloud, "c1/i0")
    cloud.advance(2 * within_ns - 100_000_000)
    cloud.is_journal_held = True
    number = cut_off(cloud, "c1/i1")
    assert routers_held(cloud, number) == [("c1/a", "c1/i2", "c1/b")]
    cloud.advance(200_000_000)
    while cloud.held_persists and (CENTRE, request_id) not in cloud.answers:
        cloud.write(1)

    assert refusal(cloud.answers[CENTRE, request_id]).code == DeadlinePassed.code


def test_a_match_names_no_paths_that_a_crash_would_take_back(silent: Conversation) -> None:
    silent.ask(CENTRE, "c1/e2", subscribe(f"{PMU}/*"))
    move_each_turn(silent, 2)
    (number,) = silent.broker.registry.subscriptions
    before = routers_held(silent, number)
    silent.is_journal_held = True
    move(silent)
    assert routers_held(silent, number) != before
    silent.advance(silent.settings.confirm_within_ns)

    match, *_ = silent.notices[CENTRE]
    assert isinstance(match, Matched)
    assert [path.routers for path in match.granted.paths] == before
    silent.kill_broker()
    assert routers_held(silent, number) == before


def test_a_notice_after_the_answer_names_no_paths_that_a_crash_would_take_back(
    cloud: Conversation,
) -> None:
    """A contract with a silent router fails while the journal writes its answer."""
    cloud.routers["c1/i0"].is_silent = True
    request_id = cloud.send(CENTRE, "c1/e2", TWO_PATHS)
    cloud.settle()
    (number,) = cloud.broker.registry.subscriptions
    before = routers_held(cloud, number)
    cloud.is_journal_held = True
    cloud.advance(cloud.settings.confirm_within_ns)
    failed = cloud.broker.registry.subscriptions[number].record.paths[1].channel_ids[0]
    receiver = cloud.broker.registry.channels[failed].to_router
    cloud.hear(receiver, ChannelStateChanged(channel_id=failed, is_up=False))
    cloud.advance(0)
    assert routers_held(cloud, number) != before
    cloud.write(1)

    assert [path.routers for path in answered(cloud, request_id).paths] == before
    named = [
        [path.routers for path in each.granted.paths]
        for each in cloud.notices.get(CENTRE, [])
        if isinstance(each, ContractChanged)
    ]
    assert all(paths == before for paths in named)
    cloud.kill_broker()
    assert routers_held(cloud, number) == before


def test_a_failure_of_a_contract_that_is_not_durable_is_reported_after_its_answer(
    cloud: Conversation,
) -> None:
    cloud.is_journal_held = True
    request_id = cloud.send(CENTRE, "c1/e2", subscribe(VOLTAGE))
    for router in INNER:
        set_channels(cloud, router, is_up=False)
    cloud.advance(0)
    assert CENTRE not in cloud.notices
    cloud.is_journal_held = False
    cloud.write(1)
    cloud.settle()

    assert answered(cloud, request_id).subscription_id
    *_, notice = cloud.notices[CENTRE]
    assert isinstance(notice, ContractChanged)
    assert notice.granted.paths_down == ("path 1",)


def test_a_moved_contract_whose_router_is_absent_after_a_restart_is_reported_as_such(
    silent: Conversation,
) -> None:
    request_id = silent.send(CENTRE, "c1/e2", subscribe(VOLTAGE))
    silent.settle()
    number = cut_off(silent, "c1/i0")
    silent.advance(silent.settings.confirm_within_ns + 100_000_000)
    silent.kill_broker()
    silent.start(without="c1/i1")
    silent.ask(CENTRE, "c1/e2", subscribe(VOLTAGE), request_id=request_id)

    *_, notice = silent.notices[CENTRE]
    assert isinstance(notice, ContractChanged)
    assert notice.granted.subscription_id == number
    assert notice.granted.degraded == ("router c1/i1 has not confirmed its part yet",)


def subscribe_before_an_announcement(cloud: Conversation) -> tuple[int, StatusVariable]:
    """Request a contract that c1/i0 delays, and change the period, which c1/e1 delays.

    Return the request, and the variable with the identifier that carries events.
    """
    cloud.routers["c1/i0"].is_silent = True
    number = cloud.send(CENTRE, "c1/e2", subscribe(VOLTAGE))
    cloud.settle()
    before = cloud.broker.registry.publications[VOLTAGE].variable
    cloud.routers["c1/e1"].is_silent = True
    cloud.ask(PMU, "c1/e0", ChangePublication(name=VOLTAGE, period=Period(1, 30)))
    return number, before


def test_a_failure_before_the_answer_is_reported_under_the_announced_identifier(
    cloud: Conversation,
) -> None:
    """The period changes and all paths fail, while an edge delays the announcement."""
    number, before = subscribe_before_an_announcement(cloud)
    for router in INNER:
        set_channels(cloud, router, is_up=False)
    cloud.settle()
    cloud.notices.clear()
    cloud.confirm("c1/i0")
    cloud.routers["c1/i0"].is_silent = False
    cloud.settle()

    assert answered(cloud, number).variable == before
    *_, notice = cloud.notices[CENTRE]
    assert isinstance(notice, ContractChanged)
    assert notice.granted.variable == before
    assert notice.granted.paths_down == ("path 1",)


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
    number, before = subscribe_before_an_announcement(cloud)
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


def test_an_announcement_is_not_sent_for_a_contract_that_is_not_durable(
    cloud: Conversation,
) -> None:
    cloud.routers["c1/e0"].is_silent = True
    cloud.send(PMU, "c1/e0", ChangePublication(name=VOLTAGE, period=Period(1, 30)))
    cloud.settle()
    cloud.is_journal_held = True
    cloud.confirm("c1/e0")
    cloud.advance(0)
    request_id = cloud.send(CENTRE, "c1/e2", subscribe(VOLTAGE))
    cloud.advance(0)
    cloud.write(1)
    assert CENTRE not in cloud.notices
    cloud.routers["c1/e0"].is_silent = False
    cloud.is_journal_held = False
    cloud.write(1)
    cloud.settle()

    changed = cloud.broker.registry.publications[VOLTAGE]
    assert answered(cloud, request_id).variable == changed.variable


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
