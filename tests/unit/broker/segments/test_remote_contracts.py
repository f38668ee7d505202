"""End-points of this cloud and variables of others: asked, answered, changed and ended."""

from __future__ import annotations

import pytest
from msgspec import structs

from gridstat.model.errors import (
    NoSuchSubscription,
    NoSuchVariable,
    TypeMismatch,
)
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.model.status import BuiltinType
from gridstat.net.command.endpoint_messages import (
    ChangeSubscription,
    ContractChanged,
    Detach,
    DoneOutcome,
    GrantedOutcome,
    LedgerEntry,
    RefusedOutcome,
    ReportLedger,
    Unpublished,
    Unsubscribe,
)
from gridstat.net.command.messages import ChannelStateChanged
from gridstat.net.command.segment_messages import (
    AskContract,
    ContractEnded,
    ContractRefused,
    EndContract,
)
from tests.unit.broker.conversation import pair, refusal
from tests.unit.broker.segments.family import ENTRIES, FAR, IN, ROOT, Family, family
from tests.unit.broker.stand_ins import CENTRE, VOLTAGE, subscribe

NO = RefusedOutcome(code=1039, reason="full", bottleneck="channel c2/a→c2/b")


@pytest.fixture
def cloud() -> Family:
    return family()


def answer(cloud: Family, request_id: int = 0) -> GrantedOutcome:
    found = cloud.answers[CENTRE, request_id or cloud.request_id]
    return cloud.only(GrantedOutcome, found)


def have(cloud: Family, *, paths: int = 1) -> int:
    """A contract across clouds, granted; its number."""
    cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name, QosRequest(redundancy=paths)))
    cloud.grant(cloud.last(AskContract), paths=paths)
    return answer(cloud).subscription_id


def test_a_variable_of_another_cloud_is_asked_of_the_parent(cloud: Family) -> None:
    assert cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name)) == ()
    asked = cloud.last(AskContract)
    assert (asked.name, asked.subscriber, asked.generation) == (FAR.name, CENTRE, 0)
    assert {near.router for near in asked.ends} == {"c1/i0", "c1/i1"}


def test_a_granted_contract_is_told_whole_under_its_own_number(cloud: Family) -> None:
    cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name))
    asked = cloud.last(AskContract)
    cloud.grant(asked)

    outcome = answer(cloud)
    assert asked.contract == f"c1#{outcome.subscription_id}"
    assert outcome.variable == FAR
    (path,) = outcome.paths
    assert path.routers[:3] == ("c2/e", "c2/b", "c1/i0")
    assert path.routers[-1] in {"c1/e2", "c1/e3"}
    assert path.channel_ids[:2] == (77, IN)


def test_without_a_parent_a_variable_of_another_cloud_is_unknown() -> None:
    lone = pair()
    assert refusal(lone.ask(CENTRE, "c1/e2", subscribe(FAR.name))).code == NoSuchVariable.code


def test_what_the_owner_refuses_is_answered_with_its_bottleneck(cloud: Family) -> None:
    cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name))
    asked = cloud.last(AskContract)
    cloud.say(ContractRefused(term=7, contract=asked.contract, generation=0, refused=NO))
    assert refusal(cloud.answers[CENTRE, cloud.request_id]) == NO
    assert cloud.broker.registry.tree.asked == {}


def test_outcomes_of_this_cloud_and_of_others_are_one_answer_in_the_order_asked(
    cloud: Family,
) -> None:
    cloud.publish(VOLTAGE, "c1/e0")
    names = (FAR.name, VOLTAGE, "c2/other/x", "c1/nobody/x")
    assert cloud.ask(CENTRE, "c1/e2", subscribe(*names)) == ()
    first, second = cloud.heard(AskContract)[-2:]
    cloud.say(ContractRefused(term=7, contract=second.contract, generation=0, refused=NO))
    assert (CENTRE, cloud.request_id) not in cloud.answers
    cloud.grant(first)

    far, voltage, refused, unknown = cloud.answers[CENTRE, cloud.request_id]
    assert isinstance(far, GrantedOutcome)
    assert isinstance(voltage, GrantedOutcome)
    assert refused == NO
    assert isinstance(unknown, RefusedOutcome)


