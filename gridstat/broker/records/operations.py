"""What a leaf broker makes durable: the operations of its journal, replayed at its next start.

Each is the outcome of a decision, never the request for one, so a replay decides nothing anew. An
unknown field is ignored and a missing one has its default, so a release reads all journals before
it. A new operation goes with a new schema of `journal_rows.py`, so that older ones say why not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import msgspec

from gridstat.broker.capacity.allocation import AllocatedPath, Gates
from gridstat.broker.records.operation import Durable
from gridstat.broker.records.parent_operations import TreeOperation
from gridstat.model.cloud import EventChannel, Router
from gridstat.model.errors import StorageFailed
from gridstat.model.flooding import NO_GENERATION, FloodTerm
from gridstat.model.qos import ModalQos, Qos
from gridstat.model.status import StatusVariable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class TermBegan(Durable, frozen=True):
    """A start of the broker; the first operation of each.

    `journal` is the identity that this journal has been given when it was begun.
    """

    term: int
    journal: str = ""


class NumbersReached(Durable, frozen=True):
    """The highest identifiers ever given out; none of them is given again."""

    variable_id: int = 0
    subscription_id: int = 0
    channel_id: int = 0


class RouterAdded(Durable, frozen=True):
    """A router beyond those of the broker's file."""

    router: Router


class RouterRemoved(Durable, frozen=True):
    """A router that the broker's file may still name is not of this cloud any more."""

    name: str


class ChannelAdded(Durable, frozen=True):
    """An event channel beyond those of the broker's file."""

    channel: EventChannel


class ChannelRemoved(Durable, frozen=True):
    """An event channel that the broker's file may still name is gone."""

    channel_id: int


class RouterReported(Durable, frozen=True):
    """Where a router listens and which process it is; wanted tables are made from it."""

    name: str
    instance: str
    host: str
    data_port: int
    urgent_port: int
    command_host: str = ""
    command_port: int = 0
    datagram_versions: tuple[int, ...] = (1,)
    counts_data_as_life: bool = False


class Attached(Durable, frozen=True):
    """An end-point is attached to an edge, for the first time or anew.

    Requests up to `floor` that are not answered after it are replays. `known_since` is the request
    by which this process became known; whatever it has, it has registered after that.
    """

    endpoint: str
    edge: str
    edge_instance: str
    incarnation: str
    public_key: bytes
    not_after_s: int
    up_channel_id: int
    down_channel_id: int
    is_restarted: bool = False
    host: str = ""
    data_port: int = 0
    urgent_port: int = 0
    datagram_versions: tuple[int, ...] = (1,)
    floor: int = 0
    known_since: int = 0


class AttachmentEnded(Durable, frozen=True):
    """An end-point has left one edge."""

    endpoint: str
    edge: str


class EndPointEnded(Durable, frozen=True):
    """An end-point is gone; whatever it had has ended before. Older requests are replays."""

    endpoint: str
    floor: int = 0


class Published(Durable, frozen=True):
    """A variable is registered, or wakes again under the identifier that it had."""

    publisher: str
    variable: StatusVariable
    is_dormant: bool = False


class Withdrawn(Durable, frozen=True):
    """A variable is no longer published; its subscriptions have ended before."""

    name: str


class Subscribed(Durable, frozen=True):
    """A contract, as it was granted; with a `contract`, this cloud's segment of one across clouds.

    A segment enters and leaves by gates, where its ends are not here; a reserved one is not on the
    routers yet. `foreign` is the variable, if it comes from another cloud.
    """

    subscription_id: int
    subscriber: str
    name: str
    variable_id: int
    qos: ModalQos
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    granted: dict[int, Qos]
    paths: tuple[AllocatedPath, ...]
    is_node_disjoint: bool = True
    shares_edge: bool = False
    degraded: tuple[str, ...] = ()
    generation: int = 0
    pattern_id: int = 0
    label: str = ""
    contract: str = ""
    segment_generation: int = msgspec.field(default=0, name="stretch_generation")
    entries: Gates = ()
    exits: Gates = ()
    is_reserved: bool = False
    foreign: StatusVariable | None = None


class Moved(Durable, frozen=True):
    """A live contract has another quality, other paths, or another identifier of its variable.

    What it had before is carried on until `Retired`, if it says so; after a change of the
    publication until that is over. Journals of schema 1 hold no `Retired`: what a move replaced is
    torn down with it in a replay.
    """

    subscription: Subscribed
    with_publication: bool = False
    until_retired: bool = False


class Retired(Durable, frozen=True):
    """What this generation of a contract, and those before it, have replaced is torn down."""

    subscription_id: int
    generation: int


class PublicationMoved(Durable, frozen=True):
    """A variable gets a new identifier and period; its subscriptions are moved right after.

    The old identifier is carried on until `PublicationRetired`.
    """

    variable: StatusVariable


