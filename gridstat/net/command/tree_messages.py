"""Messages between a broker and its parent: joining, borders, identifiers, patterns, flooding.

  child -> parent:  JoinTree, CloudsChanged, BorderReported, AbstractLinksReported,
                    BorderChannelReported, AskNumbers, FloodingReserved, FloodingRefused,
                    FloodingCommitted, FloodingEnded, BorderSeedWanted, BorderSeedAccepted
  parent -> child:  TreeJoined, WantBorders, OpenBorder, CloseBorder, NumbersLeased,
                    ReserveFlooding, CommitFlooding, ReleaseFlooding, BorderSeed
  both directions:  WatchNames, EndWatch, NamesFound

Every message carries the term of its sender. A broker that receives a lower term than before from
the same peer ends the session: the sender is an old process. A session begins with JoinTree; until
TreeJoined has arrived the child sends nothing else and ignores all other messages. The dialer
reconnects for ever when a session is lost or silent.

After each join both sides send their state again, since messages are lost with a session: the child
its border routers, abstract links, held segments and open requests, the parent its wanted borders,
border channels (`is_whole`), watches and flooding (`is_whole`). A repeated request gets the same
answer. Terms, leased identifiers, border channels and flooding are durable at the child; watches
and reported distances are rebuilt after a restart.

Contracts across clouds are in `segment_messages.py`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, TypeAlias

import msgspec

from gridstat.model.cloud import EventChannel
from gridstat.model.flooding import NO_GENERATION, FloodTerm
from gridstat.model.qos import MODES_MAX
from gridstat.model.status import StatusVariable
from gridstat.net.command.endpoint_messages import RefusedOutcome
from gridstat.net.command.router_messages import KEYS_SCHEMA, ChannelSeed, SeedAccepted
from gridstat.net.command.session_messages import (
    MANY_MAX,
    Count,
    NameText,
    ShortText,
    Struct,
    Versions,
)

ABOVE_MAX: Final = 64
"""Bound on the brokers above one broker; a tree has one level more."""
CLOUDS_MAX: Final = 65_536
BORDERS_MAX: Final = 256
"""Bound on the border routers of one child that its parent routes over."""
BORDER_CHANNELS_MAX: Final = 65_536
"""Bound on the channels at the border routers of one child, over all pages of a list."""
LEVEL_MAX: Final = 255
"""Bound on the depth of a broker; the depth is also the flooding level of the broker's channels."""
PREFIX_MAX: Final = 255
"""Largest prefix of channel identifiers; each broker in a line of ancestors has its own."""
FIRST_SCHEMA: Final = 3

Prefixes: TypeAlias = Annotated[
    tuple[Annotated[int, msgspec.Meta(ge=0, le=PREFIX_MAX)], ...],
    msgspec.Meta(max_length=PREFIX_MAX + 1),
]
Clouds: TypeAlias = Annotated[tuple[NameText, ...], msgspec.Meta(max_length=CLOUDS_MAX)]
REPORTED_LATENCY_US_MAX: Final = 1 << 34
"""Nearly five hours: longer than any path takes; a path search can still add two such latencies."""
SILENT_MS_MAX: Final = 600_000
"""Ten minutes: the longest silence limit that an operator may set."""
WAYS_MAX: Final = 4
"""Number at which the counting of disjoint paths ends: no contract has more."""
Ways: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=WAYS_MAX)]
LatencyUs: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=REPORTED_LATENCY_US_MAX)]
SilentMs: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=SILENT_MS_MAX)]
ContractText: TypeAlias = Annotated[str, msgspec.Meta(max_length=300)]
TERM_MAX: Final = (1 << 63) - 1
GENERATION_MAX: Final = 1 << 62
GENERATION_ASKED_MAX: Final = 1 << 48
"""Bound on requested generations, far below `GENERATION_MAX`: an owner counts on from a request."""
HEIGHT_MAX: Final = 64
"""Bound on the levels below a broker; the timeout for an answer from below grows with each
level."""
Free: TypeAlias = dict[Annotated[int, msgspec.Meta(ge=0, lt=MODES_MAX)], int]
"""Free capacity by mode."""
Generation: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=GENERATION_MAX)]


class TreeMessageBase(Struct, frozen=True):
    """Base of all messages between brokers; peers of schemas before 3 are never sent one."""

    since: ClassVar[int] = FIRST_SCHEMA

    term: Annotated[int, msgspec.Meta(ge=0, le=TERM_MAX)]


# Joining, and what a parent knows of a child.


