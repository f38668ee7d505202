"""Encoding of answers and notices, from contracts, refusals and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from gridstat.broker.capacity.allocation import Refusal
from gridstat.model.identifiers import path_name
from gridstat.net.command.endpoint_messages import (
    GrantedOutcome,
    GrantedPath,
    Notice,
    Outcomes,
    RefusedOutcome,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gridstat.broker.records.operations import Subscribed
    from gridstat.broker.tables.detection import Detection
    from gridstat.model.errors import GridStatError
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import Outcome

ANSWER_BYTES_MAX: Final = 786_432
"""Size of the outcomes of one request; an answer always fits into a frame."""

WORDS_MAX: Final = 100

_ENCODER = msgspec.msgpack.Encoder()


class _EncodedOutcomes(msgspec.Struct, frozen=True, tag="Outcomes"):
    outcomes: tuple[msgspec.Raw, ...]


def encode_outcomes(outcomes: Iterable[Outcome]) -> bytes:
    return _ENCODER.encode(Outcomes(outcomes=tuple(outcomes)))


def join_outcomes(encoded: Iterable[bytes]) -> bytes:
    """Encode an answer from outcomes that `encode_outcome` has encoded."""
    return _ENCODER.encode(_EncodedOutcomes(tuple([msgspec.Raw(one) for one in encoded])))


def encode_notice(notice: Notice) -> bytes:
    return _ENCODER.encode(notice)


def encode_outcome(outcome: Outcome) -> bytes:
    """Encode one of several outcomes; its size is known before the others are decided."""
    return _ENCODER.encode(outcome)


def few_words(words: Sequence[str]) -> tuple[str, ...]:
    """Return the first remarks and the number of the others; an answer must fit into a frame."""
    if len(words) <= WORDS_MAX:
        return tuple(words)
    return (*words[:WORDS_MAX], f"and {len(words) - WORDS_MAX} more")


def refused(error: GridStatError | Refusal) -> RefusedOutcome:
    if isinstance(error, Refusal):
        return RefusedOutcome(
            code=error.code,
            reason=error.reason,
            hint=error.hint,
            bottleneck=error.bottleneck,
            shortfall=error.shortfall,
        )
    return RefusedOutcome(code=error.code, reason=str(error.args[0]), hint=error.hint)


def granted(
    record: Subscribed,
    variable: StatusVariable,
    troubles: tuple[str, ...] = (),
    *,
    detection: Detection,
    down: Iterable[int] | None = None,
    order: tuple[int, int] = (0, 0),
) -> GrantedOutcome:
    """Return a contract as it stands, with the troubles that keep it below its grant.

    `down` are the indices of the paths that do not work; None if that was not examined. An answer
    has an `order`; a notice has its own.
    """
    return GrantedOutcome(
        subscription_id=record.subscription_id,
        variable=variable,
        granted=record.granted,
        paths=tuple(
            [
                GrantedPath(
                    routers=path.routers,
                    channel_ids=path.channel_ids,
                    latency_us=path.latency_us,
                    name=path_name(index),
                    channel_names=path.channel_names,
                )
                for index, path in enumerate(record.paths)
            ]
        ),
        is_node_disjoint=record.is_node_disjoint,
        shares_edge=record.shares_edge,
        degraded=few_words((*record.degraded, *troubles)),
        label=record.label,
        detection_ms=detection.on_paths(record.paths),
        paths_down=None if down is None else tuple(path_name(index) for index in sorted(down)),
        order=order,
    )
