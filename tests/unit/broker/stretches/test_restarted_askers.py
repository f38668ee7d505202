"""End-points that restart while other clouds are asked for them leave no answer unfinished."""

from __future__ import annotations

from gridstat.net.command.router_messages import AttachmentChanged
from gridstat.net.command.stretch_messages import AskContract, ContractEnded, EndContract
from tests.unit.broker.stand_ins import CENTRE, subscribe
from tests.unit.broker.stretches.family import FAR, family


def test_an_answer_that_nobody_waits_for_any_more_is_over_with_its_contract() -> None:
    cloud = family()
    cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name))
    contract = cloud.last(AskContract).contract
    assert cloud.broker.registry.tree.begun
    for edge in ("c1/e2", "c1/e3"):
        cloud.hear(edge, AttachmentChanged(endpoint=CENTRE, is_up=False))
    cloud.attach(CENTRE, "c1/e2", incarnation="b")
    assert cloud.last(EndContract).contract == contract
    cloud.say(ContractEnded(term=7, contract=contract))
    assert cloud.broker.registry.tree.asked == {}
    assert cloud.broker.registry.tree.begun == {}
