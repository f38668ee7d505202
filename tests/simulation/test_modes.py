"""Simulated applications and operators ask in modes, defined or not, and with latency bands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gridstat.model.errors import ModeNotDefined
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.net.command.endpoint_messages import (
    ChangeSubscription,
    GrantedOutcome,
    RefusedOutcome,
    Subscribe,
    SubscriptionRequest,
)
from lab.simulation.application import Application
from lab.simulation.campaign import ONE_CLOUD, Simulation
from lab.simulation.modes import MODES, MODES_UNDEFINED, RULE, check_answer, check_written
from lab.simulation.tree.__main__ import TREES
from lab.simulation.tree.flooding import TreeFlooding
from lab.simulation.world import PropertyBroken

if TYPE_CHECKING:
    from gridstat.net.command.operator_messages import OperatorAnswer

SEEDS = range(96)
TREE_SEEDS = range(34, 50)
FLOODED = range(0, 60, 5)


def in_mode(mode: int) -> Subscribe:
    request = SubscriptionRequest(name="c/v", qos=ModalQos({0: QosRequest(), mode: QosRequest()}))
    return Subscribe(subscriptions=(request,))


def test_an_undefined_mode_that_is_granted_or_written_is_a_finding() -> None:
    granted = GrantedOutcome(subscription_id=1, variable=None)
    check_answer(in_mode(1), (granted,))
    with pytest.raises(PropertyBroken, match=RULE):
        check_answer(in_mode(MODES_UNDEFINED[0]), (granted,))
    with pytest.raises(PropertyBroken, match=RULE):
        check_written(1, MODES_UNDEFINED)


def test_a_defined_mode_that_is_refused_as_undefined_is_a_finding() -> None:
    refused = RefusedOutcome(code=ModeNotDefined.code, reason="no")
    check_answer(in_mode(MODES_UNDEFINED[0]), (refused,))
    with pytest.raises(PropertyBroken, match=RULE):
        check_answer(in_mode(1), (refused,))


Answer = tuple[object, tuple[object, ...]]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Answer]:
    """Collect the requests and answers of applications in all seeds that run."""
    found: list[Answer] = []
    right = Application.answered

    def answered(self: Application, token: int, outcomes: tuple[Any, ...]) -> None:
        found.append((self.waiting[token].command, outcomes))
        right(self, token, outcomes)

    monkeypatch.setattr(Application, "answered", answered)
    return found


@pytest.mark.parametrize(
    ("simulation", "seeds"), [(ONE_CLOUD, SEEDS), (TREES, TREE_SEEDS)], ids=["a cloud", "a tree"]
)
def test_applications_ask_in_modes_and_with_bands_and_change_contracts_so(
    simulation: Simulation, seeds: range, answers: list[Answer]
) -> None:
    assert all(simulation.run_seed(seed).is_good for seed in seeds)
    asked: dict[type, list[ModalQos]] = {Subscribe: [], ChangeSubscription: []}
    for command, _ in answers:
        if isinstance(command, Subscribe):
            asked[Subscribe] += [request.qos for request in command.subscriptions]
        elif isinstance(command, ChangeSubscription):
            asked[ChangeSubscription].append(command.qos)
    for some in asked.values():
        modes = {mode for qos in some for mode in qos.modes}
        assert modes == {*MODES, *MODES_UNDEFINED}
        requests = [request for qos in some for request in qos.modes.values()]
        assert any(request.latency_us_worst is not None for request in requests)
    codes = {getattr(outcome, "code", 0) for _, outcomes in answers for outcome in outcomes}
    assert ModeNotDefined.code in codes


def test_operators_flood_in_modes_that_are_defined_and_in_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered: list[tuple[tuple[int, ...], int]] = []
    right = TreeFlooding._answered

    def note(self: TreeFlooding, broker: str, command: Any, answer: OperatorAnswer) -> None:
        code = 0 if answer.refused is None else answer.refused.code
        answered.append((command.modes, code))
        right(self, broker, command, answer)

    monkeypatch.setattr(TreeFlooding, "_answered", note)
    assert all(TREES.run_seed(seed).is_good for seed in FLOODED)
    assert any(1 in modes and not code for modes, code in answered)
    assert any(code == ModeNotDefined.code for _, code in answered)
