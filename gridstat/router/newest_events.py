"""Which newest events an edge adds to an answer or a notice: one of each variable just granted.

The body passes on untouched whatever stands in it; only the little that is needed is read, so a
newer broker's words are no obstacle.
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
"""Of the event: created (8), variable (4), option count (1), then the flags."""


class _Variable(msgspec.Struct):
    """The part of a status variable that is asked for."""

    variable_id: int


class _Outcome(msgspec.Struct):
    """The part of any outcome that is asked for."""

    type: str = ""
    variable: _Variable | None = None


class _Outcomes(msgspec.Struct):
    """The part of an answer that is asked for."""

    outcomes: list[_Outcome] = []


class _Notice(msgspec.Struct):
    """The part of any notice that is asked for."""

    type: str = ""
    granted: _Outcome | None = None


_OUTCOMES: Final = msgspec.msgpack.Decoder(_Outcomes)
_NOTICE: Final = msgspec.msgpack.Decoder(_Notice)
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""What the decoder raises for bytes that are no message: its own, bad UTF-8, deep nesting."""


def newest_for_answer(body: bytes, newest: Callable[[int], bytes | None]) -> tuple[bytes, ...]:
    """The newest events of the variables that an answer grants."""
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
    """The newest event of a variable that a pattern has caught."""
    try:
        notice = _NOTICE.decode(body)
    except _UNREADABLE:
        return ()
    if notice.type != "Matched" or notice.granted is None or notice.granted.variable is None:
        return ()
    return _newest([notice.granted.variable.variable_id], newest)


def as_cached(event: bytes) -> bytes:
    """The event with its flag set that says: not live, but the newest there was."""
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
