"""Whether what an owner has granted is what was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from gridstat.broker.capacity.negotiation import band_of
from gridstat.broker.requests.type_check import encode_type
from gridstat.model.errors import (
    GridStatError,
    IntervalNotSatisfiable,
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


def is_known(held: ContractGranted | None, word: ContractGranted) -> bool:
    """Whether nothing is new in it: an owner says it again when other clouds lead it elsewhere."""
    if held is None or word.generation > held.generation:
        return False
    return word.generation < held.generation or structs.replace(word, term=held.term) == held


def fits(asked: ContractAsked, word: ContractGranted) -> bool:
    """Whether what is granted lies between what was desired and the worst acceptable.

    An owner that plans anew while a change is on its way to it grants the old quality once more.
    """
    try:
        band = band_of(asked.qos, word.variable.period)
    except IntervalNotSatisfiable:
        return False
    return band.desired.keys() == word.granted.keys() and all(
        band.worst[mode].redundancy <= qos.redundancy <= band.desired[mode].redundancy
        and qos.every <= band.worst[mode].every
        for mode, qos in word.granted.items()
    )
