"""A change that its owner grants after its end-point was told that nobody has answered in time."""

from __future__ import annotations

import pytest

from gridstat.model.errors import DeadlinePassed
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.net.command.endpoint_messages import (
    ChangeSubscription,
    ContractChanged,
    GrantedOutcome,
    RefusedOutcome,
)
from gridstat.net.command.segment_messages import AskContract, ContractRefused
from tests.unit.broker.conversation import refusal
from tests.unit.broker.segments.family import FAR, Family, family
from tests.unit.broker.stand_ins import CENTRE, subscribe


@pytest.fixture
def cloud() -> Family:
    """Cloud with a contract of one path, and a change to two that was not answered in time."""
    found = family()
    found.ask(CENTRE, "c1/e2", subscribe(FAR.name, QosRequest(redundancy=1)))
    found.grant(found.last(AskContract))
    granted = found.only(GrantedOutcome, found.answers[CENTRE, found.request_id])
    qos = ModalQos({0: QosRequest(redundancy=2)})
    number = granted.subscription_id
    found.ask(CENTRE, "c1/e2", ChangeSubscription(subscription_id=number, qos=qos))
    found.advance(found.settings.ask_within_ns)
    assert refusal(found.answers[CENTRE, found.request_id]).code == DeadlinePassed.code
    return found


def questions(cloud: Family) -> list[tuple[int, int]]:
    """Return the numbers of requested paths, by generation."""
    return sorted(
        {(word.generation, word.qos.modes[0].redundancy) for word in cloud.heard(AskContract)}
    )


def paths_now(cloud: Family) -> int:
    (found,) = cloud.broker.registry.tree.asked.values()
    assert found.granted is not None
    return found.granted.granted[0].redundancy


def test_a_change_that_was_refused_too_early_is_taken_back_at_its_owner(cloud: Family) -> None:
    asked = {word.generation: word for word in cloud.heard(AskContract)}
    assert questions(cloud) == [(0, 1), (1, 2), (2, 1)]
    cloud.grant(asked[1], paths=2)
    assert paths_now(cloud) == 2
    cloud.grant(asked[2], paths=1)
    assert paths_now(cloud) == 1
    notice = cloud.notices[CENTRE][-1]
    assert isinstance(notice, ContractChanged)
    assert notice.granted.granted[0].redundancy == 1


def test_what_was_before_is_asked_for_also_after_a_kill(cloud: Family) -> None:
    cloud.kill_broker()
    cloud.start()
    cloud.words.clear()
    cloud.join()
    assert questions(cloud) == [(2, 1)]


def test_what_was_before_is_asked_for_until_its_owner_has_had_the_time(cloud: Family) -> None:
    asked = cloud.last(AskContract)
    late = RefusedOutcome(code=DeadlinePassed.code, reason="a child is away")
    cloud.say(
        ContractRefused(term=cloud.parent_term, contract=asked.contract, generation=2, refused=late)
    )
    cloud.words.clear()
    cloud.advance(cloud.settings.retry_after_ns)
    assert questions(cloud) == [(2, 1)]
