"""Grants of an owner that do not fit the request."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from gridstat.broker.records.parent_operations import ContractAsked
from gridstat.broker.segments.remote_contracts import answers_request, is_within_request
from gridstat.model.errors import NoSuchVariable
from gridstat.model.qos import LATENCY_US_MAX, PRIORITY_REPLAY, ModalQos, Qos, QosRequest
from gridstat.net.command.segment_messages import AskContract, ContractGranted, EndContract
from tests.unit.broker.conversation import refusal
from tests.unit.broker.segments.family import FAR, family
from tests.unit.broker.stand_ins import CENTRE, subscribe

TWO_PATHS = Qos(every=1, latency_us=90, redundancy=2, priority=3)
GRANTED = ContractGranted(
    term=7,
    contract="c1#1",
    generation=1,
    owner="root",
    variable=FAR,
    granted={0: TWO_PATHS, 1: TWO_PATHS},
    paths=(),
)


def asked(**modes: QosRequest) -> ContractAsked:
    qos = ModalQos({int(mode[1:]): request for mode, request in modes.items()})
    return ContractAsked(number=1, subscriber=CENTRE, name=FAR.name, qos=qos, generation=1)


def test_another_variable_than_was_asked_for_is_refused_and_given_back() -> None:
    cloud = family()
    cloud.ask(CENTRE, "c1/e2", subscribe("c2/other/x"))
    asked = cloud.last(AskContract)
    assert asked.name != FAR.name
    cloud.grant(asked)
    assert refusal(cloud.answers[CENTRE, cloud.request_id]).code == NoSuchVariable.code
    assert cloud.last(EndContract).contract == asked.contract


def test_a_mode_may_have_as_many_paths_as_the_mode_that_desires_most() -> None:
    wanted = asked(m0=QosRequest(redundancy=1), m1=QosRequest(redundancy=2))
    assert is_within_request(wanted, GRANTED)
    assert not is_within_request(
        asked(m0=QosRequest(redundancy=1), m1=QosRequest(redundancy=1)), GRANTED
    )
    assert not is_within_request(
        asked(m0=QosRequest(redundancy=3), m1=QosRequest(redundancy=1)), GRANTED
    )


def test_what_is_slower_or_of_another_priority_than_accepted_does_not_fit() -> None:
    word = structs.replace(GRANTED, granted={0: replace(TWO_PATHS, redundancy=1)})
    assert is_within_request(asked(m0=QosRequest(latency_us=90)), word)
    assert is_within_request(asked(m0=QosRequest(latency_us=10, latency_us_worst=90)), word)
    assert not is_within_request(asked(m0=QosRequest(latency_us=10, latency_us_worst=89)), word)
    assert not is_within_request(asked(m0=QosRequest(latency_us=90, priority=2)), word)


def test_of_what_is_replayed_nobody_expects_a_latency() -> None:
    slow = Qos(every=1, latency_us=LATENCY_US_MAX, redundancy=1, priority=PRIORITY_REPLAY)
    wanted = asked(m0=QosRequest(latency_us=10))
    word = structs.replace(GRANTED, granted={0: slow})
    assert not is_within_request(wanted, word)
    replayed = structs.replace(word, variable=replace(FAR, replay_speed=2))
    assert is_within_request(wanted, replayed)


def test_a_new_plan_with_the_number_of_a_change_does_not_answer_the_change() -> None:
    """Its owner tells which question it has heard; an older one does not, and is believed."""
    wanted = asked(m0=QosRequest(redundancy=2), m1=QosRequest(redundancy=2))
    assert answers_request(wanted, GRANTED)
    assert answers_request(wanted, structs.replace(GRANTED, generation=2, asked=1))
    assert not answers_request(wanted, structs.replace(GRANTED, asked=0))
