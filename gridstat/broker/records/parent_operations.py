"""Operations of a leaf broker that has a parent: borders, identifiers, contracts across clouds.

A segment itself is a `Subscribed` of `operations.py`, reserved at first. What stands here is the
rest: what the parent has said and has to be known after a start, and what this cloud has asked.
"""

from __future__ import annotations

from typing import TypeAlias

from gridstat.broker.records.operation import Durable
from gridstat.model.qos import ModalQos
from gridstat.net.command.segment_messages import ContractGranted
from gridstat.net.command.tree_messages import BorderChannel


class ParentJoined(Durable, frozen=True, tag="ParentHeard"):
    """The parent's term, which none below is obeyed after; how deep it places this cloud."""

    term: int
    depth: int
    above: tuple[str, ...] = ()
    numbers_used: int = 0


class BorderOpened(Durable, frozen=True):
    """A channel between clouds begins or ends at a router of this cloud, or has changed."""

    border: BorderChannel


class BorderClosed(Durable, frozen=True):
    """A channel between clouds is no more."""

    channel_id: int


class NumbersAllotted(Durable, frozen=True):
    """A block of identifiers of variables is this cloud's for good."""

    first: int
    count: int


class SegmentCommitted(Durable, frozen=True, tag="StretchCommitted"):
    """A reserved segment counts: routers are told of it."""

    subscription_id: int


class ContractAsked(Durable, frozen=True):
    """An end-point wants a variable of another cloud, or another quality of one that it has.

    `place` is that of its outcome in the answer to the request; a pattern's have neither.
    """

    number: int
    subscriber: str
    name: str
    qos: ModalQos
    generation: int = 0
    type_encoded: bytes = b""
    label: str = ""
    pattern_id: int = 0
    request_id: int = 0
    place: int = 0


class ContractHeld(Durable, frozen=True):
    """What the contract's owner has granted, this generation of it; asked for, or its own plan."""

    number: int
    granted: ContractGranted
    is_asked: bool = True


class ContractDeclined(Durable, frozen=True):
    """The owner refuses this generation; one that was granted before stands."""

    number: int
    generation: int


class ContractEnding(Durable, frozen=True):
    """Its subscriber has it no longer; the owner has not confirmed that yet."""

    number: int


class ContractOver(Durable, frozen=True):
    """Nothing is left of a contract across clouds."""

    number: int


class AnswerBegun(Durable, frozen=True):
    """Outcomes of a request so far; the empty ones are still asked for elsewhere."""

    endpoint: str
    request_id: int
    outcomes: tuple[bytes, ...]


class OutcomeKnown(Durable, frozen=True):
    """One more outcome of a request whose answer has begun."""

    endpoint: str
    request_id: int
    place: int
    outcome: bytes


TreeOperation: TypeAlias = (
    ParentJoined
    | BorderOpened
    | BorderClosed
    | NumbersAllotted
    | SegmentCommitted
    | ContractAsked
    | ContractHeld
    | ContractDeclined
    | ContractEnding
    | ContractOver
    | AnswerBegun
    | OutcomeKnown
)