class PublicationAnnounced(Durable, frozen=True):
    """Publisher and subscribers are told from when on the new identifier holds."""

    name: str
    from_ns: int


class PublicationRetired(Durable, frozen=True):
    """The old identifier of a variable is no longer carried."""

    name: str


class Unsubscribed(Durable, frozen=True):
    """A contract, or a pattern, has ended."""

    subscription_id: int


class PatternHeld(Durable, frozen=True):
    """A subscription to every variable, now and later, that a pattern stands for."""

    pattern_id: int
    subscriber: str
    pattern: str
    qos: ModalQos
    type_encoded: bytes = b""
    label: str = ""


class MatchingLeft(Durable, frozen=True, tag="CatchingLeft"):
    """A pattern has not had all variables yet, or a name (of pattern 0) not all patterns."""

    pattern_id: int
    name: str = ""
    is_over: bool = False


class FloodingSet(Durable, frozen=True):
    """How a variable floods this cloud from now on, all of it; with nothing, it does not.

    `own` is what operators of this cloud asked, `above` what the parent has committed and
    `reserved` what it may yet commit; `generation` and `reserved_generation` are the parent's.
    """

    variable: StatusVariable
    own: dict[int, FloodTerm] = msgspec.field(default_factory=dict)
    above: dict[int, FloodTerm] = msgspec.field(default_factory=dict)
    generation: int = 0
    reserved: dict[int, FloodTerm] = msgspec.field(default_factory=dict)
    reserved_generation: int = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing is left of it but what was once heard."""
        return not (self.own or self.above or self.reserved)

    @property
    def modes(self) -> set[int]:
        """The modes in which anybody has asked for it."""
        return {*self.own, *self.above, *self.reserved}

    def is_within(self, other: FloodingSet) -> bool:
        """Whether each who asks for something has asked it in the other already."""
        return self.variable == other.variable and all(
            mine.items() <= known.items()
            for mine, known in (
                (self.own, other.own),
                (self.above, other.above),
                (self.reserved, other.reserved),
            )
        )

    def released(self) -> FloodingSet:
        """The same without what the parent has only reserved."""
        return msgspec.structs.replace(self, reserved={}, reserved_generation=0)

    def has_committed(self, generation: int, terms: Mapping[int, FloodTerm]) -> bool:
        """Whether this is what the parent has committed: a number alone may be another's."""
        return self.generation == generation and self.above == terms

    def has_reserved(self, generation: int, terms: Mapping[int, FloodTerm]) -> bool:
        """Whether room is held for this word of the parent, or for more."""
        return (
            self.reserved_generation == generation != NO_GENERATION
            and terms.items() <= self.reserved.items()
        )


class FloodListenerSet(Durable, frozen=True, tag="FloodedHeard"):
    """An end-point hears all that floods, by these channels from its edges; without any, no more.

    Another process of it has other ports.
    """

    endpoint: str
    incarnation: str
    data_port: int
    urgent_port: int
    channels: dict[str, int] = msgspec.field(default_factory=dict)


class Answered(Durable, frozen=True):
    """What an end-point was answered; a repeated request is answered likewise."""

    endpoint: str
    request_id: int
    body: bytes


Operation: TypeAlias = (
    TermBegan
    | NumbersReached
    | RouterAdded
    | RouterRemoved
    | ChannelAdded
    | ChannelRemoved
    | RouterReported
    | Attached
    | AttachmentEnded
    | EndPointEnded
    | Published
    | Withdrawn
    | Subscribed
    | Moved
    | Retired
    | PublicationMoved
    | PublicationAnnounced
    | PublicationRetired
    | Unsubscribed
    | PatternHeld
    | MatchingLeft
    | FloodingSet
    | FloodListenerSet
    | Answered
    | TreeOperation
)

SNAPSHOT_MARK: Final = b"gridstat snapshot 1"
"""Stands before operations that replace everything that was written until then."""

OperationT = TypeVar("OperationT")

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Operation] = msgspec.msgpack.Decoder(Operation)


def encode(operation: Operation) -> bytes:
    return _ENCODER.encode(operation)


def since_snapshot(written: Sequence[bytes]) -> list[Operation]:
    """The operations that count: those after the last mark, or all of them."""
    return [decode(data) for data in after_mark(written)]


def after_mark(written: Sequence[bytes]) -> Sequence[bytes]:
    for at in range(len(written) - 1, -1, -1):
        if written[at] == SNAPSHOT_MARK:
            return written[at + 1 :]
    return written


def decode(data: bytes) -> Operation:
    return read(_DECODER, data)


def read(decoder: msgspec.msgpack.Decoder[OperationT], data: bytes) -> OperationT:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise StorageFailed(
            f"the journal holds an operation that cannot be read: {error}",
            hint="it may have been written by a newer release",
        ) from error