def test_a_repeated_request_is_answered_alike_and_asked_once(cloud: Family) -> None:
    number = cloud.send(CENTRE, "c1/e2", subscribe(FAR.name))
    cloud.ask(CENTRE, "c1/e3", subscribe(FAR.name), request_id=number)
    assert len(cloud.heard(AskContract)) == 1
    cloud.grant(cloud.last(AskContract))
    first = cloud.answers.pop((CENTRE, number))
    assert cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name), request_id=number) == first
    assert len(cloud.heard(AskContract)) == 1


def test_a_question_is_asked_again_after_each_join_until_it_is_answered(cloud: Family) -> None:
    cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name))
    cloud.lose_parent()
    cloud.join()
    assert len(cloud.heard(AskContract)) == 2
    cloud.grant(cloud.last(AskContract))
    assert answer(cloud).variable == FAR
    cloud.lose_parent()
    cloud.join()
    assert len(cloud.heard(AskContract)) == 2


def test_a_request_goes_on_after_a_kill_and_is_answered_when_it_is_repeated(cloud: Family) -> None:
    number = cloud.send(CENTRE, "c1/e2", subscribe(FAR.name, "c2/other/x"))
    cloud.settle()
    cloud.kill_broker()
    cloud.start()
    cloud.join()
    assert cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name, "c2/other/x"), request_id=number) == ()
    first, second = cloud.heard(AskContract)[-2:]
    cloud.grant(first)
    cloud.say(ContractRefused(term=7, contract=second.contract, generation=0, refused=NO))

    far, other = cloud.answers[CENTRE, number]
    assert isinstance(far, GrantedOutcome)
    assert other == NO
    assert len(cloud.broker.registry.tree.asked) == 1


def test_a_variable_of_another_type_is_refused_and_its_contract_ended(cloud: Family) -> None:
    wanted = BuiltinType.INT64.value
    cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name, value_type=wanted))
    cloud.grant(cloud.last(AskContract))
    assert refusal(cloud.answers[CENTRE, cloud.request_id]).code == TypeMismatch.code
    assert cloud.last(EndContract).contract == cloud.last(AskContract).contract


@pytest.mark.feature("S0-56")
def test_an_ended_contract_is_torn_down_here_and_told_until_it_is_confirmed(cloud: Family) -> None:
    number = have(cloud)
    done = cloud.ask(CENTRE, "c1/e2", Unsubscribe(subscription_ids=(number,)))
    assert done == (DoneOutcome(),)
    assert cloud.broker.registry.subscriptions == {}
    assert cloud.path_orders("c1/i0") == []
    cloud.lose_parent()
    cloud.join()
    assert [word.contract for word in cloud.heard(EndContract)] == [f"c1#{number}"] * 2

    cloud.say(ContractEnded(term=7, contract=f"c1#{number}"))
    assert cloud.broker.registry.tree.asked == {}
    cloud.lose_parent()
    cloud.join()
    assert len(cloud.heard(EndContract)) == 2


def test_a_subscriber_that_leaves_ends_its_contracts_across_clouds(cloud: Family) -> None:
    number = have(cloud)
    cloud.ask(CENTRE, "c1/e2", Detach())
    assert cloud.last(EndContract).contract == f"c1#{number}"
    assert CENTRE not in cloud.broker.registry.endpoints
    # Even a snapshot, which knows the end-point no more, remembers what it owes.
    cloud.journal[:] = cloud.broker.snapshot()
    cloud.kill_broker()
    cloud.start()
    cloud.join()
    assert cloud.last(EndContract).contract == f"c1#{number}"
    assert len(cloud.heard(EndContract)) == 2


def test_whoever_ends_all_while_something_is_asked_is_answered_that_it_is_ended(
    cloud: Family,
) -> None:
    number = cloud.send(CENTRE, "c1/e2", subscribe(FAR.name))
    cloud.settle()
    assert cloud.ask(CENTRE, "c1/e2", Unsubscribe()) == (DoneOutcome(),)
    assert refusal(cloud.answers[CENTRE, number]).code == NoSuchSubscription.code
    assert len(cloud.heard(EndContract)) == 1


def test_a_grant_that_nobody_waits_for_is_ended(cloud: Family) -> None:
    cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name))
    asked = cloud.last(AskContract)
    cloud.grant(asked)
    word = cloud.granted(asked, generation=0)
    cloud.ask(CENTRE, "c1/e2", Unsubscribe())
    cloud.say(ContractEnded(term=7, contract=asked.contract))
    cloud.say(word)
    assert [one.contract for one in cloud.heard(EndContract)] == [asked.contract] * 2


