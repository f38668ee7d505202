"""Newest events that an edge adds to an answer or a notice: one of each variable just granted.

The body is forwarded unchanged; only the needed part is decoded, so new fields of a newer broker do
no harm.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from gridstat.model.status import EventFlag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

BYTES_MAX: Final = 512 * 2**10
"""Newest events in one message; a frame must hold them beside the body."""
_FLAGS_OFFSET: Final = 13
"""Offset in the event: created (8), variable (4), option count (1), then the flags."""


class _Variable(msgspec.Struct):
    """Part of a status variable that is decoded."""

    variable_id: int


class _Outcome(msgspec.Struct):
    """Part of any outcome that is decoded."""

    type: str = ""
    variable: _Variable | None = None


class _Outcomes(msgspec.Struct):
    """Part of an answer that is decoded."""

    outcomes: list[_Outcome] = []


class _Notice(msgspec.Struct):
    """Part of any notice that is decoded."""

    type: str = ""
    granted: _Outcome | None = None


_OUTCOMES: Final = msgspec.msgpack.Decoder(_Outcomes)
_NOTICE: Final = msgspec.msgpack.Decoder(_Notice)
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""Errors of the decoder for bytes that are no message: its own, bad UTF-8, deep nesting."""


def newest_for_answer(body: bytes, newest: Callable[[int], bytes | None]) -> tuple[bytes, ...]:
    """Return the newest events of the variables that an answer grants."""
    try:
        outcomes = _OUTCOMES.decode(body).outcomes
    except _UNREADABLE:
        return ()
    return _newest(
        (
            outcome.variable.variable_id
            for outcome in outcomes
            if outcome.type == "GrantedOutcome" and outcome.variable is not None
        ),
        newest,
    )


def newest_for_notice(body: bytes, newest: Callable[[int], bytes | None]) -> tuple[bytes, ...]:
    """Return the newest event of a variable that matches a pattern."""
    try:
        notice = _NOTICE.decode(body)
    except _UNREADABLE:
        return ()
    if notice.type != "Matched" or notice.granted is None or notice.granted.variable is None:
        return ()
    return _newest([notice.granted.variable.variable_id], newest)


def as_cached(event: bytes) -> bytes:
    """Return the event with the flag of cached events set."""
    flags = event[_FLAGS_OFFSET] | int(EventFlag.CACHED)
    return event[:_FLAGS_OFFSET] + bytes((flags,)) + event[_FLAGS_OFFSET + 1 :]


def _newest(
    variable_ids: Iterable[int], newest: Callable[[int], bytes | None]
) -> tuple[bytes, ...]:
    events: list[bytes] = []
    size_bytes = 0
    for variable_id in variable_ids:
        event = newest(variable_id)
        if event is None:
            continue
        size_bytes += len(event)
        if size_bytes > BYTES_MAX:
            break
        events.append(as_cached(event))
    return tuple(events)
