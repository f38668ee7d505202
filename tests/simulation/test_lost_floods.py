"""Floods of operators whose broker loses its journal: what is expected of them afterwards."""

from __future__ import annotations

from typing import Any, cast

import pytest

from gridstat.broker.floods.flooding_operations import FloodingHeld
from gridstat.model.flooding import FloodTerm
from gridstat.model.identifiers import VariableId
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, StatusVariable
from gridstat.net.command.machine import Received
from gridstat.net.command.operator_messages import OperatorAnswer, SetFlooding
from lab.simulation.tree.__main__ import TREES
from lab.simulation.tree.flooding import ASKED, DONE, TreeFlooding
from lab.simulation.tree.grid import TreeGrid
from lab.simulation.tree.run import Run
from lab.simulation.tree.swarm import draw
from lab.simulation.world import PropertyBroken

FLOODED_SEED = 100_175
"""Seed whose operators flood, and in which a broker with a flood loses its journal."""
NAME = "c1/z0/p0/v1"
EVERY = 2
VARIABLE = StatusVariable(VariableId(7), NAME, BuiltinType.FLOAT64, Period(1, 10))


class Operated:
    """Operators of a tree without processes, of whom one is asked, and answered at will."""

    def __init__(self) -> None:
        self.grid = TreeGrid(draw(FLOODED_SEED))
        self.flooding = TreeFlooding(self.grid)
        self.flooding.plan(0)
        self.broker = next(iter(self.grid.brokers))
        self.node = self.flooding._operators[self.broker]

    def ask(self) -> None:
        command = SetFlooding(request_id=self.node.next_id(), name=NAME, every=EVERY)
        self.flooding._ask(self.broker, command)

    def connect(self) -> None:
        """Give the operator a session, as a simulated network does."""
        self.node.sessions[f"broker/{self.broker}"] = cast("Any", object())

    def answer(self) -> None:
        facts = {"name": NAME, "variable_id": VARIABLE.variable_id}
        answer = OperatorAnswer(request_id=self.node._waiting[0][0].request_id, facts=facts)
        self.node.handle(Received(f"broker/{self.broker}", answer), 0)

    def check(self, own: dict[int, int]) -> None:
        """Check what the broker has, which is this flood of the variable."""
        self.flooding._check_one(self.broker, NAME, held_with(own), VARIABLE.variable_id)


def held_with(own: dict[int, int]) -> FloodingHeld | None:
    terms = {mode: FloodTerm(level=0, every=every) for mode, every in own.items()}
    return FloodingHeld(variable=VARIABLE, number=1, own=terms) if terms else None


@pytest.fixture
def operated(monkeypatch: pytest.MonkeyPatch) -> Operated:
    monkeypatch.setattr("lab.simulation.operator_node.OperatorNode._send", lambda *_: None)
    found = Operated()
    found.connect()
    return found


def test_a_flood_that_was_answered_as_done_is_expected(operated: Operated) -> None:
    operated.ask()
    operated.answer()
    operated.check({0: EVERY})
    with pytest.raises(PropertyBroken, match=DONE):
        operated.check({})


def test_a_broker_that_loses_its_journal_has_no_flood_of_its_operator(operated: Operated) -> None:
    operated.ask()
    operated.answer()
    operated.grid.lose_journal(operated.broker)
    operated.check({})
    with pytest.raises(PropertyBroken, match=ASKED):
        operated.check({0: EVERY})


def test_the_loss_of_another_journal_ends_no_flood(operated: Operated) -> None:
    operated.ask()
    operated.answer()
    operated.grid.lose_journal(list(operated.grid.brokers)[-1])
    with pytest.raises(PropertyBroken, match=DONE):
        operated.check({})


def test_an_answer_that_arrives_after_the_loss_promises_nothing(operated: Operated) -> None:
    operated.ask()
    operated.grid.lose_journal(operated.broker)
    operated.answer()
    operated.check({})
    with pytest.raises(PropertyBroken, match=ASKED):
        operated.check({0: EVERY})


def test_what_the_next_process_answers_is_expected_again(operated: Operated) -> None:
    operated.ask()
    operated.grid.lose_journal(operated.broker)
    operated.connect()
    operated.answer()
    operated.check({0: EVERY})
    with pytest.raises(PropertyBroken, match=DONE):
        operated.check({})


def test_a_tree_whose_broker_loses_a_flood_with_its_journal_holds() -> None:
    run = Run(draw(FLOODED_SEED))
    assert run.verdict().is_good
    assert run.flooding.done
    assert any(node.journal.lost for node in run.grid.brokers.values())
    assert TREES.run_seed(100_295).is_good
