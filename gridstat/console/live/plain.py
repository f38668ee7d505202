"""The same figures for pipes and logs: a line of text, or one JSON object, a second."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from gridstat.console.live.tables import clock, number_or_dash

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.console.live.figures import GridFigures, Latency


def text_line(figures: GridFigures) -> str:
    routers, subscribers = figures.routers, figures.subscribers
    drops = sum(sum(router.drops.values()) for router in routers)
    drops += sum(sum(subscriber.drops.values()) for subscriber in subscribers)
    promised = sum(subscriber.expected_per_s for subscriber in subscribers)
    got = sum(subscriber.got_per_s for subscriber in subscribers)
    return (
        f"{clock(figures.running_s)}"
        f"  routers in {sum(router.in_per_s for router in routers):,.0f}/s"
        f" out {sum(router.out_per_s for router in routers):,.0f}/s"
        f" {_slowest(router.latency for router in routers)}"
        f"  subscribers got {got:,.0f}/s of {promised:,.0f}/s"
        f" {_slowest(subscriber.latency for subscriber in subscribers)}"
        f"  lost {sum(subscriber.lost for subscriber in subscribers)}"
        f" duplicates {sum(subscriber.duplicates for subscriber in subscribers)}"
        f" drops {drops}"
    )


def json_line(figures: GridFigures, **more: object) -> str:
    return json.dumps({"state": "running", **asdict(figures), **more}, default=dict)


def _slowest(latencies: Iterable[Latency]) -> str:
    """The worst of several, since a mean of percentiles says nothing."""
    known = [latency for latency in latencies if latency.us_p50 is not None]
    p50 = max((latency.us_p50 or 0.0 for latency in known), default=None)
    p99 = max((latency.us_p99 or 0.0 for latency in known), default=None)
    return f"p50 {number_or_dash(p50)} p99 {number_or_dash(p99)} µs"
