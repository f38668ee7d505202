"""Contracts across clouds: from their subscriber's cloud up to their owner, and down from there.

A contract is called `cloud#number`, by its subscriber's cloud and that cloud's number for it; every
change or new plan of it is a generation more. Its owner is the lowest broker above both of its
ends. A *segment* is the part of a contract in the scope of one broker: from its publisher, or from
the channels by which it enters, to its subscriber, or to the channels by which it leaves. Parents
reserve, commit and release segments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import msgspec

from gridstat.model.qos import PATH_ROUTERS_MAX, ModalQos, Qos
from gridstat.model.status import StatusVariable
from gridstat.net.command.endpoint_messages import RefusedOutcome
from gridstat.net.command.session_messages import MANY_MAX, Count, NameText, ShortText, Struct
from gridstat.net.command.tree_messages import (
    BORDERS_MAX,
    GENERATION_ASKED_MAX,
    ContractText,
    Generation,
    LatencyUs,
    SilentMs,
    TreeMessageBase,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

PATHS_MAX: Final = 4
PIECES_MAX: Final = 2 * PATH_ROUTERS_MAX - 1
"""A path crosses a router in every cloud at least, and one channel between two clouds."""
PIECE_ROUTERS_MAX: Final = 1_024
"""More than a path crosses in any cloud."""
TROUBLES_MAX: Final = 128
"""Above what `few_words` leaves of many."""
REASON_LENGTH_MAX: Final = 1 << 16
ReasonText: TypeAlias = Annotated[str, msgspec.Meta(max_length=REASON_LENGTH_MAX)]
Round: TypeAlias = Count
"""Which of several questions by the same name is meant; 0 of a peer that knows of no rounds."""


class Nearness(Struct, frozen=True):
    """How far it is between a border router of the scope and one end of a contract inside it."""

    router: NameText
    latency_us: LatencyUs


class AskContract(TreeMessageBase, frozen=True):
    """A subscriber of the child wants a variable of another cloud; climbs until both are below.

    `ends` tells, for the parent's borders, how near the subscriber is; each broker on the way up
    works it out anew for the borders of its own parent.
    """

    contract: ContractText
    generation: Annotated[int, msgspec.Meta(ge=0, le=GENERATION_ASKED_MAX)]
    name: NameText
    subscriber: NameText
    qos: ModalQos
    type_encoded: bytes = b""
    ends: Annotated[tuple[Nearness, ...], msgspec.Meta(max_length=BORDERS_MAX)] = ()


class PathSegment(Struct, frozen=True, tag="Piece"):
    """Consecutive routers of one path and the channels between them, and whose they are.

    A channel between clouds is a piece of its own: two routers, one channel, its owner.
    `detection_ms` is the longest silence limit of its channels, 0 without any; None is unknown.
    """

    owner: NameText
    routers: Annotated[
        tuple[NameText, ...], msgspec.Meta(min_length=1, max_length=PIECE_ROUTERS_MAX)
    ]
    channel_ids: Annotated[tuple[int, ...], msgspec.Meta(max_length=PIECE_ROUTERS_MAX)]
    latency_us: LatencyUs
    detection_ms: SilentMs | None = None


class SegmentedPath(Struct, frozen=True, tag="PiecedPath"):
    """One of the disjoint paths of a segment, or of a whole contract, from its first router on.

    `entry` and `exit` are the channels by which it comes and goes; 0 at the contract's own ends.
    """

    entry: int
    exit: int
    latency_us: LatencyUs
    pieces: Annotated[tuple[PathSegment, ...], msgspec.Meta(min_length=1, max_length=PIECES_MAX)]


def joined_routers(pieces: Iterable[PathSegment]) -> list[str]:
    """The routers of consecutive pieces, in order; where two pieces meet, the one they share."""
    routers: list[str] = []
    for piece in pieces:
        is_next = bool(routers) and piece.routers[:1] == (routers[-1],)
        routers += piece.routers[1:] if is_next else piece.routers
    return routers


Paths: TypeAlias = Annotated[tuple[SegmentedPath, ...], msgspec.Meta(max_length=PATHS_MAX)]


class ContractGranted(TreeMessageBase, frozen=True):
    """The contract holds, all segments are up as far as `degraded` does not say otherwise.

    `asked` is the generation of the question that it answers: a new plan of the owner's has a
    higher one of its own. None of an owner that does not tell. `paths_down` are the indices of the
    paths that do not work at the moment; the owner says it again when there are others.
    """

    contract: ContractText
    generation: Generation
    owner: NameText
    variable: StatusVariable
    granted: dict[int, Qos]
    paths: Paths
    is_node_disjoint: bool = True
    degraded: tuple[str, ...] = ()
    asked: Generation | None = None
    paths_down: Annotated[tuple[Count, ...], msgspec.Meta(max_length=PATHS_MAX)] = ()

    @property
    def answered(self) -> int:
        """The generation of the newest question that its owner had heard."""
        return self.generation if self.asked is None else self.asked


class ContractRefused(TreeMessageBase, frozen=True):
    """There is no such contract, and nothing of it is reserved; an older generation stands."""

    contract: ContractText
    generation: Generation
    refused: RefusedOutcome

    @property
    def answered(self) -> int:
        return self.generation


class EndContract(TreeMessageBase, frozen=True):
    """The subscriber's cloud has ended it; said again until it is confirmed."""

    contract: ContractText


