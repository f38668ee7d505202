"""Prometheus metrics of a recorder: recorded rows, missing rows, and use of the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from gridstat.console.daemons.listener_metrics import listener_families
from gridstat.record.record_kinds import EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.core import Metric

    from gridstat.record.log_settings import RecorderSettings
    from gridstat.record.recorder import RecorderFigures

PREFIX: Final = "gridstat_recorder"


class RecorderCollector(Collector):
    """The figures of one moment as families; it touches no live state."""

    def __init__(
        self,
        figures: RecorderFigures,
        settings: RecorderSettings,
        contracts: int,
        listeners: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        self._figures = figures
        self._settings = settings
        self._contracts = contracts
        self._listeners = listeners or {}

    def collect(self) -> Iterator[Metric]:
        figures = self._figures
        yield _counter(
            "recorded_events", "Events in the log, ever; released ones too.", figures.recorded
        )
        yield _counter("taken_events", "Events that came since the start.", figures.taken)
        yield _counter("failures", "Times that a log could not be written.", figures.failures)
        missing = CounterMetricFamily(
            f"{PREFIX}_missing_events", "Events that are known to be missing.", labels=["reason"]
        )
        for reason, count in figures.missing.items():
            missing.add_metric([reason], count)
        yield missing
        yield _gauge("waiting_events", "Events that wait for the disk.", figures.waiting)
        yield _gauge("streams", "Streams that have a number.", figures.streams)
        yield _gauge("contracts", "Contracts of the cloud that are not over.", self._contracts)
        nearly_full = figures.state in ("nearly full", "full")
        yield _gauge("nearly_full", "Whether a log or the disk is.", int(nearly_full))
        yield _gauge("failing", "Whether a log takes nothing.", int(bool(figures.complaint)))
        if figures.free_bytes is not None:
            yield _gauge("free_bytes", "Room on the file system.", figures.free_bytes)
        yield from self._sizes()
        yield from listener_families(PREFIX, self._listeners)

    def _sizes(self) -> Iterator[Metric]:
        size = GaugeMetricFamily(f"{PREFIX}_log_bytes", "What a log takes.", labels=["log"])
        bound = GaugeMetricFamily(f"{PREFIX}_log_bytes_max", "Its bound.", labels=["log"])
        for name, count in self._figures.log_bytes.items():
            settings = self._settings.events if name == EVENTS.name else self._settings.side
            size.add_metric([name], count)
            bound.add_metric([name], settings.log_bytes_max)
        yield from (size, bound)
        yield _by_log("released_bytes", "What was removed of it.", self._figures.released_bytes)
        yield _by_log("dropped_rows", "What waited too long.", self._figures.dropped_rows)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, value=value)


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(f"{PREFIX}_{name}", text, value=value)


def _by_log(name: str, text: str, values: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(f"{PREFIX}_{name}", text, labels=["log"])
    for log, value in values.items():
        family.add_metric([log], value)
    return family
