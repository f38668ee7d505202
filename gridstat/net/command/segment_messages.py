"""Messages of contracts across clouds: requests up to the owner, two-phase reservations down.

A contract is named `cloud#number`: the cloud of its subscriber and that cloud's number. Each change
and each new plan is one generation more. The *owner* is the lowest broker above both ends. A
*segment* is the part of a contract in the scope of one broker: from the publisher or the entry
channels to the subscriber or the exit channels. A broker with children divides its segment into
segments of its children.

  subscriber's leaf -> owner:     AskContract, EndContract
  owner -> subscriber's leaf:     ContractGranted, ContractRefused, ContractEnded
  owner -> publisher's leaf:      Lookup, answered by LookedUp
  parent -> child:                Reserve, Commit, Release
  child -> parent:                Reserved, NotReserved, SegmentUp, Released,
                                  SegmentBroken, SegmentRestored, SegmentsHeld
  child -> parent, up to owner:   LowerContract

A segment at a child:

  none --Reserve--> reserved --Commit--> committed --(routers confirm)--> up
  up <--SegmentBroken / SegmentRestored--> broken
  reserved, committed, up, broken --Release--> none

Timeouts. A parent that misses the answer to a Reserve gives the generation up: it releases the
segments and refuses with `DeadlinePassed`. It plans around a NotReserved. It repeats Commit and
Release until the answer arrives; a contract whose SegmentUp is late is granted as degraded. A leaf
broker that misses the answer to AskContract answers its end-point with `DeadlinePassed`, and sends
EndContract or asks for the previous quality again.

Restarts and lost sessions. Every state above is durable before it is reported. After each join the
child sends SegmentsHeld; the parent releases whatever it has not decided (presumed abort) and
repeats Reserve, Commit and Release for the rest. The leaf broker repeats each AskContract and
EndContract that has no answer. The receiver of a repeated message repeats its answer and does the
work only once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Final, TypeAlias

import msgspec

from gridstat.model.path_label import named_channels
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
    Ways,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

PATHS_MAX: Final = 4
CAUSE_LENGTH_MAX: Final = 1_024
CauseText: TypeAlias = Annotated[str, msgspec.Meta(max_length=CAUSE_LENGTH_MAX)]
"""Contract for which others were lowered: `c2#7`, or inside a cloud the subscriber and variable."""
BANDS_SCHEMA: Final = 4
"""First schema in which a child may ask its parent to lower a contract."""
PIECES_MAX: Final = 2 * PATH_ROUTERS_MAX - 1
"""Bound on the pieces of a path: at least one router in each cloud, one channel between two
clouds."""
PIECE_ROUTERS_MAX: Final = 1_024
"""Bound on the routers of one piece, above the length of any path inside a cloud."""
TROUBLES_MAX: Final = 128
"""Bound on the `degraded` texts of a segment, above the number that `few_words` leaves."""
REASON_LENGTH_MAX: Final = 1 << 16
ReasonText: TypeAlias = Annotated[str, msgspec.Meta(max_length=REASON_LENGTH_MAX)]
SHARE_PPM_DEFAULT: Final = 250_000
"""Share of a channel that an identity has without a rule that grants more, in millionths."""
SharePpm: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=10**6)]
Round: TypeAlias = Count
"""Number that tells repeated requests for one generation apart; 0 from a peer that does not
number."""
SearchUs: TypeAlias = Count
"""Microseconds of path searches, counted by their steps: the same on every machine."""


class Nearness(Struct, frozen=True):
    """Latency between a border router of the scope and one end of a contract inside the scope.

    `link_disjoint` is how many paths between the two share no channel, at most; a broker of an
    earlier release does not count them. `is_edge`: the end-point is attached to this very router,
    which several node-disjoint paths may therefore use.
    """

    router: NameText
    latency_us: LatencyUs
    link_disjoint: Ways = 1
    is_edge: bool = False


class AskContract(TreeMessageBase, frozen=True):
    """Request for a contract, sent by the subscriber's leaf broker to its parent.

    Each broker passes the message up until it is the owner: the broker above both the subscriber's
    and the publisher's cloud. The owner plans, and answers with `ContractGranted` or
    `ContractRefused`. `ends` holds the latency from each of the parent's borders to the subscriber;
    each broker on the way up computes it again for the borders of its own parent. The sender
    repeats an unanswered request after each join. `share_ppm` is the part of a channel that the
    rules of the subscriber's cloud let the subscriber reserve. `is_matched` says that a pattern has
    made the request: then the publisher pays too.
    """

    contract: ContractText
    generation: Annotated[int, msgspec.Meta(ge=0, le=GENERATION_ASKED_MAX)]
    name: NameText
    subscriber: NameText
    qos: ModalQos
    type_encoded: bytes = b""
    ends: Annotated[tuple[Nearness, ...], msgspec.Meta(max_length=BORDERS_MAX)] = ()
    share_ppm: SharePpm = SHARE_PPM_DEFAULT
    is_matched: bool = False


class PathSegment(Struct, frozen=True, tag="Piece"):
    """Consecutive routers of one path that have one owner, and the channels between them.

    A channel between clouds is a piece of its own: two routers, one channel, its owner.
    `detection_ms` is the longest silence limit of its channels: 0 without channels, None if
    unknown. `channel_names` is empty if none of them has a name.
    """

    owner: NameText
    routers: Annotated[
        tuple[NameText, ...], msgspec.Meta(min_length=1, max_length=PIECE_ROUTERS_MAX)
    ]
    channel_ids: Annotated[tuple[int, ...], msgspec.Meta(max_length=PIECE_ROUTERS_MAX)]
    latency_us: LatencyUs
    detection_ms: SilentMs | None = None
    channel_names: Annotated[tuple[NameText, ...], msgspec.Meta(max_length=PIECE_ROUTERS_MAX)] = ()


class SegmentedPath(Struct, frozen=True, tag="PiecedPath"):
    """One of the disjoint paths of a segment, or of a whole contract, from its first router on.

    `entry` and `exit` are the channels by which the path enters and leaves the scope; they are 0 at
    the ends of the contract.
    """

    entry: int
    exit: int
    latency_us: LatencyUs
    pieces: Annotated[tuple[PathSegment, ...], msgspec.Meta(min_length=1, max_length=PIECES_MAX)]


def joined_routers(pieces: Iterable[PathSegment]) -> list[str]:
    """Return the routers of consecutive pieces in order; a router shared by two pieces appears
    once."""
    routers: list[str] = []
    for piece in pieces:
        is_next = bool(routers) and piece.routers[:1] == (routers[-1],)
        routers += piece.routers[1:] if is_next else piece.routers
    return routers


def joined_names(pieces: Iterable[PathSegment]) -> tuple[str, ...]:
    """Return the names of the channels of consecutive pieces; empty if none of them has a name."""
    return named_channels(
        [name for piece in pieces for name in piece.channel_names or ("",) * len(piece.channel_ids)]
    )


Paths: TypeAlias = Annotated[tuple[SegmentedPath, ...], msgspec.Meta(max_length=PATHS_MAX)]


class ContractGranted(TreeMessageBase, frozen=True):
    """The owner grants a contract to the subscriber's leaf broker, or reports a change of its
    paths.

    The segments of this generation are up, except for what `degraded` lists. The leaf broker stores
    the grant and answers or notifies the end-point. `asked` is the generation of the request that
    the grant answers; a new plan of the owner has a higher `generation`. `asked` is None from an
    owner of an earlier release. `paths_down` lists the indices of paths that do not work; the owner
    sends the grant again when that list changes. `is_sealed` confirms that the contract goes over
    sealed channels alone; an owner that does not know the demand leaves it out. `lowered_for` is
    the contract for which the owner has lowered this one within its band, until it is raised again.
    `search_us` is the time of all searches that the request has caused in the tree, by their steps;
    the subscriber's cloud charges it once, to the subscriber. Other grants have 0.
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
    is_sealed: bool = False
    lowered_for: CauseText = ""
    search_us: SearchUs = 0

    @property
    def answered(self) -> int:
        """Generation of the newest request that the owner had received."""
        return self.generation if self.asked is None else self.asked


