"""Operations of a leaf broker's journal, replayed at its next start.

Each operation is the result of a decision, never the request for one, so a replay decides nothing
again. An unknown field is ignored and a missing one has its default, so a release reads the
journals of all earlier releases. A new operation needs a new schema in `journal_rows.py`, so that
older releases refuse the journal with a reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import msgspec

from gridstat.broker.capacity.allocation import AllocatedPath, Gates
from gridstat.broker.records.operation import Durable
from gridstat.model.channel_security import NONE, Security
from gridstat.model.cloud import EventChannel, Router
from gridstat.model.errors import StorageFailed
from gridstat.model.qos import ModalQos, Qos
from gridstat.model.status import StatusVariable

if TYPE_CHECKING:
    from collections.abc import Sequence


class TermBegan(Durable, frozen=True):
    """First operation of each start of the broker.

    `journal` is the identity that the journal was given at its creation. The terms from `lost_from`
    up to but not including `lost_to` were those of a journal that is lost.
    """

    term: int
    journal: str = ""
    lost_from: int = 0
    lost_to: int = 0


class NumbersReached(Durable, frozen=True):
    """Highest identifiers ever assigned; none of them is assigned again.

    `variable_id_first` is the lowest that the cloud counts from, if that is not 1.
    """

    variable_id: int = 0
    subscription_id: int = 0
    channel_id: int = 0
    variable_id_first: int = 0


class RouterAdded(Durable, frozen=True):
    """A router was added that is not in the broker's file."""

    router: Router


class RouterRemoved(Durable, frozen=True):
    """A router was removed; the broker's file may still name it."""

    name: str


class ChannelAdded(Durable, frozen=True):
    """A channel was added that is not in the broker's file."""

    channel: EventChannel


class ChannelRemoved(Durable, frozen=True):
    """A channel was removed; the broker's file may still name it."""

    channel_id: int


class RouterReported(Durable, frozen=True):
    """Addresses and process of a router; the orders of neighbouring routers depend on them."""

    name: str
    instance: str
    host: str
    data_port: int
    urgent_port: int
    command_host: str = ""
    command_port: int = 0
    datagram_versions: tuple[int, ...] = (1,)
    counts_data_as_life: bool = False
    takes_probe_interval: bool = False
    endpoint_security: Security = NONE
    takes_delay: bool = False


class Attached(Durable, frozen=True):
    """An end-point attached to an edge, for the first time or again.

    Unanswered requests up to `floor` are replays. `known_since` is the request by which this
    process was registered; all of its registrations are later.
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
    security: Security = NONE


class AttachmentEnded(Durable, frozen=True):
    """An end-point's attachment to one edge has ended."""

    endpoint: str
    edge: str


class EndPointEnded(Durable, frozen=True):
    """An end-point has ended, after all that it had. Requests up to `floor` are replays."""

    endpoint: str
    floor: int = 0


class Published(Durable, frozen=True):
    """A variable was registered, or a dormant one was published again under its old identifier."""

    publisher: str
    variable: StatusVariable
    is_dormant: bool = False
    request_id: int = 0
    """Request that is decided in slices; its repeat after a restart finds this one done."""


class Withdrawn(Durable, frozen=True):
    """A variable was withdrawn, after the end of its subscriptions."""

    name: str


class Subscribed(Durable, frozen=True):
    """A granted contract; with `contract` set, this cloud's segment of a contract across clouds.

    A segment enters and leaves by gates, unless the contract's end is in this cloud; a reserved
    segment is not on the routers yet. `foreign` is the variable, if it comes from another cloud.
    `reader` is the end-point of another cloud that a segment is for, as far as it was told.
    `charged_to` are the identities whose shares it uses; empty: the subscriber's alone.
    `lowered_for` is the contract for which the broker last lowered its rate, until it is raised.
    `lowered_for_contract` names it instead if it leads through several clouds, and always where
    the owner of a segment's contract has lowered it. `every_worst` is the worst divisor that the
    subscriber of a segment has agreed to, 0 if it takes part in no split. With `is_paired` each
    entry of a segment leads to the exit at its place.
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
    reader: str = ""
    charged_to: tuple[str, ...] = ()
    lowered_for: int = 0
    every_worst: int = 0
    lowered_for_contract: str = ""
    is_paired: bool = False


class Moved(Durable, frozen=True):
    """A contract has another quality, other paths, or another identifier of its variable.

    With `until_retired` the replaced paths are carried until `Retired`; with `with_publication`
    until the change of the publication is complete. With `in_place` the paths are the same and the
    broker has lowered or raised the rate: the replaced paths are not charged. Journals of schema 1
    hold no `Retired`: a replay tears down the replaced paths with the move.
    """

    subscription: Subscribed
    with_publication: bool = False
    until_retired: bool = False
    in_place: bool = False


class Retired(Durable, frozen=True):
    """The paths that this and earlier generations of a contract replaced are torn down."""

    subscription_id: int
    generation: int


class PublicationMoved(Durable, frozen=True):
    """A variable gets a new identifier and period; its subscriptions are moved right after.

    The old identifier is carried until `PublicationRetired`.
    """

    variable: StatusVariable


class PublicationAnnounced(Durable, frozen=True):
    """Publisher and subscribers are notified of the time from which the new identifier holds."""

    name: str
    from_ns: int


class PublicationRetired(Durable, frozen=True):
    """The old identifier of a variable is no longer carried."""

    name: str


class Unsubscribed(Durable, frozen=True):
    """A contract or a pattern subscription has ended."""

    subscription_id: int


class PatternHeld(Durable, frozen=True):
    """A subscription to all present and future variables that match a pattern."""

    pattern_id: int
    subscriber: str
    pattern: str
    qos: ModalQos
    type_encoded: bytes = b""
    label: str = ""


class MatchingLeft(Durable, frozen=True, tag="CatchingLeft"):
    """Matching is not complete for a pattern, or for a new name (with pattern 0)."""

    pattern_id: int
    name: str = ""
    is_over: bool = False


class Answered(Durable, frozen=True):
    """Answer to an end-point's request; a repeated request gets the same answer."""

    endpoint: str
    request_id: int
    body: bytes


Operation: TypeAlias = Durable
"""Any operation of a leaf broker; each capability registers those that it owns."""

SNAPSHOT_MARK: Final = b"gridstat snapshot 1"
"""Marks the start of a snapshot, which replaces all earlier operations."""

OperationT = TypeVar("OperationT")

_ENCODER = msgspec.msgpack.Encoder()


def encode(operation: Operation) -> bytes:
    return _ENCODER.encode(operation)


def after_mark(written: Sequence[bytes]) -> Sequence[bytes]:
    for at in range(len(written) - 1, -1, -1):
        if written[at] == SNAPSHOT_MARK:
            return written[at + 1 :]
    return written


def read(decoder: msgspec.msgpack.Decoder[OperationT], data: bytes) -> OperationT:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise StorageFailed(
            f"the journal holds an operation that cannot be read: {error}",
            hint="it may have been written by a newer release",
        ) from error
