"""Verdicts of the edges on this end-point's addresses: proved, or refused and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.model.errors import LinkDown
from gridstat.net.command.endpoint_messages import AddressRefused

if TYPE_CHECKING:
    from gridstat.net.command.endpoint_messages import AddressProved

VERDICTS_MAX: Final = 16
"""Channels of one edge whose verdict is kept: that of the events, and those of flooded events."""


class AddressVerdicts:
    """The newest verdict on each channel; one may come before its channel is known here."""

    def __init__(self) -> None:
        self._verdicts: dict[str, dict[int, AddressProved | AddressRefused]] = {}

    def note(self, edge: str, verdict: AddressProved | AddressRefused) -> bool:
        """Keep a verdict; return whether it differs from the one before it, or is the first."""
        found = self._verdicts.setdefault(edge, {})
        before = found.pop(verdict.channel_id, None)
        found[verdict.channel_id] = verdict
        if len(found) > VERDICTS_MAX:
            del found[next(iter(found))]
        return before is None or type(before) is not type(verdict)

    def is_proved(self, edge: str, channel_id: int) -> bool:
        """Return whether the edge sends events on this channel."""
        verdict = self._verdicts.get(edge, {}).get(channel_id)
        return verdict is not None and not isinstance(verdict, AddressRefused)

    def refusal(self, edge: str, channel_id: int) -> LinkDown | None:
        """Return why the edge sends no events on this channel; None if it has not refused."""
        verdict = self._verdicts.get(edge, {}).get(channel_id)
        if not isinstance(verdict, AddressRefused):
            return None
        return LinkDown(f"edge router {edge}: {verdict.reason}", hint=verdict.hint)