def test_a_variable_that_is_gone_ends_its_contract_and_the_subscriber_is_told(
    cloud: Family,
) -> None:
    number = have(cloud)
    gone = RefusedOutcome(code=NoSuchVariable.code, reason="gone")
    cloud.say(ContractEnded(term=7, contract=f"c1#{number}", refused=gone))
    cloud.settle()
    assert cloud.notices[CENTRE][-1] == Unpublished(
        subscription_id=number, name=FAR.name, code=NoSuchVariable.code, reason="gone"
    )
    assert cloud.broker.registry.subscriptions == {}
    assert cloud.broker.registry.tree.asked == {}


def test_a_change_is_a_new_generation_beside_the_old(cloud: Family) -> None:
    number = have(cloud)
    qos = ModalQos({0: QosRequest(redundancy=2)})
    assert cloud.ask(CENTRE, "c1/e2", ChangeSubscription(subscription_id=number, qos=qos)) == ()
    asked = cloud.last(AskContract)
    assert (asked.generation, asked.qos) == (1, qos)
    cloud.grant(asked, paths=2)

    outcome = answer(cloud)
    assert outcome.subscription_id == number
    assert len(outcome.paths) == 2
    assert len(cloud.broker.registry.tree.segments[asked.contract]) == 2
    cloud.release(asked.contract, 0)
    assert list(cloud.broker.registry.tree.segments[asked.contract]) == [1]


def test_a_refused_change_leaves_the_contract_as_it_was(cloud: Family) -> None:
    number = have(cloud)
    qos = ModalQos({0: QosRequest(redundancy=2)})
    cloud.ask(CENTRE, "c1/e2", ChangeSubscription(subscription_id=number, qos=qos))
    asked = cloud.last(AskContract)
    cloud.say(ContractRefused(term=7, contract=asked.contract, generation=1, refused=NO))
    assert refusal(cloud.answers[CENTRE, cloud.request_id]) == NO
    found = cloud.broker.registry.tree.asked[number]
    assert (found.change, found.record.qos) == (None, ModalQos({0: QosRequest()}))


def test_a_new_plan_of_the_owner_is_told_as_a_changed_contract(cloud: Family) -> None:
    number = have(cloud)
    asked = cloud.last(AskContract)
    cloud.grant(asked, generation=1)
    notice = cloud.notices[CENTRE][-1]
    assert isinstance(notice, ContractChanged)
    assert notice.granted.subscription_id == number


def test_answers_and_notices_of_a_remote_contract_are_numbered_as_they_were_decided(
    cloud: Family,
) -> None:
    """The journal is slow, and a new plan and the answer to a change wait for it together."""
    number = have(cloud)
    first = cloud.last(AskContract)
    orders = [answer(cloud).order]
    qos = ModalQos({0: QosRequest(redundancy=2)})
    request = cloud.send(CENTRE, "c1/e2", ChangeSubscription(subscription_id=number, qos=qos))
    cloud.settle()
    asked = cloud.last(AskContract)
    words = []
    for generation, entries in ((1, ENTRIES[:1]), (2, ENTRIES)):
        cloud.reserve(asked.contract, generation=generation, entries=entries, subscriber=CENTRE)
        cloud.commit(asked.contract, generation)
        words.append(cloud.granted(asked if generation > 1 else first, generation=generation))
    cloud.is_journal_held = True
    for word in words:
        cloud.say(word)
    cloud.is_journal_held = False
    cloud.write()
    cloud.settle()
    notice = cloud.notices[CENTRE][-1]
    assert isinstance(notice, ContractChanged)
    assert len(notice.granted.paths) == 1
    orders += [notice.order, answer(cloud, request).order]
    assert orders == sorted(set(orders)) > [(0, 0)]


def test_a_move_within_this_cloud_is_told_in_the_whole_path(cloud: Family) -> None:
    number = have(cloud)
    (path,) = answer(cloud).paths
    cloud.hear(path.routers[-1], ChannelStateChanged(channel_id=path.channel_ids[-1], is_up=False))
    cloud.settle()
    notice = cloud.notices[CENTRE][-1]
    assert isinstance(notice, ContractChanged)
    assert notice.granted.subscription_id == number
    (now,) = notice.granted.paths
    assert now.routers[:3] == path.routers[:3]
    assert now.channel_ids[-1] != path.channel_ids[-1]


