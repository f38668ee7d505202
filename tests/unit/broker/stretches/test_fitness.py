"""An owner that grants something else than was asked for."""

from __future__ import annotations

from gridstat.model.errors import NoSuchVariable
from gridstat.net.command.stretch_messages import AskContract, EndContract
from tests.unit.broker.conversation import refusal
from tests.unit.broker.stand_ins import CENTRE, subscribe
from tests.unit.broker.stretches.family import FAR, family


def test_another_variable_than_was_asked_for_is_refused_and_given_back() -> None:
    cloud = family()
    cloud.ask(CENTRE, "c1/e2", subscribe("c2/other/x"))
    asked = cloud.last(AskContract)
    assert asked.name != FAR.name
    cloud.grant(asked)
    assert refusal(cloud.answers[CENTRE, cloud.request_id]).code == NoSuchVariable.code
    assert cloud.last(EndContract).contract == asked.contract
