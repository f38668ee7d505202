"""Two paths over channels beside each other: told apart from the grant to the ledger's row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gridstat.broker.operators.survey import ledger_facts
from gridstat.console.cli.explain import explained
from gridstat.console.daemons.broker_metrics import BrokerCollector, BrokerFigures
from gridstat.console.daemons.ledger_rows import LedgerRows
from gridstat.console.daemons.metrics_server import exposition
from gridstat.model.cloud import EventChannel, Router, RouterRole
from gridstat.model.identifiers import ChannelId
from gridstat.model.qos import QosRequest
from gridstat.net.command.endpoint_messages import LedgerEntry, PathEntry, ReportLedger
from gridstat.net.command.session_settings import SessionCounters
from tests.unit.broker.conversation import Conversation
from tests.unit.broker.operators.test_survey import explain, survey
from tests.unit.broker.stand_ins import CENTRE, PMU, VOLTAGE

if TYPE_CHECKING:
    from gridstat.net.command.endpoint_messages import GrantedOutcome

ENDS = ("c1/e0", "c1/e1")
PLAIN, NORTH = "c1/e0>c1/e1", "c1/e0>#north>c1/e1"


def conversation() -> Conversation:
    """Two edges with two cables between them; one cable has a name."""
    routers = [Router(name, RouterRole.EDGE) for name in ENDS]
    channels = [
        EventChannel(ChannelId(number), *ends, latency_us=500, name=name)
        for number, (ends, name) in enumerate(
            [(ends, name) for name in ("", "north") for ends in (ENDS, ENDS[::-1])], start=1
        )
    ]
    found = Conversation((routers, channels)).start()
    found.attach(PMU, ENDS[0], data_port=0)
    found.attach(CENTRE, ENDS[1])
    return found


def contract(cloud: Conversation) -> GrantedOutcome:
    cloud.publish(VOLTAGE, ENDS[0])
    return cloud.subscribe(CENTRE, ENDS[1], VOLTAGE, QosRequest(redundancy=2))


def report(cloud: Conversation, granted: GrantedOutcome) -> LedgerEntry:
    """The subscriber reports that the path over the named cable has lost everything."""
    entries = []
    for path in granted.paths:
        lost = 1_000 if path.channel_names else 0
        entries.append(
            PathEntry(
                name=path.name,
                routers=path.routers,
                channel_names=path.channel_names,
                expected=1_000,
                delivered=1_000 - lost,
                first=1_000 - lost,
                lost=lost,
            )
        )
    entry = LedgerEntry(
        granted.subscription_id, expected=1_000, delivered=1_000, paths=tuple(entries)
    )
    cloud.ask(CENTRE, ENDS[1], ReportLedger(entries=(entry,)))
    ((_, _, _, kept),) = cloud.broker.ledgers()
    return kept


@pytest.fixture
def cloud() -> Conversation:
    return conversation()


def test_a_grant_names_the_channels_that_have_a_name(cloud: Conversation) -> None:
    granted = contract(cloud)
    assert [path.routers for path in granted.paths] == [ENDS, ENDS]
    assert sorted(path.channel_names for path in granted.paths) == [(), ("north",)]


def test_names_survive_the_end_of_a_broker(cloud: Conversation) -> None:
    granted = contract(cloud)
    cloud.kill_broker()
    cloud.start()
    (record,) = cloud.broker.registry.subscriptions.values()
    assert [path.channel_names for path in record.record.paths] == [
        path.channel_names for path in granted.paths
    ]


def test_a_broker_keeps_the_ledgers_of_both_paths(cloud: Conversation) -> None:
    kept = report(cloud, contract(cloud))
    assert sorted((path.channel_names, path.lost) for path in kept.paths) == [
        ((), 0),
        (("north",), 1_000),
    ]


def test_the_log_has_a_row_for_each_of_both_paths(cloud: Conversation) -> None:
    kept = report(cloud, contract(cloud))
    account: list[dict[str, Any]] = [
        {
            "subscription": 1,
            "endpoint": CENTRE,
            "variable": VOLTAGE,
            "ledger": ledger_facts(kept),
        }
    ]
    rows = LedgerRows(60.0).rows(account, 5)
    lost = {row["path"]: row["lost"] for row in rows if row["path"] is not None}
    assert lost == {PLAIN: 0, NORTH: 1_000}


def test_an_account_of_a_broker_that_knows_no_names_has_the_old_labels(cloud: Conversation) -> None:
    facts = ledger_facts(report(cloud, contract(cloud)))
    facts["paths"] = [facts["paths"][0] | {"lost": 0}]
    del facts["paths"][0]["channel_names"]
    account = [{"subscription": 1, "endpoint": CENTRE, "variable": VOLTAGE, "ledger": facts}]
    assert [row["path"] for row in LedgerRows(60.0).rows(account, 5)] == [None, PLAIN]


def test_each_of_both_paths_is_a_series_of_its_own(cloud: Conversation) -> None:
    kept = report(cloud, contract(cloud))
    facts = survey(cloud)
    figures = BrokerFigures(facts, [(1, CENTRE, VOLTAGE, kept)], {}, SessionCounters().as_facts())
    text = exposition(BrokerCollector(figures)).decode()
    lost = {
        each.labels["path"]: each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
        if each.name == "gridstat_broker_path_ledger_events_total"
        and each.labels["outcome"] == "lost"
    }
    assert lost == {PLAIN: 0, NORTH: 1_000}


def test_an_explanation_says_what_came_by_each_of_both_paths(cloud: Conversation) -> None:
    report(cloud, contract(cloud))
    told = [line.strip() for line in explained(explain(cloud, VOLTAGE))]
    at = next(number for number, line in enumerate(told) if "c1/e0 →#north c1/e1," in line)
    assert told[at + 1].startswith("came by it: 1,000 expected, 0 delivered")
    at = next(number for number, line in enumerate(told) if "c1/e0 → c1/e1, predicted" in line)
    assert told[at + 1].startswith("came by it: 1,000 expected, 1,000 delivered")


def test_two_reports_of_one_path_are_dropped(cloud: Conversation) -> None:
    granted = contract(cloud)
    same = msgspec.structs.replace(granted, paths=granted.paths[:1] * 2)
    assert report(cloud, same).paths == ()
