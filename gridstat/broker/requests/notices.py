"""Notices to end-points, sent through every edge at which they have a session.

An end-point can receive a notice twice, once through each edge, with the same meaning. Notices that
were sent while it was absent, or shortly before a session broke, are repeated when it is back.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from gridstat.broker.requests.outcomes import encode_notice
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.endpoint_messages import ContractChanged, PublicationChanged
from gridstat.net.command.router_messages import Push

if TYPE_CHECKING:
    from gridstat.broker.context import BrokerContext
    from gridstat.net.command.endpoint_messages import Notice

KEPT_BYTES_MAX: Final = 1_048_576
"""Size of the kept notices of one end-point."""
DOUBTFUL_NS: Final = 10 * NS_PER_S
"""Time before the loss of a session in which sent notices may have been lost with it."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """Notice that may have to be repeated; one about a contract only while the contract lives."""

    sent_ns: int
    subscription_id: int | None
    body: bytes


@dataclass(slots=True)
class _KeptNotices:
    """Last notices of one end-point, bounded in number and in bytes."""

    notices: deque[_Kept] = field(default_factory=deque)
    size_bytes: int = 0

    def add(self, notice: _Kept, *, notices_max: int) -> None:
        self.notices.append(notice)
        self.size_bytes += len(notice.body)
        while len(self.notices) > notices_max or self.size_bytes > KEPT_BYTES_MAX:
            self.size_bytes -= len(self.notices.popleft().body)


class Notices:
    """Sends notices, and keeps the last of each end-point; older ones are dropped."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._kept: dict[str, _KeptNotices] = {}

    def push(self, name: str, notice: Notice) -> None:
        """Send and keep a notice; one about a contract that has no order yet gets the next."""
        endpoint = self._context.registry.endpoints.get(name)
        if endpoint is None:
            return
        if isinstance(notice, ContractChanged | PublicationChanged) and not any(notice.order):
            notice = replace(notice, order=self._context.next_order())
        body = encode_notice(notice)
        kept = self._kept.get(name)
        if kept is None:
            kept = self._kept[name] = _KeptNotices()
        kept.add(
            _Kept(self._context.now_ns, notice.live_subscription_id, body),
            notices_max=self._context.settings.notices_kept_max,
        )
        for edge in endpoint.edges_up():
            self._send(name, edge, body)

    def repeat(self, name: str, edge: str, *, lost_ns: int) -> None:
        """Repeat the notices of an end-point that is back; its sessions broke at `lost_ns`."""
        registry = self._context.registry
        live = registry.subscriptions.keys() | registry.tree.asked_by.get(name, set())
        all_kept = self._kept.get(name)
        for kept in () if all_kept is None else all_kept.notices:
            is_live = kept.subscription_id is None or kept.subscription_id in live
            if is_live and kept.sent_ns >= lost_ns - DOUBTFUL_NS:
                self._send(name, edge, kept.body)

    def forget(self, name: str) -> None:
        """Drop the notices of an end-point that has ended, or is another process now."""
        self._kept.pop(name, None)

    def _send(self, name: str, edge: str, body: bytes) -> None:
        term = self._context.registry.term
        self._context.send_router(edge, Push(term=term, endpoint=name, body=body))
