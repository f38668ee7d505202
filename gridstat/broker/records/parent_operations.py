"""Operations of a leaf broker that has a parent: borders, identifiers, contracts across clouds.

A segment itself is a `Subscribed` of `operations.py`, first reserved, then committed. This module
holds the rest: decisions of the parent that a restarted broker needs, and requests of this cloud.
"""

from __future__ import annotations

from gridstat.broker.records.operation import Durable
from gridstat.model.qos import ModalQos
from gridstat.net.command.segment_messages import ContractGranted
from gridstat.net.command.tree_messages import BorderChannel


class ParentJoined(Durable, frozen=True, tag="ParentHeard"):
    """Term of the parent, the depth of this cloud, and the brokers above it.

    Messages of lower terms are refused from then on.
    """

    term: int
    depth: int
    above: tuple[str, ...] = ()
    numbers_used: int = 0


class BorderOpened(Durable, frozen=True):
    """A channel between clouds was opened at a router of this cloud, or has changed."""

    border: BorderChannel


class BorderClosed(Durable, frozen=True):
    """A channel between clouds was closed."""

    channel_id: int


class NumbersAllotted(Durable, frozen=True):
    """The parent leased a block of variable identifiers to this cloud, for good."""

    first: int
    count: int


class SegmentCommitted(Durable, frozen=True, tag="StretchCommitted"):
    """The parent committed a reserved segment; its paths go to the routers."""

    subscription_id: int


class ContractAsked(Durable, frozen=True):
    """Request of an end-point for a variable of another cloud, or for another quality of a
    contract.

    `place` is the index of its outcome in the answer; a pattern's request has no request number and
    no index.
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
    """Grant of the contract's owner: the answer to a request, or a new plan of the owner."""

    number: int
    granted: ContractGranted
    is_asked: bool = True


class ContractDeclined(Durable, frozen=True):
    """The owner refused this generation; an earlier grant stands."""

    number: int
    generation: int


class ContractEnding(Durable, frozen=True):
    """The subscriber ended the contract; the owner has not confirmed the end yet."""

    number: int


class ContractOver(Durable, frozen=True):
    """A contract across clouds has ended completely."""

    number: int


class AnswerBegun(Durable, frozen=True):
    """Outcomes of a request so far; empty ones are still requested from other clouds."""

    endpoint: str
    request_id: int
    outcomes: tuple[bytes, ...]


class OutcomeKnown(Durable, frozen=True):
    """One more outcome of a request whose answer has begun."""

    endpoint: str
    request_id: int
    place: int
    outcome: bytes
