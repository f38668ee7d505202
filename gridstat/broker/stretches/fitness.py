"""Whether what an owner has granted is what was asked for."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import structs

from gridstat.broker.capacity.negotiation import band_of, replay_band
from gridstat.broker.requests.type_check import encode_type
from gridstat.model.errors import (
    GridStatError,
    IntervalNotSatisfiable,
    LayoutError,
    NoSuchVariable,
    TypeMismatch,
)

if TYPE_CHECKING:
    from gridstat.broker.records.tree_operations import ContractAsked
    from gridstat.net.command.stretch_messages import ContractGranted


def mismatch_of(asked: ContractAsked, word: ContractGranted) -> GridStatError | None:
    """What is wrong with the variable, or with its type, if its subscriber expects one."""
    if word.variable.name != asked.name:
        return NoSuchVariable(f"{word.variable.name} was granted where {asked.name} was asked for")
    if not asked.type_encoded or asked.type_encoded == encode_type(word.variable.value_type):
        return None
    return TypeMismatch(f"{asked.name} is of another type than asked for")


def break_of(word: ContractGranted) -> LayoutError | None:
    """Where one of its paths is none: channels lead from router to router, and pieces meet."""
    for path in word.paths:
        if any(len(piece.channel_ids) != len(piece.routers) - 1 for piece in path.pieces):
            return LayoutError(f"{word.contract} was granted over routers without channels between")
        for piece, after in pairwise(path.pieces):
            if piece.routers[-1] != after.routers[0]:
                ends = f"{piece.routers[-1]} and {after.routers[0]}"
                return LayoutError(f"{word.contract} was granted with a gap between {ends}")
    return None


def is_known(held: ContractGranted | None, word: ContractGranted) -> bool:
    """Whether nothing is new in it: an owner says it again when other clouds lead it elsewhere."""
    if held is None or word.generation > held.generation:
        return False
    return word.generation < held.generation or structs.replace(word, term=held.term) == held


def answers(asked: ContractAsked, word: ContractGranted) -> bool:
    """Whether an owner that grants this has heard of what was asked.

    One that plans anew while a change is on its way to it grants the old quality once more, under
    the very generation that the change has, perhaps.
    """
    return word.answered >= asked.generation and fits(asked, word)


def fits(asked: ContractAsked, word: ContractGranted) -> bool:
    """Whether what is granted lies between what was desired and the worst acceptable.

    All modes are granted as many paths as the one that desires most (ADR-0020).
    """
    try:
        band = band_of(asked.qos, word.variable.period)
    except IntervalNotSatisfiable:
        return False
    if word.variable.is_replay:
        band = replay_band(band)
    most = max(qos.redundancy for qos in band.desired.values())
    return band.desired.keys() == word.granted.keys() and all(
        band.worst[mode].redundancy <= qos.redundancy <= most
        and qos.every <= band.worst[mode].every
        and qos.latency_us <= band.worst[mode].latency_us
        and qos.priority == band.desired[mode].priority
        for mode, qos in word.granted.items()
    )
