"""Metrics of a router: equal to its counters, in the format of Prometheus' own checker."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gridstat.console.daemons.router_metrics import OUTCOMES, RouterCollector, RouterFigures
from gridstat.core.counter_names import CORE_COUNTERS, SEALED_REASONS
from gridstat.net.command.order_table import OrderTable
from gridstat.net.command.router_messages import (
    ChangeTable,
    ChannelOrder,
    ReportCounters,
    SourceOrder,
)

if TYPE_CHECKING:
    from prometheus_client.core import Metric

FOREIGN_UNITS = re.compile(
    r"_(ns|us|ms|s|kb|mb|nanoseconds|microseconds|milliseconds|minutes|hours|percent|bits)(_|$)"
)


@pytest.fixture
def text() -> str:
    table = OrderTable()
    channel = ChannelOrder(channel_id=7, to='c1/"e1"', host="::1", data_port=1, urgent_port=2)
    table.apply(
        ChangeTable(
            term=1,
            number=1,
            channels=(channel,),
            sources=(SourceOrder(channel_id=3, sender="c1/w0"),),
        )
    )
    counters = ReportCounters(
        router={"in": 30, "dispatched": 20, "duplicate": 10, "kernel_dropped": 2}
        | {
            "sealed_forged": 17,
            "channels_without_key": 5,
            "seeds_overdue": 11,
            "key_trials_dropped": 6,
        },
        channels={7: {"due": 9, "sent": 5, "queue_full": 4, "queued": 1}, 8: {"sent": 99}},
        sources={3: {"lost": 6, "silent_ns": 1_500_000_000}},
    )
    figures = RouterFigures(
        name="c1/e0",
        role="edge",
        version="0.1.0",
        counters=counters,
        agent={"end_points": 4, "requests_dropped": 3},
        table=table,
        term=8,
        is_accepted=True,
        pressed_channels=frozenset({7}),
        latency=[(1_000, 2), (4_000, 3)],
    )
    registry = CollectorRegistry(auto_describe=False)
    registry.register(RouterCollector(figures))
    return generate_latest(registry).decode()


def families(text: str) -> list[Metric]:
    return list(text_string_to_metric_families(text))


@pytest.mark.parametrize(
    "line",
    [
        'gridstat_router_events_total{outcome="dispatched"} 20.0',
        'gridstat_router_events_total{outcome="policed_slot"} 0.0',
        "gridstat_router_kernel_dropped_messages_total 2.0",
        'gridstat_router_rejected_datagrams_total{reason="forged"} 17.0',
        'gridstat_router_rejected_datagrams_total{reason="replayed"} 0.0',
        "gridstat_router_keyless_channels 5.0",
        "gridstat_router_overdue_seeds 11.0",
        "gridstat_router_dropped_key_trials_total 6.0",
        'gridstat_router_channel_sent_events_total{channel="7",to="c1/\\"e1\\""} 5.0',
        'gridstat_router_channel_back_pressure{channel="7",to="c1/\\"e1\\""} 1.0',
        'gridstat_router_source_lost_datagrams_total{channel="3",sender="c1/w0"} 6.0',
        'gridstat_router_source_silence_seconds{channel="3",sender="c1/w0"} 1.5',
        'gridstat_router_table_orders{kind="channel"} 1.0',
        "gridstat_router_term 8.0",
        "gridstat_router_broker_connected 1.0",
        "gridstat_router_end_points 4.0",
        "gridstat_router_dropped_requests_total 3.0",
        'gridstat_router_forwarding_latency_seconds_bucket{le="4e-06"} 5.0',
        'gridstat_router_forwarding_latency_seconds_bucket{le="+Inf"} 5.0',
    ],
)
def test_each_figure_stands_under_its_name(text: str, line: str) -> None:
    assert line in text.splitlines()


def test_channels_that_are_no_longer_in_the_table_are_left_out(text: str) -> None:
    assert '"8"' not in text


def test_the_outcomes_are_all_that_can_become_of_an_event() -> None:
    others = {"in", "flooded", "flood_withheld", "newest_too_large", "datagrams_in", "bytes_in"}
    assert set(OUTCOMES) == {name for name in CORE_COUNTERS if name} - others - {*SEALED_REASONS}


def test_the_rules_of_the_metrics_checker_are_kept(text: str) -> None:
    names = [family.name for family in families(text)]
    assert len(set(names)) == len(names)
    for family in families(text):
        assert family.documentation, f"{family.name} has no help"
        assert re.fullmatch(r"[a-z][a-z0-9_]*", family.name), family.name
        assert not FOREIGN_UNITS.search(family.name), f"{family.name} has no base unit"
        is_counter = family.type == "counter"
        for sample in family.samples:
            assert sample.name.endswith("_total") == is_counter, sample.name
        if family.type == "gauge":
            assert not family.name.endswith(("_count", "_sum", "_bucket", "_total"))
