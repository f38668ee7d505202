"""Publications that the cloud withdraws by a rule are asked for again, in any order of messages."""

from __future__ import annotations

import pytest

from gridstat.endpoint.registrations import Registrations
from gridstat.model.identifiers import VariableId
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, StatusVariable
from gridstat.net.command.endpoint_messages import (
    PublicationRequest,
    Publish,
    PublishedOutcome,
    Unpublish,
    Unpublished,
)

NAME = "c1/pmu/voltage"


def voltage(number: int) -> StatusVariable:
    return StatusVariable(VariableId(number), NAME, BuiltinType.FLOAT64, Period(1, 60))


def asked() -> Publish:
    return Publish(publications=(PublicationRequest(variable=voltage(0)),))


def answer(found: Registrations, number: int) -> None:
    found.answered(asked(), (PublishedOutcome(variable=voltage(number)),))


def withdrawn(number: int) -> Unpublished:
    return Unpublished(subscription_id=0, name=NAME, code=1015, variable_id=number)


@pytest.fixture
def found() -> Registrations:
    return Registrations()


def test_a_withdrawn_publication_is_asked_for_again(found: Registrations) -> None:
    answer(found, 7)
    found.notice_received(withdrawn(7))
    assert list(found.restoring()) == [asked()]
    answer(found, 8)
    assert found.is_whole


def test_a_notice_that_is_repeated_late_does_not_end_the_next_one(found: Registrations) -> None:
    answer(found, 7)
    found.notice_received(withdrawn(7))
    answer(found, 8)
    found.notice_received(withdrawn(7))
    assert found.is_whole


def test_an_answer_that_comes_after_the_notice_grants_nothing(found: Registrations) -> None:
    found.notice_received(withdrawn(7))
    answer(found, 7)
    assert not found.is_whole


def test_a_publication_that_the_application_ended_is_not_asked_for(found: Registrations) -> None:
    answer(found, 7)
    found.requested(Unpublish(names=(NAME,)))
    found.notice_received(withdrawn(7))
    assert found.is_whole
