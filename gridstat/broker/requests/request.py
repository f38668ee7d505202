"""One pending request of an end-point."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gridstat.net.command.endpoint_signatures import CertificateFacts


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
