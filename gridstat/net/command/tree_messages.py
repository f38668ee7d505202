"""What a broker and its parent say to each other: joining, borders, identifiers, patterns.

Orders of a parent carry its term, words of a child the child's; whatever is asked twice is answered
twice alike. Contracts across clouds are in `segment_messages.py`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, TypeAlias

import msgspec

from gridstat.model.cloud import EventChannel
from gridstat.model.flooding import NO_GENERATION, FloodTerm
from gridstat.model.qos import MODES_MAX
from gridstat.model.status import StatusVariable
from gridstat.net.command.endpoint_messages import RefusedOutcome
from gridstat.net.command.session_messages import (
    MANY_MAX,
    Count,
    NameText,
    ShortText,
    Struct,
    Versions,
)

ABOVE_MAX: Final = 64
"""Brokers above another; a tree has one level more."""
CLOUDS_MAX: Final = 65_536
BORDERS_MAX: Final = 256
"""Border routers of one child that its parent routes over."""
BORDER_CHANNELS_MAX: Final = 65_536
"""Channels at the border routers of one child, in however many pages."""
LEVEL_MAX: Final = 255
"""The depth of a broker is the level of its channels."""
PREFIX_MAX: Final = 255
"""What the numbers of a broker's channels begin with."""
FIRST_SCHEMA: Final = 3

Prefixes: TypeAlias = Annotated[
    tuple[Annotated[int, msgspec.Meta(ge=0, le=PREFIX_MAX)], ...],
    msgspec.Meta(max_length=PREFIX_MAX + 1),
]
Clouds: TypeAlias = Annotated[tuple[NameText, ...], msgspec.Meta(max_length=CLOUDS_MAX)]
LATENCY_TOLD_MAX: Final = 1 << 34
"""Nearly five hours: more than a way takes, and a path search weighs twice as much."""
SILENT_MS_MAX: Final = 600_000
"""Ten minutes: the longest silence limit that an operator may set, and the law asks for less."""
LatencyUs: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LATENCY_TOLD_MAX)]
SilentMs: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=SILENT_MS_MAX)]
ContractText: TypeAlias = Annotated[str, msgspec.Meta(max_length=300)]
TERM_MAX: Final = (1 << 63) - 1
GENERATION_MAX: Final = 1 << 62
GENERATION_ASKED_MAX: Final = 1 << 48
"""Far below the other, for an owner counts on from what it is asked for."""
HEIGHT_MAX: Final = 64
"""Brokers above one another; how long one waits for an answer from below grows with each."""
Free: TypeAlias = dict[Annotated[int, msgspec.Meta(ge=0, lt=MODES_MAX)], int]
"""By mode."""
Generation: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=GENERATION_MAX)]


class TreeMessageBase(Struct, frozen=True):
    """Base of all that brokers say to each other; older releases never hear it."""

    since: ClassVar[int] = FIRST_SCHEMA

    term: Annotated[int, msgspec.Meta(ge=0, le=TERM_MAX)]


# Joining, and what a parent knows of a child.


class JoinTree(TreeMessageBase, frozen=True):
    """First word of a child on every session: all clouds below it, and its height above them.

    `numbers_used` is the highest identifier of a variable that it gave out before it had a parent.
    `journal` is the identity of its journal, empty in earlier releases: one that was begun anew has
    forgotten what it was given, and counts its questions from 1 again. `prefixes` are those of
    channels of the child and of brokers below it, which may have to keep them.
    """

    clouds: Clouds
    height: Annotated[int, msgspec.Meta(ge=0, le=HEIGHT_MAX)] = 0
    numbers_used: Count = 0
    journal: ShortText = ""
    prefixes: Prefixes = ()


class TreeJoined(TreeMessageBase, frozen=True):
    """The answer: how deep the child stands (the root is 0), and who is above it, root first.

    `prefixes` are those of their channels, which the child's may not have; earlier releases tell of
    none, and number by depth.
    """

    depth: Annotated[int, msgspec.Meta(ge=0, le=LEVEL_MAX)]
    above: Annotated[tuple[NameText, ...], msgspec.Meta(max_length=ABOVE_MAX)]
    prefixes: Prefixes = ()


class CloudsChanged(TreeMessageBase, frozen=True):
    """The clouds below a child are others now."""

    clouds: Clouds


class WantBorders(TreeMessageBase, frozen=True):
    """The border routers in a child's scope that its parent, or one above it, has channels at."""

    routers: Annotated[tuple[NameText, ...], msgspec.Meta(max_length=BORDERS_MAX)]


class BorderReported(TreeMessageBase, frozen=True, tag="BorderTold"):
    """Where a wanted border router listens, and whether it is up; port 0 while nobody knows.

    `counts_data_as_life` is what the router has reported. `silent_ms_max` is the shortest silence
    after which its cloud calls a channel dead; 0 from a broker that does not tell it.
    """

    router: NameText
    is_up: bool
    host: ShortText = ""
    data_port: int = 0
    urgent_port: int = 0
    datagram_versions: Versions = (1,)
    counts_data_as_life: bool = False
    silent_ms_max: SilentMs = 0


class AbstractLink(Struct, frozen=True, tag="Crossing"):
    """A way through a child's scope from one border to another, as it is now.

    What is free is told by mode, the baseline being mode 0; an absent mode is as the baseline. None
    means unbounded. These are hints: only a reservation promises anything.
    """

    from_router: NameText
    to_router: NameText
    latency_us: LatencyUs
    free_bytes_per_s: Free | None = None
    free_events_per_s: Free | None = None


class Trap(Struct, frozen=True, tag="Knot"):
    """Two entries and two exits that no two disjoint ways join; most scopes have none."""

    entries: tuple[NameText, NameText]
    exits: tuple[NameText, NameText]


