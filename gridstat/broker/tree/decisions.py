"""From a question to the qualities that are tried for it, and from reservations to a holding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import structs

from gridstat.broker.capacity.charges import check_rate
from gridstat.broker.capacity.negotiation import band_of, replay_band
from gridstat.broker.requests.type_check import check_type
from gridstat.broker.tree.records import Holding, HoldingBody, body_of, holding_with
from gridstat.broker.tree.transactions import levels
from gridstat.model.errors import LayoutError
from gridstat.model.status import ValueType
from gridstat.net.command.stretch_messages import ContractGranted

if TYPE_CHECKING:
    from gridstat.broker.capacity.negotiation import Quality
    from gridstat.broker.tree.desk import TreeDesk
    from gridstat.broker.tree.transactions import Transaction
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.stretch_messages import AskContract

LEVELS_MAX: Final = 5
"""Qualities of a band that are tried, from the desired to the worst."""

_TYPE_DECODER: Final[msgspec.msgpack.Decoder[ValueType]] = msgspec.msgpack.Decoder(ValueType)


def qualities_of(asked: AskContract, variable: StatusVariable) -> list[Quality]:
    """Raises if the variable is of another type, or cannot be had so often, at any quality."""
    if asked.type_encoded:
        check_type(variable, _type_of(asked))
    check_rate(variable)
    band = band_of(asked.qos, variable.period)
    if variable.is_replay:
        band = replay_band(band)
    return levels(band, LEVELS_MAX)


def _type_of(asked: AskContract) -> ValueType:
    """Raises if they are no bytes of ours, or of a kind that only a later release knows."""
    try:
        return _TYPE_DECODER.decode(asked.type_encoded)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise LayoutError(
            f"the type that is expected of {asked.name} cannot be read: {error}",
            hint="is the broker of the subscriber's cloud of a later release than its parents?",
        ) from None


def holding_of(asked: AskContract, done: Transaction) -> Holding:
    """A contract, as it was reserved; its latencies hold from end-point to end-point."""
    assert done.result is not None
    paths, ways = done.result
    body = HoldingBody(
        variable=done.variable,
        granted=done.quality,
        ways=ways,
        paths=tuple(
            structs.replace(path, latency_us=path.latency_us + done.ends_us) for path in paths
        ),
        is_node_disjoint=done.is_node_disjoint,
        degraded=done.lowered(),
        subscriber=asked.subscriber,
        qos=asked.qos,
        asked=asked.generation,
        type_encoded=asked.type_encoded,
        promised=done.owed(),
    )
    return holding_with(done.key, done.children(), body)


def is_of(holding: Holding, asked: AskContract) -> bool:
    """Whether a question is about the contract that is held by that name, or about another."""
    body = body_of(holding)
    return (body.variable.name, body.subscriber) == (asked.name, asked.subscriber)


def granted_word(
    desk: TreeDesk, holding: Holding, troubles: tuple[str, ...], down: tuple[int, ...] = ()
) -> ContractGranted:
    """What the subscriber's cloud hears of a contract that is up, but for these troubles.

    `down` are the indices of the paths that do not work.
    """
    body = desk.state.holdings.body(holding)
    return ContractGranted(
        term=desk.term,
        contract=holding.contract,
        generation=holding.generation,
        owner=desk.settings.name,
        variable=body.variable,
        granted=body.granted,
        paths=body.paths,
        is_node_disjoint=body.is_node_disjoint,
        degraded=(*body.degraded, *troubles),
        asked=body.asked,
        paths_down=down,
    )