class JoinTree(TreeMessageBase, frozen=True):
    """First message of a child on every session: the clouds below the child and its height above
    them.

    The parent checks term and names, stores the child's clouds and answers with `TreeJoined`, or
    ends the session with a reason. `numbers_used` is the highest identifier of a variable that the
    child assigned before it had a parent. `journal` identifies the child's journal, empty in
    earlier releases: a child with a new journal has lost its leases and counts its requests from 1
    again. `prefixes` are the channel prefixes of the child and of the brokers below it, which may
    be unable to change them.
    """

    clouds: Clouds
    height: Annotated[int, msgspec.Meta(ge=0, le=HEIGHT_MAX)] = 0
    numbers_used: Count = 0
    journal: ShortText = ""
    prefixes: Prefixes = ()


class TreeJoined(TreeMessageBase, frozen=True):
    """Answer to `JoinTree`: the depth of the child (the root has 0) and the brokers above it, root
    first.

    The child stores the parent's term, then sends its whole state. `prefixes` are the channel
    prefixes of the brokers above, which the child must not use; earlier releases send none and use
    their depth as prefix.
    """

    depth: Annotated[int, msgspec.Meta(ge=0, le=LEVEL_MAX)]
    above: Annotated[tuple[NameText, ...], msgspec.Meta(max_length=ABOVE_MAX)]
    prefixes: Prefixes = ()


class CloudsChanged(TreeMessageBase, frozen=True):
    """A child reports that the set of clouds below it has changed; the parent stores the new
    set."""

    clouds: Clouds


class WantBorders(TreeMessageBase, frozen=True):
    """A parent lists the border routers of the child's scope at which it or a broker above has
    channels.

    The child answers with one `BorderReported` for each router, and with the links between them.
    """

    routers: Annotated[tuple[NameText, ...], msgspec.Meta(max_length=BORDERS_MAX)]


