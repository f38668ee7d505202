"""Prometheus metrics of a QoS broker: children, channels between clouds, contracts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from prometheus_client.registry import Collector

from gridstat.console.daemons.broker_metrics import (
    PREFIX,
    gauge,
    journal_families,
    key_families,
    labelled,
    session_families,
    total_families,
)
from gridstat.console.daemons.listener_metrics import listener_families

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.core import Metric


@dataclass(frozen=True, slots=True)
class TreeFigures:
    """Facts about a broker at one moment; they never change afterwards."""

    survey: Mapping[str, Any]
    journal: Mapping[str, float]
    sessions: Mapping[str, int]
    listeners: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    descriptors_max: int = 0


class TreeCollector(Collector):
    """The figures of one moment as families; it touches no live state."""

    def __init__(self, figures: TreeFigures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        facts = self._figures.survey
        yield gauge("term", "The broker's term, which grows with every start.", facts["term"])
        yield gauge("depth", "How far below the root it stands.", facts["depth"])
        counts = ("contracts", "segments", "broken", "transactions", "releases", "watches")
        yield from total_families({name: facts[name] for name in counts})
        yield _children(facts["children"])
        yield from _channels(facts["channels"])
        yield from key_families(facts["keys"])
        yield from journal_families(self._figures.journal)
        yield from session_families(self._figures.sessions)
        yield from listener_families(PREFIX, self._figures.listeners)
        yield gauge("descriptors_max", "Limit of open files.", self._figures.descriptors_max)


def _channels(channels: list[dict[str, Any]]) -> Iterator[Metric]:
    """Yield metrics of channels, under the same names as a leaf broker's."""
    up = labelled("channel_up", "Whether the channel's probes arrive.", "channel")
    pressed = labelled("channel_back_pressure", "Whether it admits nothing.", "channel")
    promised = labelled("channel_promised_bytes_per_second", "Promised of its band.", "channel")
    for channel in channels:
        labels = [channel["channel"]]
        up.add_metric(labels, int(channel["is_open"] and channel["is_up"]))
        pressed.add_metric(labels, int(channel["is_pressed"]))
        promised.add_metric(labels, channel["promised_bytes_per_s"])
    yield from (up, pressed, promised)


def _children(children: list[dict[str, Any]]) -> Metric:
    joined = labelled("child_joined", "Whether the broker below has joined.", "child")
    for child in children:
        joined.add_metric([child["name"]], int(child["is_joined"]))
    return joined
