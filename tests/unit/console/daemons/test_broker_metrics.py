"""Metrics of a broker: equal to its survey, in the format that Prometheus' checker accepts."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gridstat.console.daemons.broker_metrics import BrokerCollector, BrokerFigures
from gridstat.console.daemons.metrics_server import exposition
from gridstat.net.command.endpoint_messages import (
    LEDGER_COUNTS,
    PATH_COUNTS,
    LedgerEntry,
    PathEntry,
)
from gridstat.net.command.session_settings import SessionCounters

SURVEY: dict[str, Any] = {
    "term": 7,
    "totals": {"publications": 12, "subscriptions": 3, "end_points": 2},
    "routers": [
        {
            "name": "c1/e0",
            "is_up": True,
            "in_step": False,
            "refusals": 5,
            "refused_rows": 2,
            "events_per_s": 640.5,
        }
    ],
    "channels": [
        {
            "label": "c1/e0→c1/i0",
            "is_up": False,
            "is_back_pressured": True,
            "bytes_per_s": 21_760,
            "loss_ratio": 0.05,
        }
    ],
    "subscriptions": [],
    "keys": {
        "sealed_channels": 8,
        "plain_channels": ["c1/a→c1/b"],
        "plain_end_points": {"c1/e0": 2, "c1/e1": 1},
        "seeds_given": 40,
        "overdue": ["c1/e0→c1/i0", "c1/i0→c1/e0"],
        "closed": [],
    },
    "access": {"mode": "observe", "rule_count": 3, "refused": 4, "observed": 5},
}
NAME = "c1/hill/pmu-1/frequency"
UPPER, LOWER = (("c1/e0", f"c1/i{number}", "c1/e1") for number in range(2))
PATHS = (
    PathEntry("path 1", UPPER, expected=10, delivered=9, lost=1, first=9, late=2),
    PathEntry("path 2", LOWER, expected=10, delivered=4, lost=6, first=0),
    PathEntry("path 2", ("c1/e0", "c1/i9", "c1/e1"), is_open=False, is_counted=False),
)
LEDGERS = [
    (4, "c1/desk", NAME, LedgerEntry(4, expected=10, delivered=9, lost=1, dropped=3, paths=PATHS)),
    (9, "c1/desk", NAME, LedgerEntry(9, expected=5, delivered=5)),
]


@pytest.fixture
def text() -> str:
    sessions = SessionCounters(sessions=4)
    sessions.refused["certificate_expired"] += 2
    journal = {"commits": 5, "operations": 9, "failures": 1, "fsync_ms_p50": 2.5}
    figures = BrokerFigures(SURVEY, LEDGERS, journal, sessions.as_facts())
    return exposition(BrokerCollector(figures)).decode()


def sample(text: str, name: str, **labels: str) -> float:
    (found,) = (
        each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
        if each.name == name and each.labels == labels
    )
    return float(found)


def test_keys_of_channels_are_exported(text: str) -> None:
    assert sample(text, "gridstat_broker_sealed_channels") == 8
    assert sample(text, "gridstat_broker_plain_channels") == 1 + 2 * 3
    assert sample(text, "gridstat_broker_overdue_seeds") == 2
    assert sample(text, "gridstat_broker_unsealable_channels") == 0
    assert sample(text, "gridstat_broker_given_seeds_total") == 40


def test_what_the_survey_tells_is_exported(text: str) -> None:
    assert sample(text, "gridstat_broker_term") == 7
    assert sample(text, "gridstat_broker_subscriptions") == 3
    assert sample(text, "gridstat_broker_router_in_step", router="c1/e0") == 0
    channel = "c1/e0→c1/i0"
    assert sample(text, "gridstat_broker_channel_up", channel=channel) == 0
    assert sample(text, "gridstat_broker_channel_back_pressure", channel=channel) == 1
    assert sample(text, "gridstat_broker_channel_loss_ratio", channel=channel) == 0.05
    assert sample(text, "gridstat_broker_journal_commit_median_seconds") == 0.0025
    reason = "certificate_expired"
    assert sample(text, "gridstat_broker_refused_sessions_total", reason=reason) == 2


def test_every_outcome_of_a_ledger_is_exported(text: str) -> None:
    labels = {"subscription": "4", "subscriber": "c1/desk", "variable": NAME}
    told = {
        outcome: sample(text, "gridstat_broker_ledger_events_total", outcome=outcome, **labels)
        for outcome in LEDGER_COUNTS
    }
    assert (told["expected"], told["delivered"], told["lost"], told["late"]) == (10, 9, 1, 0)
    assert told["dropped"] == 3


def test_every_path_of_a_contract_with_several_is_exported(text: str) -> None:
    name = "gridstat_broker_path_ledger_events_total"
    labels = {"subscription": "4", "subscriber": "c1/desk", "variable": NAME}
    lost = {
        way: sample(text, name, path=">".join(way), outcome="lost", **labels)
        for way in (UPPER, LOWER)
    }
    assert lost == {UPPER: 1, LOWER: 6}
    assert sample(text, name, path=">".join(UPPER), outcome="late", **labels) == 2
    assert text.count(f"{name}{{") == 2 * len(PATH_COUNTS) - 1, "nothing that nobody has counted"


def test_two_contracts_of_one_end_point_on_one_variable_are_two_series(text: str) -> None:
    series = [
        (each.name, *sorted(each.labels.items()))
        for family in text_string_to_metric_families(text)
        for each in family.samples
    ]
    assert len(series) == len(set(series))
    labels = {"subscriber": "c1/desk", "variable": NAME, "outcome": "delivered"}
    name = "gridstat_broker_ledger_events_total"
    assert sample(text, name, subscription="9", **labels) == 5


def test_every_family_has_a_help_text_and_counters_end_in_total(text: str) -> None:
    families = list(text_string_to_metric_families(text))
    assert all(family.documentation for family in families)
    for family in families:
        for each in family.samples:
            assert each.name.endswith("_total") == (family.type == "counter")


def test_paths_that_an_end_point_gives_the_same_name_are_one_series() -> None:
    same = PathEntry("path 2", ("c1/e0>c1/i0", "c1/e1"), expected=7, delivered=7, first=7)
    entry = LedgerEntry(4, expected=10, delivered=10, paths=(PATHS[0], same))
    ledgers = [(4, "c1/desk", NAME, entry)]
    figures = BrokerFigures(SURVEY, ledgers, {}, SessionCounters().as_facts())
    text = exposition(BrokerCollector(figures)).decode()
    labels = {"subscription": "4", "subscriber": "c1/desk", "variable": NAME}
    name = "gridstat_broker_path_ledger_events_total"
    assert sample(text, name, path=">".join(UPPER), outcome="lost", **labels) == 0


def test_a_cloud_that_only_observes_its_rules_is_seen(text: str) -> None:
    assert sample(text, "gridstat_broker_access_enforced") == 0
    assert sample(text, "gridstat_broker_access_rules") == 3
    assert sample(text, "gridstat_broker_access_refused_total") == 4
    assert sample(text, "gridstat_broker_access_observed_total") == 5
