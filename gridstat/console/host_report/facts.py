"""Facts about a machine, as plain values; None means that it cannot be known here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ClockFacts:
    """State of the kernel's clock (adjtimex)."""

    is_synchronised: bool
    error_us_max: int
    error_us_estimated: int


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Everything that the report judges."""

    kernel: str
    preemption: str
    cpu_count: int
    receive_buffer_bytes: int
    receive_buffer_bytes_max: int
    send_buffer_bytes: int
    send_buffer_bytes_max: int
    gso_problem: str
    gro_problem: str
    locked_bytes_max: int | None
    real_time_problem: str
    clock: ClockFacts | None
    mtu_bytes: Mapping[str, int] = field(default_factory=dict)
    seal_backends: Mapping[str, str] = field(default_factory=dict)
    """Libraries that seal datagrams, fastest first, with their full names."""
    plain_edges: Mapping[str, str] = field(default_factory=dict)
    """Edge routers that run here and do not seal their end-points' channels, each with its file."""