def test_a_ledger_is_kept_under_the_contracts_own_number(cloud: Family) -> None:
    number = have(cloud)
    entry = LedgerEntry(subscription_id=number, expected=5, delivered=5)
    cloud.ask(CENTRE, "c1/e2", ReportLedger(entries=(entry,)))
    assert cloud.broker.registry.tree.asked[number].ledger == entry


def test_a_segment_is_not_unsubscribed_by_the_number_that_it_has_here(cloud: Family) -> None:
    number = have(cloud)
    (own,) = cloud.broker.registry.tree.segments[f"c1#{number}"].values()
    outcomes = cloud.ask(CENTRE, "c1/e2", Unsubscribe(subscription_ids=(own,)))
    assert refusal(outcomes).code == NoSuchSubscription.code


def test_only_the_parent_speaks_as_a_broker(cloud: Family) -> None:
    assert cloud.closed == []
    cloud.say(
        AskContract(term=7, contract="c2#1", generation=0, name="x", subscriber="y", qos=ModalQos())
    )
    assert [close.peer for close in cloud.closed] == [ROOT]


def test_a_new_plan_of_the_old_quality_is_no_answer_to_a_change(cloud: Family) -> None:
    number = have(cloud)
    first = cloud.last(AskContract)
    qos = ModalQos({0: QosRequest(redundancy=2)})
    request = cloud.send(CENTRE, "c1/e2", ChangeSubscription(subscription_id=number, qos=qos))
    cloud.settle()
    cloud.grant(first, generation=1)
    assert (CENTRE, request) not in cloud.answers
    assert isinstance(cloud.notices[CENTRE][-1], ContractChanged)
    cloud.journal[:] = cloud.broker.snapshot()
    cloud.kill_broker()
    cloud.start()
    cloud.join()
    command = ChangeSubscription(subscription_id=number, qos=qos)
    cloud.ask(CENTRE, "c1/e2", command, request_id=request)
    cloud.grant(cloud.last(AskContract), paths=2, generation=2)
    assert len(answer(cloud, request).paths) == 2


def test_a_subscriber_that_moves_to_another_edge_takes_its_segment_along(cloud: Family) -> None:
    have(cloud)
    (path,) = answer(cloud).paths
    edge = path.routers[-1]
    (other,) = {"c1/e2", "c1/e3"} - {edge}
    cloud.lose(CENTRE, edge)
    cloud.advance(cloud.settings.settle_after_ns)
    cloud.settle()
    notice = cloud.notices[CENTRE][-1]
    assert isinstance(notice, ContractChanged)
    assert notice.granted.paths[0].routers[-1] == other


def told(cloud: Family) -> GrantedOutcome:
    notice = cloud.notices[CENTRE][-1]
    assert isinstance(notice, ContractChanged)
    return notice.granted


def test_paths_that_the_owner_says_are_down_are_told_to_the_subscriber(cloud: Family) -> None:
    number = have(cloud)
    granted = cloud.broker.registry.tree.asked[number].granted
    assert granted is not None
    words = ("path 1 is down: channel c2/b0→c1/b0",)
    cloud.say(structs.replace(granted, term=7, paths_down=(0, 9), degraded=words))
    cloud.settle()
    assert (told(cloud).paths_down, told(cloud).degraded) == (("path 1",), words)
    before = len(cloud.notices[CENTRE])
    cloud.say(structs.replace(granted, term=7, paths_down=(0, 9), degraded=words))
    cloud.settle()
    assert len(cloud.notices[CENTRE]) == before  # Nothing is new in it.
    cloud.say(structs.replace(granted, term=7))
    cloud.settle()
    assert (told(cloud).paths_down, told(cloud).degraded) == ((), ())


def test_a_part_of_our_own_that_nothing_leads_round_is_told_as_a_path_that_is_down(
    cloud: Family,
) -> None:
    have(cloud)
    (path,) = answer(cloud).paths
    last = [each for each in cloud.channels_given if each.to_router in {"c1/e2", "c1/e3"}]
    assert path.channel_ids[-1] in {each.channel_id for each in last}
    for is_up, expected in ((False, ("path 1",)), (True, ())):
        for each in last:
            state = ChannelStateChanged(channel_id=each.channel_id, is_up=is_up)
            cloud.hear(each.to_router, state)
        cloud.settle()
        assert told(cloud).paths_down == expected
