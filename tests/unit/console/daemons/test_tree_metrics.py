"""A QoS broker's page of metrics: every series named, with the figures of one moment."""

from __future__ import annotations

from prometheus_client import generate_latest
from prometheus_client.registry import CollectorRegistry

from gridstat.console.daemons.tree_metrics import TreeCollector, TreeFigures

SURVEY = {
    "broker": "root",
    "term": 3,
    "depth": 0,
    "children": [{"name": "c1", "is_joined": True}, {"name": "c2", "is_joined": False}],
    "channels": [
        {
            "channel": "c1/b0→c2/b0",
            "is_open": True,
            "is_up": True,
            "is_pressed": False,
            "promised_bytes_per_s": 1_500.0,
        }
    ],
    "contracts": 12,
    "segments": 4,
    "broken": 1,
    "transactions": 0,
    "releases": 0,
    "watches": 0,
    "keys": {
        "sealed_channels": 8,
        "plain_channels": ["c1/a→c1/b"],
        "seeds_given": 40,
        "overdue": ["c1/e0→c1/i0", "c1/i0→c1/e0"],
        "closed": [],
    },
}


def page() -> str:
    registry = CollectorRegistry()
    figures = TreeFigures(SURVEY, journal={"commits": 7}, sessions={"sessions": 2, "refused.x": 1})
    registry.register(TreeCollector(figures))
    return generate_latest(registry).decode()


def test_the_page_tells_who_has_joined_and_what_is_promised_between_clouds() -> None:
    told = page()
    for line in (
        "gridstat_broker_term 3.0",
        "gridstat_broker_depth 0.0",
        "gridstat_broker_contracts 12.0",
        'gridstat_broker_child_joined{child="c1"} 1.0',
        'gridstat_broker_child_joined{child="c2"} 0.0',
        'gridstat_broker_channel_up{channel="c1/b0→c2/b0"} 1.0',
        'gridstat_broker_channel_promised_bytes_per_second{channel="c1/b0→c2/b0"} 1500.0',
        "gridstat_broker_journal_commits_total 7.0",
        "gridstat_broker_overdue_seeds 2.0",
        "gridstat_broker_sealed_channels 8.0",
        "gridstat_broker_plain_channels 1.0",
        "gridstat_broker_unsealable_channels 0.0",
        "gridstat_broker_given_seeds_total 40.0",
        'gridstat_broker_refused_sessions_total{reason="x"} 1.0',
    ):
        assert line in told.splitlines()
