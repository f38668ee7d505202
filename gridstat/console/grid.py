"""A grid as a file describes it, in plain values: what `config/` gives and everything else takes.

Routers and the one-way event channels between them, simulated PMUs that publish, and subscribers.
Ports that are 0 are chosen when the grid starts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.model.rate_law import Period


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where datagrams are received: the data port, and the port of alerts and control."""

    host: str
    data_port: int = 0
    urgent_port: int = 0

    @property
    def has_fixed_ports(self) -> bool:
        return self.data_port != 0 and self.urgent_port != 0

    @property
    def address(self) -> tuple[str, int, int]:
        return (self.host, self.data_port, self.urgent_port)


@dataclass(frozen=True, slots=True)
class Router:
    """A status router, one process."""

    name: str
    endpoint: Endpoint


@dataclass(frozen=True, slots=True)
class EventChannel:
    """A one-way way from router to router; without bandwidth it is not paced."""

    from_router: str
    to_router: str
    level: int = 1
    floods: bool = False
    mtu_bytes: int = 1_232
    bandwidth_bytes_per_s: int = 0
    queue_events_max: int = 1_024


@dataclass(frozen=True, slots=True)
class Pmu:
    """A simulated phasor measurement unit; its variables are `name/quantity`."""

    name: str
    router: str
    period: Period
    quantities: tuple[str, ...]
    phase_ns: int = 0

    def variable_names(self) -> Iterator[str]:
        return (f"{self.name}/{quantity}" for quantity in self.quantities)


@dataclass(frozen=True, slots=True)
class Subscriber:
    """Takes every n-th slot of all variables that one of its patterns names."""

    name: str
    router: str
    patterns: tuple[str, ...]
    every: int
    endpoint: Endpoint

    def wants(self, variable_name: str) -> bool:
        return any(matches(pattern, variable_name) for pattern in self.patterns)


@dataclass(frozen=True, slots=True)
class Grid:
    """All of one file; every name in it is known and used once."""

    name: str
    routers: tuple[Router, ...]
    channels: tuple[EventChannel, ...] = ()
    pmus: tuple[Pmu, ...] = ()
    subscribers: tuple[Subscriber, ...] = ()
    source: str = field(default="", compare=False)

    def router(self, name: str) -> Router | None:
        return next((router for router in self.routers if router.name == name), None)


def router_key(name: str) -> str:
    """How processes call a router when they tell each other addresses."""
    return f"router {name}"


def subscriber_key(name: str) -> str:
    return f"subscriber {name}"


def matches(pattern: str, variable_name: str) -> bool:
    """Whether a pattern names a variable: `*` stands within one level, `**` for any number."""
    return _expression(pattern).fullmatch(variable_name) is not None


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    parts = (
        {"**": ".*", "*": "[^/]*"}.get(part, re.escape(part))
        for part in re.split(r"(\*\*|\*)", pattern)
    )
    return re.compile("".join(parts))
