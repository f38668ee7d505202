"""One pending request of an end-point."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.records.registry import EndPoint
    from gridstat.net.command.endpoint_messages import Outcome
    from gridstat.net.command.endpoint_signatures import CertificateFacts

Process: TypeAlias = tuple[str, int]
"""Incarnation of an end-point, and the request by which it was registered."""


class RequestState(Enum):
    """Event that a pending request waits for."""

    DECIDING = auto()
    """A part of the broker decides, or follows states of its own, as `pending_grants.py` does."""
    WRITING = auto()
    """The journal writes the answer, which is sent once it is durable."""
    CONFIRMING = auto()
    """The answer is durable, and sent once routers have confirmed their tables."""


@dataclass(slots=True)
class Request:
    """Pending request, the edges that wait for its answer, and the answer once it is decided."""

    endpoint: str
    request_id: int
    public_key: bytes
    needs_endpoint: bool
    is_query: bool
    facts: CertificateFacts | None
    """Facts of the certificate of an Attach."""
    edges: set[str] = field(default_factory=set)
    state: RequestState = RequestState.DECIDING
    answer: bytes = b""
    progress: Progress | None = None
    """What is decided so far, if the request is decided in slices."""


@dataclass(slots=True)
class Progress:
    """Outcomes of the slices that are decided, the names in them, and the process that asked."""

    process: Process
    outcomes: list[Outcome] = field(default_factory=list)
    named: set[str] = field(default_factory=set)
    going: list[int] = field(default_factory=list)
    """Contracts that are still to be ended, and after them patterns."""
    going_names: list[str] = field(default_factory=list)
    """Variables that are still to be withdrawn."""
    routers: set[str] = field(default_factory=set)
    """Routers that confirm what the slices have changed."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Rest of a request that is decided in slices; `work` decides the next one."""

    request: Request
    work: Callable[[], None]


def process_of(endpoint: EndPoint | None) -> Process:
    """Return the process of an end-point; one that left and attached again counts as another."""
    return ("", 0) if endpoint is None else (endpoint.incarnation, endpoint.known_since)
