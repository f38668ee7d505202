"""A broker's figures in Prometheus' words: contracts, promises, ledgers, journal and sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.core import Metric

    from gridstat.net.command.session_settings import SessionCounters

PREFIX: Final = "gridstat_broker"
LEDGER: Final = ("expected", "delivered", "late", "lost", "duplicate", "extrapolated", "unknown")
MS_PER_S: Final = 1_000


class BrokerCollector(Collector):
    """Takes a survey whenever somebody asks for the metrics."""

    def __init__(
        self,
        survey: Callable[[], dict[str, Any]],
        journal: Callable[[], Mapping[str, float]],
        sessions: SessionCounters,
    ) -> None:
        self._survey = survey
        self._journal = journal
        self._sessions = sessions

    def collect(self) -> Iterator[Metric]:
        facts = self._survey()
        yield _gauge("term", "The broker's term, which grows with every start.", facts["term"])
        yield from _totals(facts["totals"])
        yield from _routers(facts["routers"])
        yield from _channels(facts["channels"])
        yield _ledgers(facts["subscriptions"])
        yield from _journal(self._journal())
        yield from self._session_families()

    def _session_families(self) -> Iterator[Metric]:
        facts = self._sessions.as_facts()
        yield _gauge("sessions", "Sessions that are up.", facts["sessions"])
        refused = CounterMetricFamily(
            f"{PREFIX}_refused_sessions", "Peers that were turned away.", labels=["reason"]
        )
        for name, count in facts.items():
            if name.startswith("refused."):
                refused.add_metric([name.removeprefix("refused.")], count)
        yield refused


def _totals(totals: Mapping[str, int]) -> Iterator[Metric]:
    for name, count in sorted(totals.items()):
        yield _gauge(name, f"How many {name.replace('_', ' ')} there are.", count)


def _routers(routers: list[dict[str, Any]]) -> Iterator[Metric]:
    up = _labelled("router_up", "Whether the router forwards.", "router")
    in_step = _labelled("router_in_step", "Whether its table is as ordered.", "router")
    promised = _labelled("router_promised_events_per_second", "Promised of its capacity.", "router")
    for router in routers:
        up.add_metric([router["name"]], int(router["is_up"]))
        in_step.add_metric([router["name"]], int(router["in_step"]))
        promised.add_metric([router["name"]], router["events_per_s"])
    yield from (up, in_step, promised)


def _channels(channels: list[dict[str, Any]]) -> Iterator[Metric]:
    up = _labelled("channel_up", "Whether the channel's probes are heard.", "channel")
    pressed = _labelled("channel_back_pressure", "Whether it admits nothing.", "channel")
    promised = _labelled("channel_promised_bytes_per_second", "Promised of its band.", "channel")
    lost = _labelled("channel_loss_ratio", "Share of datagrams lost on the way.", "channel")
    for channel in channels:
        labels = [channel["label"]]
        up.add_metric(labels, int(channel["is_up"]))
        pressed.add_metric(labels, int(channel["is_back_pressured"]))
        promised.add_metric(labels, channel["bytes_per_s"])
        lost.add_metric(labels, channel["loss_ratio"])
    yield from (up, pressed, promised, lost)


def _ledgers(subscriptions: list[dict[str, Any]]) -> Metric:
    family = CounterMetricFamily(
        f"{PREFIX}_ledger_events",
        "Events of a subscription by what became of them, as its subscriber counts.",
        labels=["subscriber", "variable", "outcome"],
    )
    for subscription in subscriptions:
        ledger = subscription["ledger"]
        for outcome in LEDGER if ledger else ():
            labels = [subscription["subscriber"], subscription["name"], outcome]
            family.add_metric(labels, ledger.get(outcome, 0))
    return family


def _journal(figures: Mapping[str, float]) -> Iterator[Metric]:
    for name, text in (
        ("commits", "Transactions of the journal."),
        ("operations", "Operations made durable."),
        ("failures", "Transactions that failed."),
    ):
        family = CounterMetricFamily(f"{PREFIX}_journal_{name}", text)
        family.add_metric([], figures.get(name, 0))
        yield family
    yield _gauge(
        "journal_commit_median_seconds",
        "Median time of the latest commits, fsync included.",
        figures.get("fsync_ms_p50", 0.0) / MS_PER_S,
    )


def _labelled(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=labels)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, value=value)
