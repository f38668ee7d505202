"""Prometheus metrics of a daemon's listeners: pending, refused and paused connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.core import Metric

REFUSED: Final = "refused."
LIMITS: Final = (
    "source_rate",
    "source_pending",
    "gave_way",
    "too_many_sessions",
    "too_many_bytes",
    "hello_deadline",
    "QuotaReached",
)
"""Causes of a refusal by a limit; they have a series before the first of them happens."""


def listener_families(prefix: str, listeners: Mapping[str, Mapping[str, int]]) -> Iterator[Metric]:
    """Yield the families of all listeners of a daemon, from their counters by name."""
    pending = GaugeMetricFamily(
        f"{prefix}_pending_connections", "Connections that are no session yet.", labels=["listener"]
    )
    pauses = CounterMetricFamily(
        f"{prefix}_accept_pauses",
        "Times that accepting paused, as no descriptor was free.",
        labels=["listener"],
    )
    refused = CounterMetricFamily(
        f"{prefix}_refused_connections",
        "Connections that were closed before they were sessions, by cause.",
        labels=["listener", "reason"],
    )
    for listener, facts in listeners.items():
        pending.add_metric([listener], facts["pending"])
        pauses.add_metric([listener], facts["accept_pauses"])
        counts = dict.fromkeys(LIMITS, 0)
        for name, count in facts.items():
            if name.startswith(REFUSED):
                counts[name.removeprefix(REFUSED)] = count
        for reason, count in counts.items():
            refused.add_metric([listener, reason], count)
    yield from (pending, pauses, refused)
