"""End-points that restart while other clouds are asked for them leave no answer unfinished."""

from __future__ import annotations

import pytest

from gridstat.net.command.endpoint_messages import GrantedOutcome, RefusedOutcome
from gridstat.net.command.router_messages import AttachmentChanged
from gridstat.net.command.segment_messages import AskContract, ContractEnded, EndContract
from tests.unit.broker.segments.family import ENTRIES, FAR, family
from tests.unit.broker.stand_ins import CENTRE, subscribe


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


@pytest.mark.parametrize("is_written", [True, False])
def test_what_was_granted_after_a_kill_is_told_when_it_is_durable_and_not_before(
    *, is_written: bool
) -> None:
    """The request comes again while the answer that it began before is on its way to the disk."""
    cloud = family()
    number = cloud.send(CENTRE, "c1/e2", subscribe(FAR.name))
    cloud.settle()
    cloud.kill_broker()
    cloud.start()
    cloud.join()
    asked = cloud.last(AskContract)
    cloud.reserve(asked.contract, entries=ENTRIES[:1], subscriber=asked.subscriber)
    cloud.commit(asked.contract)
    cloud.is_journal_held = True
    cloud.say(cloud.granted(asked, generation=0))
    cloud.send(CENTRE, "c1/e2", subscribe(FAR.name), request_id=number)
    assert (CENTRE, number) not in cloud.answers
    cloud.is_journal_held, cloud.is_disk_full = False, not is_written
    cloud.write()
    (outcome,) = cloud.answers[CENTRE, number]
    assert isinstance(outcome, GrantedOutcome if is_written else RefusedOutcome)
