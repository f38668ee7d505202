"""What a broker above clouds makes durable, replayed at its next start.

A *holding* is one generation of a contract, or of a segment for the parent, with everything that it
takes: children that hold parts of it, and channels between them. An unknown field is ignored and a
missing one has its default, as in the journal of a cloud.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from gridstat.broker.records.operations import after_mark, read
from gridstat.broker.tree.flooding_operations import FloodingHeld
from gridstat.model.cloud import EventChannel
from gridstat.model.qos import ModalQos, Qos
from gridstat.model.status import StatusVariable
from gridstat.net.command.segment_messages import SegmentedPath

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Stage(IntEnum):
    """Reserved: the parent has not decided. Leaving: children are being asked to give it back."""

    RESERVED = 0
    COMMITTED = 1
    LEAVING = 2


class ScopePath(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One path in this broker's scope: the channels by which it comes and goes, and between.

    `shares_us` is what each of the channels between may come to take of the path's latency.
    """

    entry: int
    exit: int
    channel_ids: tuple[int, ...]
    shares_us: tuple[int, ...]


class Holding(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A million of these fit into a root, so what is seldom looked at stays encoded in `body`.

    `is_lowered` of one that has been promised more than it has, and is to get it back.
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
    """The rest of a holding. `asked` is the generation that the subscriber's cloud asked for.

    `type_encoded` is the type that the subscriber expects, empty for any. `promised` is what was
    granted when it was asked, where a failure has left less of it.
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


class _Operation(msgspec.Struct, frozen=True, omit_defaults=True, tag=True, kw_only=True):
    """A MessagePack map with the class name as its `type`."""


class TermBegan(_Operation, frozen=True):
    """A start of the broker; the first operation of each.

    `journal` is the identity that this journal has been given when it was begun.
    """

    term: int
    journal: str = ""


class Placed(_Operation, frozen=True):
    """The parent has said where this broker stands; no lower term of it is obeyed any more.

    `parent` is its name; in journals of earlier releases only the last of those above is it.

    `numbered_at` is the prefix of the numbers of its channels; in journals of earlier releases -1,
    which stands for the depth, or for the prefix from before while anything is held. `prefixes` are
    those above, none in such journals.
    """

    term: int
    depth: int
    above: tuple[str, ...]
    numbered_at: int = -1
    prefixes: tuple[int, ...] = ()
    parent: str = ""

    def is_below(self, name: str) -> bool:
        """Whether it was this parent who has said so, or nobody knows better."""
        known = self.parent or (self.above[-1] if self.above else name)
        return known == name


class Unplaced(_Operation, frozen=True):
    """No parent has said where this broker stands, or none counts any more.

    `numbered_at` is the prefix of the numbers of its channels, `tree` the root that it stood below
    last, if it ever did.
    """

    numbered_at: int
    tree: str = ""


class ChildReported(_Operation, frozen=True, tag="ChildHeard"):
    """A child has joined, or its clouds are others."""

    name: str
    term: int
    clouds: tuple[str, ...]
    height: int = 0
    prefixes: tuple[int, ...] = ()


class ChildAdded(_Operation, frozen=True):
    """A child beyond those of the broker's file."""

    name: str


class ChildRemoved(_Operation, frozen=True):
    """A child that the broker's file may still name is none any more."""

    name: str


class ChannelAdded(_Operation, frozen=True):
    """A channel between clouds beyond those of the broker's file."""

    channel: EventChannel


class ChannelRemoved(_Operation, frozen=True):
    """A channel that the broker's file may still name is gone."""

    channel_id: int


class ChannelsNumbered(_Operation, frozen=True):
    """Channels of the broker's file are seen for the first time: their ends, and their numbers.

    With the number 0 one is forgotten that the file names no more. `index_last` is, in a snapshot,
    the highest that any channel has had, also one that is gone.
    """

    numbers: tuple[tuple[str, str, int], ...]
    index_last: int = 0


class NumbersKept(_Operation, frozen=True):
    """A cloud that was alone before has given out the identifiers up to here."""

    child: str
    count: int


class NumbersGiven(_Operation, frozen=True):
    """A block of identifiers is a child's; `request` is the child's number for its question.

    `journal` is that of the child, which counts its questions.
    """

    child: str
    request: int
    first: int
    count: int
    journal: str = ""


class NumbersAsked(_Operation, frozen=True):
    """A block is being asked of the parent."""

    request: int
    count: int


class NumbersHeld(_Operation, frozen=True):
    """The parent's answer."""

    request: int
    first: int
    count: int


class HoldingTaken(_Operation, frozen=True):
    """Reserved for the parent; or, of a contract of its own, decided."""

    holding: Holding
    stage: Stage


class HoldingMoved(_Operation, frozen=True):
    """Committed by the parent, or to be given back."""

    contract: str
    generation: int
    stage: Stage


class HoldingGone(_Operation, frozen=True):
    """No child holds any of it any more."""

    contract: str
    generation: int


TreeOperation: TypeAlias = (
    TermBegan
    | Placed
    | Unplaced
    | ChildReported
    | ChildAdded
    | ChildRemoved
    | ChannelAdded
    | ChannelRemoved
    | ChannelsNumbered
    | NumbersKept
    | NumbersGiven
    | NumbersAsked
    | NumbersHeld
    | HoldingTaken
    | HoldingMoved
    | HoldingGone
    | FloodingHeld
)

_USUAL: Final = (
    b"variable_id name value_type float64 period seconds per_seconds granted every latency_us "
    b"redundancy priority ways paths entry exit pieces owner routers channel_ids is_node_disjoint "
    b"degraded subscriber qos modes asked PiecedPath Piece type"
)
"""What nearly every body holds; part of the format, so it never changes."""

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[TreeOperation]] = msgspec.msgpack.Decoder(TreeOperation)
_BODY_DECODER: Final = msgspec.msgpack.Decoder(HoldingBody)


def encode(operation: TreeOperation) -> bytes:
    return _ENCODER.encode(operation)


def operations_of(written: Sequence[bytes]) -> list[TreeOperation]:
    return [read(_DECODER, data) for data in after_mark(written)]


def holding_with(key: tuple[str, int], children: Iterable[str], body: HoldingBody) -> Holding:
    packed = zlib.compressobj(1, zdict=_USUAL)
    return Holding(
        contract=key[0],
        generation=key[1],
        children=tuple(children),
        channel_ids=tuple(number for way in body.scope_paths for number in way.channel_ids),
        body=packed.compress(_ENCODER.encode(body)) + packed.flush(),
        is_owned=body.qos is not None,
        is_lowered=body.promised is not None,
    )


def body_of(holding: Holding) -> HoldingBody:
    unpacked = zlib.decompressobj(zdict=_USUAL)
    return read(_BODY_DECODER, unpacked.decompress(holding.body) + unpacked.flush())
