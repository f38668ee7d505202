"""What a cloud tells of contracts across clouds: its own whole, of others its segments."""

from __future__ import annotations

from typing import Any

import pytest

from gridstat.net.command.endpoint_messages import LedgerEntry, ReportLedger
from gridstat.net.command.segment_messages import AskContract
from tests.unit.broker.operators.test_survey import account, explain, survey
from tests.unit.broker.segments.family import ENTRIES, EXITS, FAR, IN, OUT, Family, family
from tests.unit.broker.stand_ins import CENTRE, subscribe


@pytest.fixture
def cloud() -> Family:
    return family()


def own(cloud: Family) -> int:
    """A contract of an end-point of ours with a variable of another cloud; its number."""
    cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name))
    asked = cloud.last(AskContract)
    cloud.grant(asked)
    return int(asked.contract.partition("#")[2])


def abstract_link(cloud: Family) -> None:
    """Somebody else's contract, which only goes through."""
    cloud.reserve("c3#9", entries=ENTRIES[:1], exits=EXITS[1:])
    cloud.commit("c3#9")


def test_a_survey_lists_a_contract_once_and_its_segment_apart(cloud: Family) -> None:
    number = own(cloud)
    abstract_link(cloud)
    facts = survey(cloud)
    (contract,) = facts["subscriptions"]
    assert contract["subscription_id"] == number
    assert (contract["contract"], contract["owner"]) == (f"c1#{number}", "root")
    assert (contract["name"], contract["state"]) == (FAR.name, "granted")
    assert contract["paths"][0][:3] == ["c2/e", "c2/b", "c1/i0"]
    held = {one["contract"]: one for one in facts["segments"]}
    assert held.keys() == {f"c1#{number}", "c3#9"}
    assert held["c3#9"]["entries"] == [["c1/i0", IN]]
    assert held["c3#9"]["stage"] == "committed"
    assert (facts["totals"]["subscriptions"], facts["totals"]["segments"]) == (1, 2)


def test_a_survey_says_where_the_cloud_stands(cloud: Family) -> None:
    facts = survey(cloud)
    assert (facts["parent"], facts["depth"]) == ("root", 1)


def test_a_question_that_is_not_answered_yet_is_told_as_such(cloud: Family) -> None:
    cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name))
    (asked,) = survey(cloud)["subscriptions"]
    assert (asked["state"], asked["owner"], asked["paths"]) == ("requested from the parent", "", [])
    assert account(cloud)["contracts"] == []


def test_an_explanation_has_every_piece_and_its_owner(cloud: Family) -> None:
    own(cloud)
    facts = explain(cloud, FAR.name)
    contract, segment = facts["subscriptions"]
    pieces: list[dict[str, Any]] = contract["paths"][0]["pieces"]
    assert [piece["owner"] for piece in pieces] == ["c2", "root", "c1"]
    assert pieces[1]["channel_ids"] == [IN]
    assert segment["segment"]["contract"] == contract["contract"]
    assert (facts["publisher"], facts["cloud"]) == ("", "c1")
    assert facts["variable"]["variable_id"] == FAR.variable_id


def test_a_cloud_that_is_only_crossed_explains_its_segment(cloud: Family) -> None:
    abstract_link(cloud)
    (segment,) = explain(cloud, FAR.name)["subscriptions"]
    assert segment["segment"]["exits"] == [["c1/i1", EXITS[1].channel_id]]
    assert OUT not in segment["segment"]["exits"][0]


def test_the_account_has_contracts_across_clouds_with_their_ledgers_and_no_segment(
    cloud: Family,
) -> None:
    number = own(cloud)
    abstract_link(cloud)
    entry = LedgerEntry(subscription_id=number, expected=4, delivered=4)
    cloud.ask(CENTRE, "c1/e2", ReportLedger(entries=(entry,)))
    (told,) = account(cloud)["contracts"]
    assert (told["subscription"], told["variable"], told["endpoint"]) == (number, FAR.name, CENTRE)
    assert told["ledger"]["delivered"] == 4
    assert [ledger[:3] for ledger in cloud.broker.ledgers()] == [(number, CENTRE, FAR.name)]
