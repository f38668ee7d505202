"""What is settled of a session before a connection is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import ssl

    from gridstat.net.command.identity import Identity
    from gridstat.net.command.messages import Hello
    from gridstat.net.command.session_settings import SessionSettings


class Gate(Protocol):
    """Who may be the peer of a session (`gate.py`)."""

    def check(self, identity: Identity) -> None:
        """Raises to refuse; the peer is told why."""
        ...


@dataclass(frozen=True, slots=True)
class SessionTerms:
    """Which side we are, whom we let in, how we introduce ourselves, and for how long we wait."""

    is_server: bool
    gate: Gate
    context: ssl.SSLContext
    hello: Hello
    settings: SessionSettings
