"""Journal operations of a broker above clouds, replayed at its next start.

A *holding* is one generation of a contract, or of a segment for the parent, with all its resources:
the children that hold segments of it, and the channels between them. An unknown field is ignored
and a missing one has its default, as in the journal of a cloud.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from typing import TYPE_CHECKING, Final

import msgspec

from gridstat.broker.records.operation import decoder_of
from gridstat.broker.records.operations import after_mark, read
from gridstat.model.cloud import EventChannel
from gridstat.model.qos import ModalQos, Qos
from gridstat.model.status import StatusVariable
from gridstat.net.command.segment_messages import Payer, SegmentedPath

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gridstat.model.cloud import Way


class Stage(IntEnum):
    """Stage of a holding; it only moves forward.

    RESERVED: the parent has not decided. LEAVING: children are releasing their segments.
    """

    RESERVED = 0
    COMMITTED = 1
    LEAVING = 2


class ScopePath(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One path in this broker's scope: the channels at which it enters and leaves, and between.

    `shares_us` is the latency that each of the channels between may reach.
    """

    entry: int
    exit: int
    channel_ids: tuple[int, ...]
    shares_us: tuple[int, ...]


class Holding(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One generation of a contract or segment; rarely read fields stay encoded in `body`.

    A root holds a million of these. `is_lowered` is True while the contract has less than it was
    promised.
    """

    contract: str
    generation: int
    children: tuple[str, ...]
    channel_ids: tuple[int, ...]
    body: bytes
    is_owned: bool = False
    is_lowered: bool = False

    @property
    def key(self) -> tuple[str, int]:
        return self.contract, self.generation


class HoldingBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """Encoded fields of a holding. `asked` is the generation that the subscriber's cloud requested.

    `type_encoded` is the type that the subscriber expects, empty for any. `promised` is the quality
    granted at first, if a failure has lowered it since. `is_sealed` says that all channels must be
    sealed. `charged_to` are the identities that pay, if not the subscriber of an own contract alone
    with the share that everybody has. `lowered_for` is the contract for which this one was lowered
    within its band, until it is raised again. `every_worst` is the worst divisor of a segment whose
    contract takes part in splits of rates. With `is_paired` the parent has said which entry of a
    segment leads to which exit.
    """

    variable: StatusVariable
    granted: dict[int, Qos]
    scope_paths: tuple[ScopePath, ...] = msgspec.field(name="ways")
    paths: tuple[SegmentedPath, ...]
    is_node_disjoint: bool = True
    degraded: tuple[str, ...] = ()
    subscriber: str = ""
    qos: ModalQos | None = None
    asked: int = 0
    type_encoded: bytes = b""
    promised: dict[int, Qos] | None = None
    is_sealed: bool = False
    charged_to: tuple[Payer, ...] = ()
    lowered_for: str = ""
    every_worst: int = 0
    is_paired: bool = False

    @property
    def pairs(self) -> frozenset[tuple[int, int]]:
        """Channels of each entry and of its exit; empty where this broker has chosen."""
        ways = self.scope_paths if self.is_paired else ()
        return frozenset([(way.entry, way.exit) for way in ways])

    @property
    def payers(self) -> tuple[Payer, ...]:
        """Identities that the channels of this broker are charged to."""
        if self.charged_to or self.qos is None:
            return self.charged_to
        return (Payer(name=self.subscriber),)


class TreeOperation(msgspec.Struct, frozen=True, omit_defaults=True, tag=True, kw_only=True):
    """Operation of a broker above clouds: a MessagePack map with the class name as its `type`."""


class TreeTermBegan(TreeOperation, frozen=True, tag="TermBegan"):
    """A start of the broker; the first operation of each.

    `journal` is the identity that this journal has been given when it was begun.
    """

    term: int
    journal: str = ""


class Placed(TreeOperation, frozen=True):
    """The parent has placed this broker in the tree; messages of a lower parent term are ignored.

    `parent` is the parent's name; journals of earlier releases have it only as the last of `above`.

    `numbered_at` is the prefix of this broker's channel numbers. Journals of earlier releases have
    -1, which stands for the depth, or for the former prefix while anything is held. `prefixes` are
    the prefixes above, empty in such journals.
    """

    term: int
    depth: int
    above: tuple[str, ...]
    numbered_at: int = -1
    prefixes: tuple[int, ...] = ()
    parent: str = ""

    def is_below(self, name: str) -> bool:
        """Return whether this parent has placed the broker, or no parent is known."""
        known = self.parent or (self.above[-1] if self.above else name)
        return known == name


class Unplaced(TreeOperation, frozen=True):
    """No parent has placed this broker, or its parent was removed.

    `numbered_at` is the prefix of its channel numbers, `tree` the root of the last tree that it was
    part of, if any.
    """

    numbered_at: int
    tree: str = ""


class ChildReported(TreeOperation, frozen=True, tag="ChildHeard"):
    """A child has joined, or the clouds below it have changed."""

    name: str
    term: int
    clouds: tuple[str, ...]
    height: int = 0
    prefixes: tuple[int, ...] = ()


class ChildAdded(TreeOperation, frozen=True):
    """A child beyond those of the broker's file."""

    name: str


class ChildRemoved(TreeOperation, frozen=True):
    """A child was removed; the broker's file may still name it."""

    name: str


class TreeChannelAdded(TreeOperation, frozen=True, tag="ChannelAdded"):
    """A channel between clouds beyond those of the broker's file."""

    channel: EventChannel


class TreeChannelRemoved(TreeOperation, frozen=True, tag="ChannelRemoved"):
    """A channel was removed; the broker's file may still name it."""

    channel_id: int


class ChannelsNumbered(TreeOperation, frozen=True):
    """Channels of the broker's file were seen for the first time: their ends and numbers.

    Number 0 removes a channel that is no longer in the file. `index_last` is, in a snapshot, the
    highest index that any channel has had, removed channels included. `named` has the channels with
    a name: their ends, names and numbers.
    """

    numbers: tuple[tuple[str, str, int], ...]
    index_last: int = 0
    named: tuple[tuple[str, str, str, int], ...] = ()

    @classmethod
    def of(cls, numbers: Iterable[tuple[Way, int]], index_last: int = 0) -> ChannelsNumbered:
        found = list(numbers)
        return cls(
            numbers=tuple((way[0], way[1], index) for way, index in found if not way[2]),
            index_last=index_last,
            named=tuple((*way, index) for way, index in found if way[2]),
        )

    @property
    def by_way(self) -> Iterator[tuple[Way, int]]:
        for from_router, to_router, index in self.numbers:
            yield (from_router, to_router, ""), index
        for from_router, to_router, name, index in self.named:
            yield (from_router, to_router, name), index


class IdentifiersKept(TreeOperation, frozen=True, tag="NumbersKept"):
    """A cloud keeps the identifiers up to `count` that it gave out before it had a parent."""

    child: str
    count: int


class BlockGiven(TreeOperation, frozen=True, tag="NumbersGiven"):
    """A block of identifiers was given to a child for its request number `request`.

    `journal` is the journal in which the child numbers its requests.
    """

    child: str
    request: int
    first: int
    count: int
    journal: str = ""


class BlockRequested(TreeOperation, frozen=True, tag="NumbersAsked"):
    """A block was requested from the parent."""

    request: int
    count: int


class BlockLeased(TreeOperation, frozen=True, tag="NumbersHeld"):
    """The parent's reply to a request for a block."""

    request: int
    first: int
    count: int


class HoldingTaken(TreeOperation, frozen=True):
    """A segment was reserved for the parent, or an own contract was decided."""

    holding: Holding
    stage: Stage


class HoldingMoved(TreeOperation, frozen=True):
    """A holding was committed by the parent, or is to be released."""

    contract: str
    generation: int
    stage: Stage


class HoldingGone(TreeOperation, frozen=True):
    """All children have released their segments of a holding."""

    contract: str
    generation: int


_USUAL: Final = (
    b"variable_id name value_type float64 period seconds per_seconds granted every latency_us "
    b"redundancy priority ways paths entry exit pieces owner routers channel_ids is_node_disjoint "
    b"degraded subscriber qos modes asked PiecedPath Piece type"
)
"""Compression dictionary with strings of nearly every body; part of the format: never changes."""

_ENCODER: Final = msgspec.msgpack.Encoder()
_BODY_DECODER: Final = msgspec.msgpack.Decoder(HoldingBody)


def encode(operation: TreeOperation) -> bytes:
    return _ENCODER.encode(operation)


def operations_of(
    written: Sequence[bytes], types: tuple[type[TreeOperation], ...]
) -> list[TreeOperation]:
    """Return the operations of a part of the journal, each of one of these types."""
    decoder = decoder_of(types)
    return [read(decoder, data) for data in after_mark(written)]


def holding_with(key: tuple[str, int], children: Iterable[str], body: HoldingBody) -> Holding:
    packed = zlib.compressobj(1, zdict=_USUAL)
    return Holding(
        contract=key[0],
        generation=key[1],
        children=tuple(children),
        channel_ids=tuple(number for path in body.scope_paths for number in path.channel_ids),
        body=packed.compress(_ENCODER.encode(body)) + packed.flush(),
        is_owned=body.qos is not None,
        is_lowered=body.promised is not None,
    )


def body_of(holding: Holding) -> HoldingBody:
    unpacked = zlib.decompressobj(zdict=_USUAL)
    return read(_BODY_DECODER, unpacked.decompress(holding.body) + unpacked.flush())