class ContractEnded(TreeMessageBase, frozen=True):
    """It is over: as asked, or because its variable is gone, which `refused` then says."""

    contract: ContractText
    refused: RefusedOutcome | None = None


class Lookup(TreeMessageBase, frozen=True):
    """Who publishes this, and how near is it to the parent's borders?"""

    lookup: int
    name: NameText


class LookedUp(TreeMessageBase, frozen=True):
    """The variable as registered, or why there is none."""

    lookup: int
    variable: StatusVariable | None = None
    starts: Annotated[tuple[Nearness, ...], msgspec.Meta(max_length=BORDERS_MAX)] = ()
    refused: RefusedOutcome | None = None


# Segments, from the owner down.


class Gate(Struct, frozen=True):
    """A channel between clouds and the router of this scope at which it ends or begins."""

    router: NameText
    channel_id: int


Gates: TypeAlias = Annotated[tuple[Gate, ...], msgspec.Meta(max_length=PATHS_MAX)]


class Reserve(TreeMessageBase, frozen=True):
    """Find and hold disjoint ways, one from each entry and one to each exit, whichever to which.

    Without entries they begin at the variable's publisher, without exits they end at `subscriber`;
    one of the two is in this scope then. `granted` is one definite quality, and its latencies are
    this segment's share. `replaces` is the generation that this one will supersede, or -1. `round`
    tells this question from others by the same name; the answer carries the same.
    """

    contract: ContractText
    generation: Generation
    variable: StatusVariable
    granted: dict[int, Qos]
    entries: Gates = ()
    exits: Gates = ()
    subscriber: NameText = ""
    replaces: int = -1
    round: Round = 0


class Reserved(TreeMessageBase, frozen=True):
    """Held, durably, until the parent commits or releases it.

    With `is_moved` it answers nothing: it is said of what is committed when it is led another way,
    and after a join if it has been.
    """

    contract: ContractText
    generation: Generation
    paths: Paths
    is_node_disjoint: bool = True
    round: Round = 0
    is_moved: bool = False


class NotReserved(TreeMessageBase, frozen=True):
    """Nothing is held, and why; `limit` is the kind of what is short (`capacity/admission.py`)."""

    contract: ContractText
    generation: Generation
    refused: RefusedOutcome
    limit: ShortText = ""
    round: Round = 0


class Commit(TreeMessageBase, frozen=True):
    """It counts: order it at the routers."""

    contract: ContractText
    generation: Generation


class SegmentUp(TreeMessageBase, frozen=True, tag="StretchUp"):
    """Committed, durably, and confirmed by the routers, but for what `degraded` says."""

    contract: ContractText
    generation: Generation
    degraded: Annotated[tuple[ReasonText, ...], msgspec.Meta(max_length=TROUBLES_MAX)] = ()


class Release(TreeMessageBase, frozen=True):
    """Give it back, reserved or committed."""

    contract: ContractText
    generation: Generation
    round: Round = 0


class Released(TreeMessageBase, frozen=True):
    """Nothing of it is held any more."""

    contract: ContractText
    generation: Generation
    round: Round = 0


class SegmentBroken(TreeMessageBase, frozen=True, tag="StretchBroken"):
    """A committed segment lacks paths that the child cannot mend, or none; or is over.

    `broken` are the gates that cannot be used. With `is_over` the variable is gone for good.
    """

    contract: ContractText
    generation: Generation
    reason: ReasonText
    broken: Annotated[tuple[int, ...], msgspec.Meta(max_length=2 * PATHS_MAX)] = ()
    is_over: bool = False


class SegmentRestored(TreeMessageBase, frozen=True, tag="StretchMended"):
    """All its paths work again."""

    contract: ContractText
    generation: Generation


class HeldSegment(Struct, frozen=True, tag="HeldStretch"):
    """What a child holds of a contract."""

    contract: ContractText
    generation: Generation
    is_committed: bool


class SegmentsHeld(TreeMessageBase, frozen=True, tag="StretchesHeld"):
    """After joining: all that the child holds, page by page; what the parent does not know goes."""

    held: Annotated[tuple[HeldSegment, ...], msgspec.Meta(max_length=MANY_MAX)]
    is_last: bool = True


SegmentMessage: TypeAlias = (
    AskContract
    | ContractGranted
    | ContractRefused
    | EndContract
    | ContractEnded
    | Lookup
    | LookedUp
    | Reserve
    | Reserved
    | NotReserved
    | Commit
    | SegmentUp
    | Release
    | Released
    | SegmentBroken
    | SegmentRestored
    | SegmentsHeld
)
