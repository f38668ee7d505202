"""Metrics of listeners: every limit has a series before it is ever reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.registry import Collector

from gridstat.console.daemons.listener_metrics import LIMITS, listener_families
from gridstat.console.daemons.metrics_server import exposition
from gridstat.net.command.connection_admission import Refusal
from gridstat.net.command.listener import ConnectionCounters
from gridstat.net.command.session_settings import SessionCounters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric


class Page(Collector):
    """The families of two listeners."""

    def __init__(self) -> None:
        self.commands = SessionCounters(pending=3, accept_pauses=2)
        self.metrics = ConnectionCounters()

    def collect(self) -> Iterator[Metric]:
        facts = {"commands": self.commands.as_facts(), "metrics": self.metrics.as_facts()}
        yield from listener_families("gridstat_router", facts)


def test_every_limit_has_a_series_from_the_start() -> None:
    text = exposition(Page()).decode()
    for listener in ("commands", "metrics"):
        for reason in LIMITS:
            labels = f'{{listener="{listener}",reason="{reason}"}}'
            assert f"gridstat_router_refused_connections_total{labels} 0.0" in text
    assert 'gridstat_router_pending_connections{listener="commands"} 3.0' in text
    assert 'gridstat_router_accept_pauses_total{listener="commands"} 2.0' in text
    assert {refusal.value for refusal in Refusal} <= set(LIMITS)


def test_refusals_are_counted_by_listener_and_cause() -> None:
    page = Page()
    page.commands.refused["certificate_expired"] += 4
    page.metrics.refused["gave_way"] += 5
    text = exposition(page).decode()
    assert 'connections_total{listener="commands",reason="certificate_expired"} 4.0' in text
    assert 'connections_total{listener="metrics",reason="gave_way"} 5.0' in text
