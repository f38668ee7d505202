"""Events that edge routers had kept, as they come along with an answer or a notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.model.errors import Malformed
from gridstat.net.codec.event import walk_events

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.endpoint.delivery import Row


def kept_events(newest: tuple[bytes, ...], received_ns: int) -> Iterator[tuple[int, Row, bytes]]:
    """Of each event the identifier, the row and the options; what is no event is left out."""
    for raw in newest:
        try:
            views = list(walk_events(raw))
        except Malformed:
            continue
        for view in views:
            row = (
                view.created_ns,
                received_ns,
                view.variable_id,
                view.option_count,
                view.flags,
                view.sequence,
                int.from_bytes(view.payload[:8], "big", signed=True),
            )
            yield view.variable_id, row, bytes(view.payload[8:])
