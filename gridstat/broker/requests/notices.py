"""Notices to end-points, by way of every edge where they are at the moment.

A notice may come twice, once by each edge, and means the same then. What was said while nobody
was there, or shortly before a session broke, is said again when the end-point is back.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, assert_never

from msgspec.structs import replace

from gridstat.broker.requests.outcomes import encode_notice
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.endpoint_messages import (
    ContractChanged,
    EventsPoliced,
    Matched,
    ModesChanged,
    PublicationChanged,
    Unpublished,
)
from gridstat.net.command.router_messages import Push

if TYPE_CHECKING:
    from gridstat.broker.context import BrokerContext
    from gridstat.net.command.endpoint_messages import Notice

KEPT_BYTES_MAX: Final = 1_048_576
"""Of the notices of one end-point."""
DOUBTFUL_NS: Final = 10 * NS_PER_S
"""What was sent so long before a loss may have been lost with it."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A notice that may have to be said again; about a contract only while that lives."""

    sent_ns: int
    subscription_id: int | None
    body: bytes


@dataclass(slots=True)
class _Shelf:
    """The last notices of one end-point, bounded in number and in bytes."""

    notices: deque[_Kept] = field(default_factory=deque)
    size_bytes: int = 0

    def add(self, notice: _Kept, *, notices_max: int) -> None:
        self.notices.append(notice)
        self.size_bytes += len(notice.body)
        while len(self.notices) > notices_max or self.size_bytes > KEPT_BYTES_MAX:
            self.size_bytes -= len(self.notices.popleft().body)


class Notices:
    """Keeps the last few notices of each end-point; an older one makes room and is lost."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._kept: dict[str, _Shelf] = {}
        self._number = 0

    def push(self, name: str, notice: Notice) -> None:
        endpoint = self._context.registry.endpoints.get(name)
        if endpoint is None:
            return
        if isinstance(notice, ContractChanged):
            self._number += 1
            notice = replace(notice, order=(self._context.registry.term, self._number))
        body = encode_notice(notice)
        kept = self._kept.get(name)
        if kept is None:
            kept = self._kept[name] = _Shelf()
        kept.add(
            _Kept(self._context.now_ns, _contract_of(notice), body),
            notices_max=self._context.settings.notices_kept_max,
        )
        for edge in endpoint.edges_up():
            self._send(name, edge, body)

    def repeat(self, name: str, edge: str, *, lost_ns: int) -> None:
        """The end-point is back at this edge; its sessions had been lost at `lost_ns`."""
        registry = self._context.registry
        live = registry.subscriptions.keys() | registry.tree.asked_by.get(name, set())
        shelf = self._kept.get(name)
        for kept in () if shelf is None else shelf.notices:
            is_live = kept.subscription_id is None or kept.subscription_id in live
            if is_live and kept.sent_ns >= lost_ns - DOUBTFUL_NS:
                self._send(name, edge, kept.body)

    def forget(self, name: str) -> None:
        """The end-point is gone, or another process that remembers none of it."""
        self._kept.pop(name, None)

    def _send(self, name: str, edge: str, body: bytes) -> None:
        term = self._context.registry.term
        self._context.send_router(edge, Push(term=term, endpoint=name, body=body))


def _contract_of(notice: Notice) -> int | None:
    match notice:
        case Matched() | ContractChanged():
            return notice.granted.subscription_id
        case PublicationChanged():
            return notice.subscription_id
        case Unpublished() | ModesChanged() | EventsPoliced():
            return None
        case _:
            assert_never(notice)
