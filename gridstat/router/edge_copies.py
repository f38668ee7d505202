"""What an edge adds to the answer to a report of ledgers: by which channels the copies came.

Where the paths of a contract meet, only this router can tell them apart. As in `newest_events.py`
the body passes on untouched, and only the little that is needed of it is read.
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
"""Within these the type of a command stands."""


class _Entry(msgspec.Struct):
    """The part of a ledger that is asked for."""

    variable_id: int = 0


class _Report(msgspec.Struct):
    """The part of a report that is asked for."""

    entries: list[_Entry] = []


_DECODER: Final = msgspec.msgpack.Decoder(_Report)
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)


def copies_for_report(
    body: bytes, copies: Callable[[int], CopyFacts | None]
) -> tuple[EdgeCopies, ...]:
    """What is known of the variables for which a report asks; nothing for any other command."""
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
            ways = zip(facts["came"], facts["first"], strict=True)
            channel_ids = facts["channel_ids"][: facts["path_count"]]
            yield EdgeCopies(
                variable_id=variable_id,
                every=facts["every"],
                passed=facts["passed"],
                ways=dict(zip(channel_ids, ways, strict=False)),
            )
