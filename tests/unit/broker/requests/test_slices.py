"""Long requests are decided in slices: others are served in between, and no crash loses a part."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gridstat.broker.requests.command_dispatcher import SERVE_TIMER
from gridstat.broker.requests.fair_queue import FairQueue
from gridstat.broker.requests.request import Request, Rest
from gridstat.broker.settings import BrokerSettings, Quotas
from gridstat.model.errors import QuotaReached, StorageFailed, VariableExists
from gridstat.model.quota import Quota
from gridstat.net.command.endpoint_messages import (
    DoneOutcome,
    GrantedOutcome,
    PublishedOutcome,
    RefusedOutcome,
    Unpublish,
    Unsubscribe,
)
from gridstat.net.command.router_messages import Forward
from tests.unit.broker.conversation import Conversation, pair, refusal
from tests.unit.broker.stand_ins import CENTRE, CLOUD, PMU, VOLTAGE, publish, subscribe, variable

AT_ONCE = 4
COUNT = 18
EDGE, HERE = "c1/e0", "c1/e2"
NAMES = [f"{PMU}/v{number}" for number in range(COUNT)]
PUBLISH = publish(*(variable(name) for name in NAMES))


@pytest.fixture
def cloud() -> Conversation:
    settings = BrokerSettings(CLOUD, publish_at_once=AT_ONCE, end_at_once=AT_ONCE)
    return pair(settings=settings)


def registered(cloud: Conversation) -> list[str]:
    found = cloud.broker.registry.publications
    return [name for name in NAMES if name in found]


def serve(cloud: Conversation, turns: int = 1) -> None:
    for _ in range(turns):
        cloud.fire(SERVE_TIMER)


def subscribe_to_all(cloud: Conversation) -> list[int]:
    cloud.ask(PMU, EDGE, PUBLISH)
    outcomes = cloud.ask(CENTRE, HERE, subscribe(*NAMES))
    return [each.subscription_id for each in outcomes if isinstance(each, GrantedOutcome)]


# Publishing.


def test_each_turn_registers_a_slice_and_the_answer_has_all_in_order(cloud: Conversation) -> None:
    cloud.is_serving = False
    number = cloud.send(PMU, EDGE, PUBLISH)
    counts = [len(registered(cloud))]
    while SERVE_TIMER in cloud.timers:
        assert (PMU, number) not in cloud.answers
        serve(cloud)
        counts.append(len(registered(cloud)))
    assert counts == [4, 8, 12, 16, 18]
    cloud.settle()
    outcomes = cloud.answers[PMU, number]
    variables = [each.variable for each in outcomes if isinstance(each, PublishedOutcome)]
    assert [each.name for each in variables] == NAMES
    assert len({each.variable_id for each in variables}) == COUNT


def test_another_end_point_is_served_between_two_slices(cloud: Conversation) -> None:
    cloud.publish(VOLTAGE, EDGE)
    cloud.is_serving = False
    cloud.send(PMU, EDGE, PUBLISH)
    cloud.send(CENTRE, HERE, subscribe(VOLTAGE))
    serve(cloud, 2)
    assert len(cloud.broker.registry.endpoints[CENTRE].subscriptions) == 1
    assert len(registered(cloud)) < COUNT


def test_the_publisher_s_next_request_is_decided_after_the_last_slice(cloud: Conversation) -> None:
    cloud.is_serving = False
    cloud.send(PMU, EDGE, PUBLISH)
    number = cloud.send(PMU, EDGE, Unpublish(names=(NAMES[-1],)))
    while SERVE_TIMER in cloud.timers:
        serve(cloud)
    cloud.settle()
    assert cloud.answers[PMU, number] == (DoneOutcome(),)
    assert registered(cloud) == NAMES[:-1]


@pytest.mark.parametrize("slices", range(1, 5))
@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_repeat_after_a_crash_between_slices_registers_each_variable_once(
    cloud: Conversation, slices: int, is_compacted: bool
) -> None:
    cloud.is_serving = False
    number = cloud.send(PMU, EDGE, PUBLISH)
    serve(cloud, slices - 1)
    before = {name: cloud.broker.registry.publications[name].variable for name in registered(cloud)}
    assert len(before) == slices * AT_ONCE
    if is_compacted:
        cloud.journal[:] = cloud.broker.snapshot()
    cloud.kill_broker()
    cloud.start()
    cloud.is_serving = True
    outcomes = cloud.ask(PMU, EDGE, PUBLISH, request_id=number)

    variables = {
        each.variable.name: each.variable for each in outcomes if isinstance(each, PublishedOutcome)
    }
    assert list(variables) == NAMES
    assert {name: variables[name] for name in before} == before, "identifiers stay the same"
    again = cloud.ask(PMU, EDGE, PUBLISH, request_id=number)
    assert again == outcomes, "and the answer is kept"


def test_a_full_disk_in_the_middle_is_undecided_and_the_repeat_registers_the_rest(
    cloud: Conversation,
) -> None:
    cloud.is_serving = False
    number = cloud.send(PMU, EDGE, PUBLISH)
    serve(cloud)
    cloud.is_disk_full = True
    serve(cloud)
    assert refusal(cloud.answers[PMU, number]).code == StorageFailed.code
    while SERVE_TIMER in cloud.timers:
        serve(cloud)
    assert len(registered(cloud)) == 2 * AT_ONCE
    cloud.is_disk_full = False
    cloud.is_serving = True
    outcomes = cloud.ask(PMU, EDGE, PUBLISH, request_id=number)
    assert all(isinstance(each, PublishedOutcome) for each in outcomes), outcomes
    assert registered(cloud) == NAMES


def test_another_request_for_the_same_names_is_refused_as_before(cloud: Conversation) -> None:
    cloud.ask(PMU, EDGE, PUBLISH)
    outcomes = cloud.ask(PMU, EDGE, PUBLISH)
    assert {each.code for each in outcomes if isinstance(each, RefusedOutcome)} == {
        VariableExists.code
    }
    assert len(outcomes) == COUNT


def test_a_name_twice_in_one_request_is_refused_in_whatever_slice(cloud: Conversation) -> None:
    twice = publish(*(variable(name) for name in (*NAMES, NAMES[0], NAMES[-1])))
    outcomes = cloud.ask(PMU, EDGE, twice)
    assert [type(each) for each in outcomes] == [PublishedOutcome] * COUNT + [RefusedOutcome] * 2


def test_the_rest_of_a_process_that_was_replaced_is_not_registered(cloud: Conversation) -> None:
    cloud.is_serving = False
    cloud.send(PMU, EDGE, PUBLISH)
    cloud.broker.registry.endpoints[PMU].incarnation = "b"
    while SERVE_TIMER in cloud.timers:
        serve(cloud)
    assert len(registered(cloud)) == AT_ONCE


def test_the_slices_of_a_request_want_no_further_tokens() -> None:
    settings = BrokerSettings(CLOUD, publish_at_once=AT_ONCE, quotas=Quotas(commands_per_s=1))
    cloud = pair(settings=settings)
    cloud.is_serving = False
    cloud.advance(20 * 10**9)
    start_ns = cloud.now_ns
    cloud.send(PMU, EDGE, PUBLISH)
    while len(registered(cloud)) < COUNT:
        serve(cloud)
    assert cloud.now_ns == start_ns


# Subscribing and ending.


def test_the_subscriptions_beyond_the_bound_are_refused_each_in_words() -> None:
    cloud = pair(settings=BrokerSettings(CLOUD, subscribe_at_once=AT_ONCE))
    cloud.ask(PMU, EDGE, PUBLISH)
    outcomes = cloud.ask(CENTRE, HERE, subscribe(*NAMES))
    assert [type(each) for each in outcomes[:AT_ONCE]] == [GrantedOutcome] * AT_ONCE
    refused = [each for each in outcomes[AT_ONCE:] if isinstance(each, RefusedOutcome)]
    assert len(refused) == COUNT - AT_ONCE
    assert {each.code for each in refused} == {QuotaReached.code}
    assert "may ask for 4 variables" in refused[0].reason
    assert "further requests" in refused[0].hint


def contracts(cloud: Conversation) -> int:
    return len(cloud.broker.registry.endpoints[CENTRE].subscriptions)


@pytest.mark.parametrize("is_all", [False, True])
def test_many_contracts_end_slice_by_slice_and_are_answered_once(
    cloud: Conversation, is_all: bool
) -> None:
    numbers = subscribe_to_all(cloud)
    cloud.is_serving = False
    asked = cloud.send(CENTRE, HERE, Unsubscribe(subscription_ids=() if is_all else tuple(numbers)))
    serve(cloud)
    counts = [contracts(cloud)]
    while SERVE_TIMER in cloud.timers:
        assert (CENTRE, asked) not in cloud.answers
        serve(cloud)
        counts.append(contracts(cloud))
    assert len(counts) >= COUNT // AT_ONCE
    assert counts[-1] == 0
    assert all(0 <= a - b <= AT_ONCE for a, b in pairwise(counts))
    cloud.settle()
    assert cloud.answers[CENTRE, asked] == (DoneOutcome(),) * (1 if is_all else COUNT)
    assert cloud.differing() == []


@pytest.mark.parametrize("slices", range(1, 5))
def test_a_pattern_ends_with_all_that_it_has_caught_despite_a_crash(
    cloud: Conversation, slices: int
) -> None:
    (held,) = cloud.ask(CENTRE, HERE, subscribe("c1/**"))
    assert isinstance(held, GrantedOutcome)
    cloud.ask(PMU, EDGE, PUBLISH)
    cloud.advance(10**9)
    assert contracts(cloud) == COUNT
    cloud.is_serving = False
    end = Unsubscribe(subscription_ids=(held.subscription_id,))
    number = cloud.send(CENTRE, HERE, end)
    serve(cloud, slices - 1 + (contracts(cloud) == COUNT))
    assert 0 < contracts(cloud) < COUNT
    cloud.kill_broker()
    cloud.start()
    cloud.is_serving = True
    assert cloud.ask(CENTRE, HERE, end, request_id=number) == (DoneOutcome(),)
    assert contracts(cloud) == 0
    assert not cloud.broker.registry.patterns


def test_many_variables_are_withdrawn_slice_by_slice(cloud: Conversation) -> None:
    subscribe_to_all(cloud)
    cloud.is_serving = False
    number = cloud.send(PMU, EDGE, Unpublish(names=tuple(NAMES)))
    serve(cloud)
    left = len(registered(cloud))
    assert 0 < left < COUNT
    while SERVE_TIMER in cloud.timers:
        serve(cloud)
        assert left - len(registered(cloud)) <= AT_ONCE
        left = len(registered(cloud))
    cloud.settle()
    assert left == 0
    assert contracts(cloud) == 0
    assert cloud.answers[PMU, number] == (DoneOutcome(),) * COUNT
    assert cloud.differing() == []


# The queue.


def do_nothing() -> None:
    """Decide nothing; the queue does not call it."""


def request_of(who: str) -> Request:
    return Request(who, 1, b"", needs_endpoint=True, is_query=False, facts=None)


def forward_of(who: str, number: int) -> Forward:
    return Forward(endpoint=who, request_id=number, body=b"", signature=b"")


def taken(queue: FairQueue, count: int) -> list[str]:
    found = []
    for _ in range(count):
        each = queue.take(0)
        if isinstance(each, Rest):
            found.append(f"rest of {each.request.endpoint}")
        elif each is not None:
            found.append(f"{each[1].endpoint} {each[1].request_id}")
    return found


def test_a_rest_goes_before_its_end_point_s_requests_and_after_others() -> None:
    queue = FairQueue(lambda _: Quota(commands_per_s=0))
    queue.put(EDGE, forward_of("a", 1), 0)
    queue.put(EDGE, forward_of("b", 1), 0)
    queue.put_rest(Rest(request_of("a"), do_nothing), 0)
    assert taken(queue, 4) == ["rest of a", "b 1", "a 1"]
    assert queue.count == 0


def test_a_rest_survives_the_loss_of_its_edge() -> None:
    queue = FairQueue(lambda _: Quota(commands_per_s=0))
    queue.put(EDGE, forward_of("a", 1), 0)
    queue.put_rest(Rest(request_of("a"), do_nothing), 0)
    queue.forget_edge(EDGE)
    assert taken(queue, 2) == ["rest of a"]
    assert queue.next_ns(0) is None


def test_a_rest_of_an_end_point_that_waits_for_tokens_is_served_at_once() -> None:
    queue = FairQueue(lambda _: Quota(commands_per_s=1))
    for number in range(4):
        queue.put(EDGE, forward_of("a", number), 0)
    assert taken(queue, 4) == ["a 0", "a 1"], "a burst of two"
    queue.put_rest(Rest(request_of("a"), do_nothing), 0)
    assert taken(queue, 4) == ["rest of a"]
    assert queue.next_ns(0) == 10**9
    assert queue.count == 2
