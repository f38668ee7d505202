"""Copies by incoming channel, which an edge adds to the answer to a report of ledgers.

Where the paths of a contract meet, only this router can distinguish them. As in `newest_events.py`
the body is forwarded unchanged, and only the needed part of it is decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from gridstat.net.command.endpoint_messages import EdgeCopies
from gridstat.net.command.session_messages import MANY_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gridstat.core.rows import CopyFacts

_REPORT: Final = b"ReportLedger"
_HEAD_BYTES: Final = 32
"""Leading bytes that contain the type of a command."""


class _Entry(msgspec.Struct):
    """Part of a ledger that is decoded."""

    variable_id: int = 0


class _Report(msgspec.Struct):
    """Part of a report that is decoded."""

    entries: list[_Entry] = []


_DECODER: Final = msgspec.msgpack.Decoder(_Report)
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)


def copies_for_report(
    body: bytes, copies: Callable[[int], CopyFacts | None]
) -> tuple[EdgeCopies, ...]:
    """Return the copies of the variables that a report names; nothing for any other command."""
    if _REPORT not in body[:_HEAD_BYTES]:
        return ()
    try:
        entries = _DECODER.decode(body).entries
    except _UNREADABLE:
        return ()
    return tuple(_found([each.variable_id for each in entries[:MANY_MAX]], copies))


def _found(
    variable_ids: list[int], copies: Callable[[int], CopyFacts | None]
) -> Iterator[EdgeCopies]:
    for variable_id in variable_ids:
        facts = copies(variable_id) if 0 < variable_id < 2**32 else None
        if facts is not None:
            counts = zip(facts["came"], facts["first"], strict=True)
            channel_ids = facts["channel_ids"][: facts["path_count"]]
            yield EdgeCopies(
                variable_id=variable_id,
                every=facts["every"],
                passed=facts["passed"],
                ways=dict(zip(channel_ids, counts, strict=False)),
            )
