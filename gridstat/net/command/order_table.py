"""Table of a router as orders: what its broker wants the router to hold, or what it holds.

Broker and router keep one each. The digest is the exclusive-or of the hashes of all orders: it is
updated with each change, does not depend on the order of changes, and shows in eight bytes whether
the router holds exactly what the broker wants.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, TypeVar

import msgspec

from gridstat.net.command.router_messages import (
    ChangeTable,
    ChannelOrder,
    PathOrder,
    SourceOrder,
    VariableOrder,
)
from gridstat.net.command.session_messages import MANY_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

Order = TypeVar("Order", ChannelOrder, SourceOrder, VariableOrder, PathOrder)


class OrderTable:
    """Orders by their identifiers; `digest` is always that of the orders held."""

    def __init__(self) -> None:
        self.channels: dict[int, ChannelOrder] = {}
        self.sources: dict[int, SourceOrder] = {}
        self.variables: dict[int, VariableOrder] = {}
        self.paths: dict[int, PathOrder] = {}
        self.digest = 0

    def __len__(self) -> int:
        return len(self.channels) + len(self.sources) + len(self.variables) + len(self.paths)

    def apply(self, change: ChangeTable) -> None:
        """Apply a change; `begins_anew` clears the table first."""
        if change.begins_anew:
            self.clear()
        for path_id in change.torn_down:
            self.remove(self.paths, path_id)
        for variable_id in change.dropped:
            self.remove(self.variables, variable_id)
        for channel_id in change.closed_channels:
            self.remove(self.channels, channel_id)
        for channel_id in change.closed_sources:
            self.remove(self.sources, channel_id)
        for channel in change.channels:
            self.put(self.channels, channel.channel_id, channel)
        for source in change.sources:
            self.put(self.sources, source.channel_id, source)
        for variable in change.variables:
            self.put(self.variables, variable.variable_id, variable)
        for path in change.paths:
            self.put(self.paths, path.path_id, path)

    def clear(self) -> None:
        self.channels.clear()
        self.sources.clear()
        self.variables.clear()
        self.paths.clear()
        self.digest = 0

    def whole(self, *, term: int, number: int) -> Iterator[ChangeTable]:
        """Yield the table as bounded changes that build it from nothing, numbered from `number`
        on."""
        pieces = [
            *(ChangeTable(term=term, number=0, channels=some) for some in _slices(self.channels)),
            *(ChangeTable(term=term, number=0, sources=some) for some in _slices(self.sources)),
            *(ChangeTable(term=term, number=0, variables=some) for some in _slices(self.variables)),
            *(ChangeTable(term=term, number=0, paths=some) for some in _slices(self.paths)),
        ] or [ChangeTable(term=term, number=0)]
        for index, piece in enumerate(pieces):
            yield msgspec.structs.replace(
                piece,
                number=number + index,
                begins_anew=index == 0,
                is_last=index == len(pieces) - 1,
            )

    def put(self, held: dict[int, Order], key: int, order: Order) -> None:
        before = held.get(key)
        if before is not None:
            self.digest ^= order_hash(before)
        held[key] = order
        self.digest ^= order_hash(order)

    def remove(self, held: dict[int, Order], key: int) -> None:
        before = held.pop(key, None)
        if before is not None:
            self.digest ^= order_hash(before)


def order_hash(order: ChannelOrder | SourceOrder | VariableOrder | PathOrder) -> int:
    """Return a 64-bit hash of the encoded order, which includes its class name."""
    return int.from_bytes(blake2b(_ENCODER.encode(order), digest_size=8).digest(), "big")


_ENCODER = msgspec.msgpack.Encoder(order="sorted")


def _slices(held: dict[int, Order]) -> Iterator[tuple[Order, ...]]:
    """Yield the orders by ascending key, at most `MANY_MAX` at a time."""
    keys = sorted(held)
    for at in range(0, len(keys), MANY_MAX):
        yield tuple(held[key] for key in keys[at : at + MANY_MAX])