class ContractRefused(TreeMessageBase, frozen=True):
    """The owner refuses this generation to the subscriber's leaf broker, and holds nothing for it.

    An older generation that was granted stays in force. The leaf broker answers the end-point with
    `refused`. `search_us` is as in `ContractGranted`.
    """

    contract: ContractText
    generation: Generation
    refused: RefusedOutcome
    search_us: SearchUs = 0

    @property
    def answered(self) -> int:
        return self.generation


class EndContract(TreeMessageBase, frozen=True):
    """The subscriber's leaf broker ends a contract; the owner releases all of its segments.

    The leaf broker sends the message again after each join until `ContractEnded` arrives.
    """

    contract: ContractText


class ContractEnded(TreeMessageBase, frozen=True):
    """The owner confirms `EndContract`, or ends the contract itself because its variable is gone.

    In the second case `refused` gives the reason. The leaf broker drops its record of the contract.
    `search_us` is as in `ContractGranted`, for a request that was still being worked on.
    """

    contract: ContractText
    refused: RefusedOutcome | None = None
    search_us: SearchUs = 0


class Lookup(TreeMessageBase, frozen=True):
    """A parent asks the publisher's leaf broker for a variable and its distance to the parent's
    borders.

    `reader` is the end-point that asks for a contract, for which the publisher's cloud needs an
    access rule; brokers of earlier releases do not tell it. `is_flood` marks the look-up of an
    operator who floods the variable.
    """

    lookup: int
    name: NameText
    reader: NameText = ""
    is_flood: bool = False


