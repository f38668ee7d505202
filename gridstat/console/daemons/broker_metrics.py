"""Prometheus metrics of a broker: contracts, promises, ledgers, journal and sessions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from gridstat.console.daemons.listener_metrics import listener_families
from gridstat.model.path_label import path_label
from gridstat.net.command.endpoint_messages import LEDGER_COUNTS, PATH_COUNTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from prometheus_client.core import Metric

    from gridstat.broker.operators.survey import ReportedLedger

PREFIX: Final = "gridstat_broker"
MS_PER_S: Final = 1_000
CHANNELS_OF_END_POINT: Final = 2
"""Channels of an end-point with one edge router: there and back."""


@dataclass(frozen=True, slots=True)
class BrokerFigures:
    """Facts about a broker at one moment; they never change afterwards."""

    survey: Mapping[str, Any]
    ledgers: Sequence[ReportedLedger]
    journal: Mapping[str, float]
    sessions: Mapping[str, int]
    listeners: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    descriptors_max: int = 0


class BrokerCollector(Collector):
    """The figures of one moment as families; it touches no live state."""

    def __init__(self, figures: BrokerFigures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        facts = self._figures.survey
        yield gauge("term", "The broker's term, which grows with every start.", facts["term"])
        yield from total_families(facts["totals"])
        yield from _routers(facts["routers"])
        yield from _channels(facts["channels"])
        yield _ledgers(self._figures.ledgers)
        yield _path_ledgers(self._figures.ledgers)
        yield from _access(facts["access"])
        yield from key_families(facts["keys"])
        yield from journal_families(self._figures.journal)
        yield from session_families(self._figures.sessions)
        yield from listener_families(PREFIX, self._figures.listeners)
        yield gauge("descriptors_max", "Limit of open files.", self._figures.descriptors_max)


def _access(facts: Mapping[str, Any]) -> Iterator[Metric]:
    is_enforced = float(facts["mode"] == "enforce")
    yield gauge("access_enforced", "Whether the access rules hold: 1, or 0.", is_enforced)
    yield gauge("access_rules", "Access rules in force.", facts["rule_count"])
    for name, text in (
        ("refused", "Requests that no access rule allows, and that were refused."),
        ("observed", "Requests that no access rule allows, and that were only noted."),
    ):
        family = CounterMetricFamily(f"{PREFIX}_access_{name}", text)
        family.add_metric([], facts[name])
        yield family


def key_families(facts: Mapping[str, Any]) -> Iterator[Metric]:
    """Yield metrics of the seeds that a broker gives; only a leaf broker has end-points."""
    plain = len(facts["plain_channels"])
    plain += CHANNELS_OF_END_POINT * sum(facts.get("plain_end_points", {}).values())
    for name, text, number in (
        ("sealed_channels", "Sealed channels that it gives seeds for.", facts["sealed_channels"]),
        ("plain_channels", "Channels with security none, end-points' ones too.", plain),
        ("unsealable_channels", "Channels closed as an end cannot seal.", len(facts["closed"])),
        ("overdue_seeds", "Channels without a fresh seed for long.", len(facts["overdue"])),
    ):
        yield gauge(name, text, number)
    given = CounterMetricFamily(f"{PREFIX}_given_seeds", "Seeds that both ends have got.")
    given.add_metric([], facts["seeds_given"])
    yield given


def session_families(facts: Mapping[str, int]) -> Iterator[Metric]:
    yield gauge("sessions", "Sessions that are up.", facts["sessions"])
    refused = CounterMetricFamily(
        f"{PREFIX}_refused_sessions", "Peers that were turned away.", labels=["reason"]
    )
    for name, count in facts.items():
        if name.startswith("refused."):
            refused.add_metric([name.removeprefix("refused.")], count)
    yield refused


def total_families(totals: Mapping[str, int]) -> Iterator[Metric]:
    for name, count in sorted(totals.items()):
        yield gauge(name, f"How many {name.replace('_', ' ')} there are.", count)


def _routers(routers: list[dict[str, Any]]) -> Iterator[Metric]:
    up = labelled("router_up", "Whether the router forwards.", "router")
    in_step = labelled("router_in_step", "Whether its table is as ordered.", "router")
    refusals = labelled(
        "router_table_refusals", "How often in a row it has refused its table.", "router"
    )
    refused = labelled("router_refused_rows", "Variables that its core cannot hold.", "router")
    promised = labelled("router_promised_events_per_second", "Promised of its capacity.", "router")
    for router in routers:
        up.add_metric([router["name"]], int(router["is_up"]))
        in_step.add_metric([router["name"]], int(router["in_step"]))
        refusals.add_metric([router["name"]], router["refusals"])
        refused.add_metric([router["name"]], router["refused_rows"])
        promised.add_metric([router["name"]], router["events_per_s"])
    yield from (up, in_step, refusals, refused, promised)


def _channels(channels: list[dict[str, Any]]) -> Iterator[Metric]:
    up = labelled("channel_up", "Whether the channel's probes arrive.", "channel")
    pressed = labelled("channel_back_pressure", "Whether it admits nothing.", "channel")
    promised = labelled("channel_promised_bytes_per_second", "Promised of its band.", "channel")
    lost = labelled("channel_loss_ratio", "Share of datagrams lost on the way.", "channel")
    for channel in channels:
        labels = [channel["label"]]
        up.add_metric(labels, int(channel["is_up"]))
        pressed.add_metric(labels, int(channel["is_back_pressured"]))
        promised.add_metric(labels, channel["bytes_per_s"])
        lost.add_metric(labels, channel["loss_ratio"])
    yield from (up, pressed, promised, lost)


def _ledgers(ledgers: Sequence[ReportedLedger]) -> Metric:
    family = CounterMetricFamily(
        f"{PREFIX}_ledger_events",
        "Events of a subscription by what became of them, as its subscriber counts.",
        labels=["subscription", "subscriber", "variable", "outcome"],
    )
    for number, subscriber, name, ledger in ledgers:
        for outcome in (*LEDGER_COUNTS, "lost_to_clock"):
            family.add_metric([str(number), subscriber, name, outcome], getattr(ledger, outcome))
    return family


def _path_ledgers(ledgers: Sequence[ReportedLedger]) -> Metric:
    """Return metrics by path, for contracts with several paths or moved ones; a ledger has few
    paths."""
    family = CounterMetricFamily(
        f"{PREFIX}_path_ledger_events",
        "Due events of a subscription by path: whether it brought them, and first.",
        labels=["subscription", "subscriber", "variable", "path", "outcome"],
    )
    for number, subscriber, name, ledger in ledgers:
        # A series that comes twice spoils the whole page, and the end-point says the names.
        paths = {
            path_label(path.routers, path.channel_names) or path.name: path for path in ledger.paths
        }
        for label, path in paths.items():
            for outcome in PATH_COUNTS if path.is_counted else ():
                count = getattr(path, outcome)
                if count is not None:
                    family.add_metric([str(number), subscriber, name, label, outcome], count)
    return family


def journal_families(figures: Mapping[str, float]) -> Iterator[Metric]:
    for name, text in (
        ("commits", "Transactions of the journal."),
        ("operations", "Operations made durable."),
        ("failures", "Transactions that failed."),
        ("head_failures", "Times that the file beside the journal could not be written."),
    ):
        family = CounterMetricFamily(f"{PREFIX}_journal_{name}", text)
        family.add_metric([], figures.get(name, 0))
        yield family
    yield gauge(
        "journal_commit_median_seconds",
        "Median time of the latest commits, fsync included.",
        figures.get("fsync_ms_p50", 0.0) / MS_PER_S,
    )


def labelled(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=labels)


def gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, value=value)