class BorderReported(TreeMessageBase, frozen=True, tag="BorderTold"):
    """A child reports the addresses of a wanted border router and whether the router is up.

    The child sends the message after `WantBorders` and whenever a value changes; the owner of the
    router's channels then opens or closes them. The ports are 0 while the router has not reported.
    `counts_data_as_life` is copied from the router's report. `silent_ms_max` is the shortest
    silence after which the cloud declares a channel down; 0 from a broker of an earlier release.
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
    """Fastest path through a child's scope from one border router to another, at present.

    Free capacity is given by mode, the baseline being mode 0; an absent mode is as the baseline.
    None means unbounded. The values are hints for planning; only a reservation guarantees capacity.
    `link_disjoint` is how many paths from the one router to the other share no channel, and
    `node_disjoint` how many share no router between the two; counting ends at `WAYS_MAX`, and
    where the borders are many it is an upper bound. A child of an earlier release counts as one.
    """

    from_router: NameText
    to_router: NameText
    latency_us: LatencyUs
    free_bytes_per_s: Free | None = None
    free_events_per_s: Free | None = None
    link_disjoint: Ways = 1
    node_disjoint: Ways = 1


class Trap(Struct, frozen=True, tag="Knot"):
    """Two entries and two exits that no two disjoint paths join; most scopes have none."""

    entries: tuple[NameText, NameText]
    exits: tuple[NameText, NameText]


class AbstractLinksReported(TreeMessageBase, frozen=True, tag="CrossingsTold"):
    """A child reports all abstract links between the wanted borders, in pages.

    The list replaces the previous one. The child sends it after `WantBorders`, and when a link
    changes by more than a tenth; the parent plans with it.
    """

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

    `channel.level` is the depth of the channel's owner. The address is that of the router at the
    other end. `probes_only_when_idle` is as in `ChannelOrder`. `silent_ms_max` is the longest of
    the silence limits that the clouds of both ends have reported and of the one that the bandwidth
    allows; the receiver uses no shorter limit.
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
    """The owner of channels between clouds asks a child to order them at its border routers.

    A leaf broker stores the channels, sends them to its routers and reports their states. With
    `is_whole` the pages up to the last one are the complete list, and the child closes all other
    channels.
    """

    channels: Annotated[tuple[BorderChannel, ...], msgspec.Meta(max_length=MANY_MAX)]
    is_whole: bool = False
    page: Count = 0
    is_last: bool = True


class CloseBorder(TreeMessageBase, frozen=True):
    """The owner has removed a channel; the child closes it once no segment uses it."""

    channel_id: int


class BorderChannelReported(TreeMessageBase, frozen=True, tag="BorderChannelTold"):
    """A child passes on what a border router reported of a channel between clouds.

    `is_up` comes from the receiving router (silence), `is_pressed` from the sending router (back
    pressure); None means unchanged. The owner plans around channels that are down or congested.
    """

    channel_id: int
    is_up: bool | None = None
    is_pressed: bool | None = None


class BorderSeedWanted(TreeMessageBase, frozen=True):
    """A cloud reports that a border router has a new session, and needs seeds of this channel.

    The owner of the channel begins an exchange of seeds once both ends have said so. A leaf broker
    sends it for each sealed channel when a border router reports, and for all after each join.
    """

    since: ClassVar[int] = KEYS_SCHEMA

    channel_id: int
    router: NameText


class BorderSeed(TreeMessageBase, frozen=True):
    """The owner of a channel between clouds gives one of its ends a seed, through the tree.

    The leaf broker of `router` passes it on as `ChannelSeed`; nobody on the way keeps it.
    """

    since: ClassVar[int] = KEYS_SCHEMA

    router: NameText
    seed: ChannelSeed


class BorderSeedAccepted(TreeMessageBase, frozen=True):
    """The receiving router of a channel between clouds has accepted a seed; passed on to the
    owner."""

    since: ClassVar[int] = KEYS_SCHEMA

    accepted: SeedAccepted


# Identifiers of variables.


class AskNumbers(TreeMessageBase, frozen=True):
    """A child requests a block of variable identifiers; the parent answers with `NumbersLeased`.

    The same `request` number of the same journal is given the same block, so that the child repeats
    the request after each join.
    """

    request: int
    count: Annotated[int, msgspec.Meta(ge=1, le=1 << 24)]


class NumbersLeased(TreeMessageBase, frozen=True):
    """Answer to `AskNumbers`: `count` identifiers from `first` on belong to the child for good.

    A count of 0 means that no identifiers are left.
    """

    request: int
    first: int
    count: int


# Patterns.


class WatchNames(TreeMessageBase, frozen=True):
    """A broker asks for the names that match a pattern in other clouds, now and later.

    The leaf broker of the subscriber sends the message up; the parent sends it down to the clouds
    that the pattern may match. The receivers answer with `NamesFound`, with the names that their
    access rules let `reader` have, the end-point that watches; brokers of earlier releases do not
    tell it. The sender repeats it after each join.
    """

    watch: ContractText
    pattern: NameText
    reader: NameText = ""


class EndWatch(TreeMessageBase, frozen=True):
    """The pattern has ended: the receiver stops sending `NamesFound` for it."""

    watch: ContractText


class NamesFound(TreeMessageBase, frozen=True):
    """Names that match a watched pattern; some of them may have been sent before.

    The subscriber's leaf broker requests a contract for each name that it does not know yet.
    """

    watch: ContractText
    names: Annotated[tuple[NameText, ...], msgspec.Meta(max_length=MANY_MAX)]


# Flooding: what a parent wants flooded in the scope of a child, in two phases like a contract.


ModeNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=MODES_MAX)]
FloodTerms: TypeAlias = Annotated[dict[ModeNumber, FloodTerm], msgspec.Meta(max_length=MODES_MAX)]


class FloodedVariable(Struct, frozen=True):
    """All that a parent wants flooded of one variable, by mode; without terms, nothing.

    The level of a term is the depth of the broker at which flooding was requested, and stays the
    same all the way down. Each parent counts its own generations.
    """

    variable: StatusVariable
    generation: Annotated[int, msgspec.Meta(gt=NO_GENERATION)]
    terms: FloodTerms = msgspec.field(default_factory=dict)


class ReserveFlooding(TreeMessageBase, frozen=True):
    """A parent asks a child to reserve capacity for a flood on every channel of the child's scope.

    The child answers with `FloodingReserved` or `FloodingRefused`. The reservation stands beside
    what is committed.
    """

    flooded: FloodedVariable


class FloodingReserved(TreeMessageBase, frozen=True):
    """Answer to `ReserveFlooding`: the capacity is held, durably, until a commit or release."""

    name: NameText
    generation: int


class FloodingRefused(TreeMessageBase, frozen=True):
    """Answer to `ReserveFlooding`: the child holds nothing of this generation.

    The generation that was committed before stays. The parent releases the other children.
    """

    name: NameText
    generation: int
    refused: RefusedOutcome


class CommitFlooding(TreeMessageBase, frozen=True):
    """A parent has decided: each generation replaces the one that was committed before.

    The child answers each with `FloodingCommitted`. With `is_whole` the list is complete: the child
    drops all other flooding of its parent, except reservations of the variables `in_doubt`, which
    the parent has not decided yet.
    """

    flooded: Annotated[tuple[FloodedVariable, ...], msgspec.Meta(max_length=MANY_MAX)]
    is_whole: bool = False
    in_doubt: Annotated[tuple[NameText, ...], msgspec.Meta(max_length=MANY_MAX)] = ()


class FloodingCommitted(TreeMessageBase, frozen=True):
    """Answer to `CommitFlooding`: durable, and confirmed by the routers that are connected."""

    name: NameText
    generation: int


class ReleaseFlooding(TreeMessageBase, frozen=True):
    """A parent has refused the change: the child drops the reservation."""

    name: NameText
    generation: int


class FloodingEnded(TreeMessageBase, frozen=True):
    """A child reports that a flooded variable is no longer published; the parent ends its flooding.

    Another variable may have the same name by now, so the message carries the identifier; 0 from
    earlier releases.
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
    | BorderSeedWanted
    | BorderSeed
    | BorderSeedAccepted
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