class LookedUp(TreeMessageBase, frozen=True):
    """Answer to `Lookup`: the registered variable and its distances to the borders, or the refusal.

    `publisher` is the end-point that publishes it, with the part of a channel that the rules of its
    cloud let it reserve; brokers of earlier releases do not tell it.
    """

    lookup: int
    variable: StatusVariable | None = None
    starts: Annotated[tuple[Nearness, ...], msgspec.Meta(max_length=BORDERS_MAX)] = ()
    refused: RefusedOutcome | None = None
    publisher: NameText = ""
    publisher_share_ppm: SharePpm = SHARE_PPM_DEFAULT


# Segments, from the owner down.


class Gate(Struct, frozen=True):
    """A channel between clouds, and the router of this scope at which the channel ends or
    begins."""

    router: NameText
    channel_id: int


class Payer(Struct, frozen=True):
    """Identity that a contract is charged to, and the part of a channel that it may reserve."""

    name: NameText
    share_ppm: SharePpm = SHARE_PPM_DEFAULT


PAYERS_MAX: Final = 2
"""The subscriber, and the publisher of a variable that a pattern has matched."""
Gates: TypeAlias = Annotated[tuple[Gate, ...], msgspec.Meta(max_length=PATHS_MAX)]


class Reserve(TreeMessageBase, frozen=True):
    """A parent asks a child to find and hold disjoint paths: one from each entry, one to each exit.

    The child chooses which entry is joined to which exit. Without entries the paths begin at the
    variable's publisher; without exits they end at `subscriber`; that end then lies in this scope.
    `granted` is one definite quality, and its latencies are the share of this segment. `replaces`
    is the generation that this one supersedes, or -1. The child answers with `Reserved` or
    `NotReserved` and the same `round`; a repeated request for a segment that is held gets the same
    answer. `reader` is the end-point that the contract is for, in every segment. `is_sealed`
    demands sealed channels alone, those of the end-points included. `charged_to` are the identities
    that pay; brokers of earlier releases do not tell them. With `is_kept` the contract was granted
    before and is only planned again: no share is checked. With `may_lower` the child may lower
    others for it, since no way has room without that; `every_worst` is the worst divisor that the
    subscriber has agreed to, 0 if the contract takes part in no split. `lowered_for` is the
    contract for which this one has been lowered, if any. Brokers of earlier releases tell none.
    With `is_paired` the child does not choose: each entry is joined to the exit at its place, since
    two paths would otherwise run the same risk; brokers of earlier releases choose nevertheless.
    `search_us` is the time, by steps, that searches for this contract have left: the child uses no
    more, and tells what it has used. It is 0 from a broker of an earlier release.
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
    reader: NameText = ""
    is_sealed: bool = False
    charged_to: Annotated[tuple[Payer, ...], msgspec.Meta(max_length=PAYERS_MAX)] = ()
    is_kept: bool = False
    may_lower: bool = False
    every_worst: Count = 0
    lowered_for: CauseText = ""
    is_paired: bool = False
    search_us: SearchUs = 0

    @property
    def pairs(self) -> frozenset[tuple[int, int]]:
        """Channels of each entry and of its exit; empty where the child chooses."""
        pairs = zip(self.entries, self.exits, strict=False) if self.is_paired else ()
        return frozenset([(entry.channel_id, leaving.channel_id) for entry, leaving in pairs])


class Reserved(TreeMessageBase, frozen=True):
    """A child holds the segment, durably, until a commit or release; answers `Reserve`.

    With `is_moved` the message answers nothing: it reports that a committed segment was routed
    along other paths. The child sends it at the move, and again after each join. `is_sealed`
    confirms a demand for sealed channels; a child that does not know the demand leaves it out, and
    the parent then refuses the segment. `search_us` is the time of the searches for this answer, by
    their steps; brokers of earlier releases do not tell it.
    """

    contract: ContractText
    generation: Generation
    paths: Paths
    is_node_disjoint: bool = True
    round: Round = 0
    is_moved: bool = False
    is_sealed: bool = False
    search_us: SearchUs = 0


class NotReserved(TreeMessageBase, frozen=True):
    """A child refuses `Reserve` and holds nothing; `limit` names the kind of shortage.

    The kinds are the names of `Limit` in `capacity/admission.py`. The parent plans around them; one
    that is UNDECIDED proves nothing. `search_us` is as in `Reserved`.
    With `is_making_room` the child, or one below it, has asked owners to lower other contracts, and
    may have room soon.
    """

    contract: ContractText
    generation: Generation
    refused: RefusedOutcome
    limit: ShortText = ""
    round: Round = 0
    is_making_room: bool = False
    search_us: SearchUs = 0


class LowerContract(TreeMessageBase, frozen=True):
    """A child lacks room for `lowered_for`, and asks that a contract be lowered to `every`.

    Brokers between pass it up to the owner, who lowers the contract within the band of its
    subscriber: a new generation is reserved beside the present one, and the subscriber's cloud is
    notified. There is no answer, as the child sees the new generation; it asks again as long as it
    lacks the room. A generation that is not the present one any more is ignored.
    """

    since: ClassVar[int] = BANDS_SCHEMA

    contract: ContractText
    generation: Generation
    every: Annotated[int, msgspec.Meta(ge=1)]
    lowered_for: CauseText
    priority: Count = 0


class Commit(TreeMessageBase, frozen=True):
    """A parent has decided for this generation: the child sends the reserved paths to its routers.

    The child answers with `SegmentUp`, or with `SegmentBroken` if it does not hold the segment.
    """

    contract: ContractText
    generation: Generation


class SegmentUp(TreeMessageBase, frozen=True, tag="StretchUp"):
    """Answer to `Commit`: the segment is durable and confirmed by its routers.

    `degraded` lists the exceptions. The parent counts the segment as up and may release the
    generation that it replaces.
    """

    contract: ContractText
    generation: Generation
    degraded: Annotated[tuple[ReasonText, ...], msgspec.Meta(max_length=TROUBLES_MAX)] = ()


class Release(TreeMessageBase, frozen=True):
    """A parent releases a segment, reserved or committed; the child answers with `Released`.

    The child carries a committed segment a moment longer, since events may be under way.
    """

    contract: ContractText
    generation: Generation
    round: Round = 0


class Released(TreeMessageBase, frozen=True):
    """Answer to `Release`: the child holds nothing of this generation, durably."""

    contract: ContractText
    generation: Generation
    round: Round = 0


class SegmentBroken(TreeMessageBase, frozen=True, tag="StretchBroken"):
    """A child reports that a committed segment lacks paths that it cannot reroute, or has ended.

    `broken` lists the entry and exit channels that cannot be used. With `is_over` the variable is
    no longer published, or (`code`) the publisher's cloud no longer lets the reader have it, and
    the owner ends the contract; otherwise the owner plans around the failure.
    """

    contract: ContractText
    generation: Generation
    reason: ReasonText
    broken: Annotated[tuple[int, ...], msgspec.Meta(max_length=2 * PATHS_MAX)] = ()
    is_over: bool = False
    code: Count = 0


class SegmentRestored(TreeMessageBase, frozen=True, tag="StretchMended"):
    """A child reports that all paths of a segment it had reported as broken work again."""

    contract: ContractText
    generation: Generation


class HeldSegment(Struct, frozen=True, tag="HeldStretch"):
    """One segment in `SegmentsHeld`: a generation of a contract, reserved or committed."""

    contract: ContractText
    generation: Generation
    is_committed: bool


class SegmentsHeld(TreeMessageBase, frozen=True, tag="StretchesHeld"):
    """After each join a child lists all segments that it holds, in pages.

    The parent releases segments that it has not decided, and counts releases of missing ones as
    done.
    """

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
    | LowerContract
    | Commit
    | SegmentUp
    | Release
    | Released
    | SegmentBroken
    | SegmentRestored
    | SegmentsHeld
)