class AbstractLinksReported(TreeMessageBase, frozen=True, tag="CrossingsTold"):
    """All ways between the wanted borders, in pages; they replace what was told before."""

    abstract_links: Annotated[tuple[AbstractLink, ...], msgspec.Meta(max_length=BORDERS_MAX**2)] = (
        msgspec.field(name="crossings")
    )
    traps: Annotated[tuple[Trap, ...], msgspec.Meta(max_length=4_096)] = msgspec.field(
        default=(), name="knots"
    )
    page: Count = 0
    is_last: bool = True


class BorderChannel(Struct, frozen=True):
    """A channel between clouds with all that the leaf broker of either end needs for its orders.

    `channel.level` is its owner's depth. The peer is the router at the other end.
    `probes_only_when_idle` is as in `ChannelOrder`. `silent_ms_max` is the longer of the shortest
    silences that the clouds of both ends have told of: the receiver allows for no less.
    """

    channel: EventChannel
    host: ShortText
    data_port: int
    urgent_port: int
    datagram_version: int = 1
    back_channel: int = 0
    probes_only_when_idle: bool = False
    silent_ms_max: SilentMs = 0


class OpenBorder(TreeMessageBase, frozen=True):
    """Order these channels at the border routers in this scope, or change them.

    With `is_whole` the pages up to the last are all of them, and any others are closed.
    """

    channels: Annotated[tuple[BorderChannel, ...], msgspec.Meta(max_length=MANY_MAX)]
    is_whole: bool = False
    page: Count = 0
    is_last: bool = True


class CloseBorder(TreeMessageBase, frozen=True):
    """The channel is no more."""

    channel_id: int


class BorderChannelReported(TreeMessageBase, frozen=True, tag="BorderChannelTold"):
    """A border router has said of a channel between clouds: silent, heard, congested or not."""

    channel_id: int
    is_up: bool | None = None
    is_pressed: bool | None = None


# Identifiers of variables.


class AskNumbers(TreeMessageBase, frozen=True):
    """A block of identifiers, please; the same `request` of a journal is given the same block."""

    request: int
    count: Annotated[int, msgspec.Meta(ge=1, le=1 << 24)]


class NumbersLeased(TreeMessageBase, frozen=True):
    """From `first` on so many are the child's, for good; 0 of them: none are left."""

    request: int
    first: int
    count: int


# Patterns.


class WatchNames(TreeMessageBase, frozen=True):
    """A pattern in another cloud; whatever it stands for, now or later, is told of."""

    watch: ContractText
    pattern: NameText


class EndWatch(TreeMessageBase, frozen=True):
    """Nobody waits for it any more."""

    watch: ContractText


class NamesFound(TreeMessageBase, frozen=True):
    """Variables that a watched pattern stands for, some of them perhaps told before."""

    watch: ContractText
    names: Annotated[tuple[NameText, ...], msgspec.Meta(max_length=MANY_MAX)]


# Flooding: what a parent wants flooded in the scope of a child, in two phases like a contract.


ModeNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=MODES_MAX)]
FloodTerms: TypeAlias = Annotated[dict[ModeNumber, FloodTerm], msgspec.Meta(max_length=MODES_MAX)]


class FloodedVariable(Struct, frozen=True):
    """All that a parent wants of one variable, by mode; without terms it is not flooded by it.

    A term's level is the depth of the broker at which it was asked, the same all the way down.
    Generations count up at each parent.
    """

    variable: StatusVariable
    generation: Annotated[int, msgspec.Meta(gt=NO_GENERATION)]
    terms: FloodTerms = msgspec.field(default_factory=dict)


class ReserveFlooding(TreeMessageBase, frozen=True):
    """Hold room for it on every channel in this scope, beside what is there."""

    flooded: FloodedVariable


class FloodingReserved(TreeMessageBase, frozen=True):
    """Held, durably, until the parent commits or releases it."""

    name: NameText
    generation: int


class FloodingRefused(TreeMessageBase, frozen=True):
    """Nothing of this generation is held, and why; what was committed before stands."""

    name: NameText
    generation: int
    refused: RefusedOutcome


class CommitFlooding(TreeMessageBase, frozen=True):
    """It counts, in the place of what was committed before; with `is_whole` those are all.

    Whatever else a child holds of its parent's then goes, but for reservations of variables that
    the parent is in doubt about itself.
    """

    flooded: Annotated[tuple[FloodedVariable, ...], msgspec.Meta(max_length=MANY_MAX)]
    is_whole: bool = False
    in_doubt: Annotated[tuple[NameText, ...], msgspec.Meta(max_length=MANY_MAX)] = ()


class FloodingCommitted(TreeMessageBase, frozen=True):
    """Committed, durably, and confirmed by the routers that are there."""

    name: NameText
    generation: int


class ReleaseFlooding(TreeMessageBase, frozen=True):
    """Nothing came of what is reserved."""

    name: NameText
    generation: int


class FloodingEnded(TreeMessageBase, frozen=True):
    """A child's word: the variable is no longer published, so nobody floods it any more.

    Another may have its name by now, so its identifier is told; 0 from releases that do not.
    """

    name: NameText
    variable_id: int = 0


TreeMessage: TypeAlias = (
    JoinTree
    | TreeJoined
    | CloudsChanged
    | WantBorders
    | BorderReported
    | AbstractLinksReported
    | OpenBorder
    | CloseBorder
    | BorderChannelReported
    | AskNumbers
    | NumbersLeased
    | WatchNames
    | EndWatch
    | NamesFound
    | ReserveFlooding
    | FloodingReserved
    | FloodingRefused
    | CommitFlooding
    | FloodingCommitted
    | ReleaseFlooding
    | FloodingEnded
)
