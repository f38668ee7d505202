"""Prometheus metrics of a router: base units, one name for each quantity, labels for the rest.

`events_total` by outcome reconciles: the sum of all outcomes is the number of received events.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.registry import Collector

from gridstat.console.daemons.listener_metrics import listener_families
from gridstat.core.counter_names import CHANNEL_DROPS, SEALED_REASONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.core import Metric

    from gridstat.net.command.order_table import OrderTable
    from gridstat.net.command.router_messages import ReportCounters

PREFIX: Final = "gridstat_router"
NS_PER_S: Final = 1_000_000_000

OUTCOMES: Final = (
    "dispatched",
    "duplicate",
    "too_old",
    "not_due",
    "malformed_short",
    "malformed_version",
    "malformed_epoch",
    "malformed_length",
    "malformed_option",
    "unknown_channel",
    "unknown_variable",
    "policed_port",
    "policed_source",
    "policed_stamp",
    "policed_slot",
    "policed_jump",
    "policed_interval",
)
ROUTER_COUNTERS: Final = (
    ("datagrams_in", "received_datagrams", "Datagrams that came in."),
    ("bytes_in", "received_bytes", "Bytes of the datagrams that came in."),
    ("kernel_dropped", "kernel_dropped_messages", "Datagrams that the kernel's queue lost."),
    ("flooded", "flooded_events", "Events that were flooded."),
    ("flood_withheld", "flood_withheld_events", "Events too old or too many to be flooded."),
    ("key_trials_dropped", "dropped_key_trials", "Trials of epochs without a key, put off."),
    ("newest_too_large", "newest_too_large_events", "Events too large to be kept as the newest."),
)
AGENT_COUNTERS: Final = (
    ("tables_refused", "refused_tables", "Table changes that were refused."),
    ("terms_refused", "refused_terms", "Sessions of brokers whose term was over."),
    ("end_points_refused", "refused_end_points", "End-points that were turned away."),
    ("addresses_refused", "refused_addresses", "Addresses that end-points did not prove."),
    ("requests_dropped", "dropped_requests", "Requests given up while the broker was away."),
    ("answers_dropped", "dropped_answers", "Answers to end-points that had gone."),
    ("notices_dropped", "dropped_notices", "Notices given up while an end-point was away."),
    ("reports_forgotten", "forgotten_reports", "Reports that are not sent again once lost."),
)
AGENT_GAUGES: Final = (
    ("end_points", "end_points", "End-points with a session here."),
    ("requests_pending", "pending_requests", "Requests that the broker has not answered."),
)
CHANNEL_COUNTERS: Final = (
    ("due", "due_events", "Events that were due on the channel."),
    ("sent", "sent_events", "Events sent on the channel."),
    ("datagrams_out", "sent_datagrams", "Datagrams sent on the channel, probes among them."),
    ("bytes_out", "sent_bytes", "Bytes of the datagrams sent on the channel."),
    ("probes_sent", "sent_probes", "Probes sent on the channel."),
)
SOURCE_COUNTERS: Final = (
    ("datagrams", "received_datagrams", "Datagrams received on the channel."),
    ("probes", "received_probes", "Probes received on the channel."),
    ("lost", "lost_datagrams", "Datagrams that the sender's count says were lost."),
    ("reordered", "reordered_datagrams", "Datagrams that came after later ones."),
)


@dataclass(frozen=True, slots=True)
class RouterFigures:
    """Facts about a router at one moment; counters by the names that the core uses."""

    name: str
    role: str
    version: str
    counters: ReportCounters
    agent: Mapping[str, int]
    table: OrderTable
    term: int
    is_accepted: bool
    pressed_channels: frozenset[int]
    latency: list[tuple[int, int]]
    listeners: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    descriptors_max: int = 0


class RouterCollector(Collector):
    """Makes all families when it is made, for the table in the figures is a live one."""

    def __init__(self, figures: RouterFigures) -> None:
        self._families = (
            *_router_families(figures),
            *_agent_families(figures),
            *_channel_families(figures),
            *_source_families(figures),
            _latency_family(figures.latency),
            *listener_families(PREFIX, figures.listeners),
            _gauge("descriptors_max", "Limit of open files.", figures.descriptors_max),
        )

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def _router_families(figures: RouterFigures) -> Iterator[Metric]:
    about = {"router": figures.name, "role": figures.role, "version": figures.version}
    yield InfoMetricFamily(PREFIX, "The router and its software.", value=about)
    counters = figures.counters.router
    events = _counter("events", "Events that came in, by what became of them.", "outcome")
    for outcome in OUTCOMES:
        events.add_metric([outcome], counters.get(outcome, 0))
    yield events
    rejected = _counter(
        "rejected_datagrams", "Datagrams that are not authentic; no events were read.", "reason"
    )
    for reason in SEALED_REASONS:
        rejected.add_metric([reason.removeprefix("sealed_")], counters.get(reason, 0))
    yield rejected
    for key, name, text in ROUTER_COUNTERS:
        family = _counter(name, text)
        family.add_metric([], counters.get(key, 0))
        yield family
    yield _gauge(
        "waiting_channels",
        "Channels whose address cannot be reached yet.",
        counters.get("channels_waiting", 0),
    )
    yield _gauge(
        "keyless_channels",
        "Sealed channels, in or out, that have no key and carry nothing.",
        counters.get("channels_without_key", 0),
    )
    yield _gauge(
        "overdue_seeds",
        "Sealed channels, in or out, without a fresh seed for twice the usual time.",
        counters.get("seeds_overdue", 0),
    )
    yield _gauge(
        "thread_fifo_priority",
        "Real-time priority of the forwarding thread; 0 is ordinary scheduling.",
        counters.get("fifo_priority", 0),
    )


def _agent_families(figures: RouterFigures) -> Iterator[Metric]:
    yield _gauge("broker_connected", "Whether a broker is in charge.", int(figures.is_accepted))
    yield _gauge("term", "The highest term that a broker has shown.", figures.term)
    orders = GaugeMetricFamily(
        f"{PREFIX}_table_orders", "Orders in the router's table.", labels=["kind"]
    )
    table = figures.table
    kinds = {
        "channel": len(table.channels),
        "source": len(table.sources),
        "variable": len(table.variables),
        "path": len(table.paths),
    }
    for kind, count in kinds.items():
        orders.add_metric([kind], count)
    yield orders
    for key, name, text in AGENT_COUNTERS:
        family = _counter(name, text)
        family.add_metric([], figures.agent.get(key, 0))
        yield family
    for key, name, text in AGENT_GAUGES:
        yield _gauge(name, text, figures.agent.get(key, 0))


def _channel_families(figures: RouterFigures) -> Iterator[Metric]:
    labels_of = {
        channel_id: [str(channel_id), order.to]
        for channel_id, order in figures.table.channels.items()
    }
    reported = {
        channel_id: counters
        for channel_id, counters in sorted(figures.counters.channels.items())
        if channel_id in labels_of
    }
    for key, name, text in CHANNEL_COUNTERS:
        family = _counter(f"channel_{name}", text, "channel", "to")
        for channel_id, counters in reported.items():
            family.add_metric(labels_of[channel_id], counters.get(key, 0))
        yield family
    dropped = _counter(
        "channel_dropped_events", "Events due but not sent.", "channel", "to", "reason"
    )
    queued = GaugeMetricFamily(
        f"{PREFIX}_channel_queued_events", "Events that wait.", labels=["channel", "to"]
    )
    pressed = GaugeMetricFamily(
        f"{PREFIX}_channel_back_pressure",
        "Whether the queue has passed its high mark.",
        labels=["channel", "to"],
    )
    for channel_id, counters in reported.items():
        labels = labels_of[channel_id]
        for reason in CHANNEL_DROPS:
            dropped.add_metric([*labels, reason], counters.get(reason, 0))
        queued.add_metric(labels, counters.get("queued", 0))
        pressed.add_metric(labels, int(channel_id in figures.pressed_channels))
    yield from (dropped, queued, pressed)


def _source_families(figures: RouterFigures) -> Iterator[Metric]:
    labels_of = {
        channel_id: [str(channel_id), order.sender]
        for channel_id, order in figures.table.sources.items()
    }
    reported = {
        channel_id: facts
        for channel_id, facts in sorted(figures.counters.sources.items())
        if channel_id in labels_of
    }
    for key, name, text in SOURCE_COUNTERS:
        family = _counter(f"source_{name}", text, "channel", "sender")
        for channel_id, facts in reported.items():
            family.add_metric(labels_of[channel_id], facts.get(key, 0))
        yield family
    silent = GaugeMetricFamily(
        f"{PREFIX}_source_silence_seconds",
        "How long nothing has come on the channel.",
        labels=["channel", "sender"],
    )
    for channel_id, facts in reported.items():
        silent.add_metric(labels_of[channel_id], facts.get("silent_ns", 0) / NS_PER_S)
    yield silent


def _latency_family(latency: list[tuple[int, int]]) -> Metric:
    """Copies by their time in the router; the core keeps no sum of it."""
    count = 0
    buckets: list[tuple[str, float]] = []
    for upper_ns, copies in latency:
        count += copies
        buckets.append((repr(upper_ns / NS_PER_S), float(count)))
    buckets.append(("+Inf", float(count)))
    family = HistogramMetricFamily(
        f"{PREFIX}_forwarding_latency_seconds", "Time from receiving an event to sending it."
    )
    family.add_metric([], buckets=buckets, sum_value=None)
    return family


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"{PREFIX}_{name}", text, labels=labels)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, value=value)
