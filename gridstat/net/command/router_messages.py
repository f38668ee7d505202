"""What routers and their broker say to each other; every order carries the broker's term."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, TypeAlias

import msgspec

from gridstat.model.rate_law import Period
from gridstat.net.command.session_messages import MANY_MAX, NameText, ShortText, Struct, Versions

Counters: TypeAlias = Annotated[dict[ShortText, int], msgspec.Meta(max_length=256)]
RefusedRows: TypeAlias = Annotated[dict[int, ShortText], msgspec.Meta(max_length=MANY_MAX)]
"""Why a core cannot hold the rows of some variables; of very many, the first."""
ManyCounters: TypeAlias = Annotated[dict[int, Counters], msgspec.Meta(max_length=16_384)]


class ReportRouter(Struct, frozen=True):
    """First message on every session to the broker: who, where, and what table it holds.

    `is_first_time` says that the process is new (a crash or a first start) and its table empty;
    otherwise only the session was lost. `digest` is that of its table (`net/command/digest.py`).
    With `counts_data_as_life` any datagram counts when the router judges whether a silent channel
    has returned; a router of an earlier release counts probes alone, and needs them beside data.
    """

    host: ShortText
    data_port: int
    urgent_port: int
    is_first_time: bool
    digest: int = 0
    term: int = 0
    command_host: NameText = ""
    command_port: int = 0
    datagram_versions: Versions = (1,)
    attached: tuple[NameText, ...] = ()
    counts_data_as_life: bool = False


class TableChanged(Struct, frozen=True):
    """All changes up to `number` of this session are in the core; what the table now digests to.

    All but the `refused` rows: of those the core holds what it held before, or nothing.
    """

    number: int
    digest: int
    refused: RefusedRows = msgspec.field(default_factory=dict)


class TableRefused(Struct, frozen=True):
    """A change could not be made; the broker sends the whole table anew."""

    number: int
    code: int
    reason: str


class ChannelStateChanged(Struct, frozen=True):
    """Seen from a channel's receiving end: probes fell silent, or are heard again."""

    channel_id: int
    is_up: bool
    silent_ms: int = 0


class BackPressureChanged(Struct, frozen=True):
    """A paced channel's queue has crossed its high or, later, its low water mark."""

    since: ClassVar[int] = 2

    channel_id: int
    is_on: bool
    queued_events: int = 0


class ReportCounters(Struct, frozen=True):
    """Every second or so: counters by name, of the core and of each channel and source."""

    router: Counters = msgspec.field(default_factory=dict)
    channels: ManyCounters = msgspec.field(default_factory=dict)
    sources: ManyCounters = msgspec.field(default_factory=dict)


class Forward(Struct, frozen=True):
    """An edge passes on what an attached end-point signed; `edge` is in the session's certificate.

    `signature` covers `body` and the words of `authority.signed_bytes`.
    """

    endpoint: str
    request_id: int
    body: bytes
    signature: bytes


class AttachmentChanged(Struct, frozen=True):
    """An end-point's session with this edge is up or gone; gone is not yet the end of anything."""

    endpoint: str
    is_up: bool


# Orders of the broker follow.


class ChannelOrder(Struct, frozen=True):
    """Open an outgoing channel, or change it. `probe_interval_ms` 0: send no probes.

    With `probes_only_when_idle` a probe is sent only when no event has left for an interval. It is
    ordered where both ends know it: a router that does not would hold another order than was sent.
    """

    channel_id: int
    to: str
    host: str
    data_port: int
    urgent_port: int
    level: int = 1
    floods: bool = False
    mtu_bytes: int = 1_232
    bandwidth_bytes_per_s: int = 0
    queue_events_max: int = 1_024
    datagram_version: int = 1
    probe_interval_ms: int = 0
    probes_only_when_idle: bool = False


class SourceOrder(Struct, frozen=True):
    """Accept what comes on a channel. `silent_ms_max` 0: nobody minds its silence."""

    channel_id: int
    sender: str
    is_publisher: bool = False
    back_channel: int = 0
    silent_ms_max: int = 0


FLOODS_SCHEMA: Final = 3
"""The first schema whose routers know floods; an older one would hold another order than sent."""


class FloodOrder(Struct, frozen=True):
    """Flood every n-th slot, in these modes, to every channel of this level or a deeper one."""

    level: int
    modes: int = 1
    every: int = 1


class VariableOrder(Struct, frozen=True):
    """Carry a variable; `source` is its publisher's channel at the publisher's own edge, else 0.

    A periodic one with a minimum interval is replayed: its stamps are of the past, and the interval
    bounds how fast it may come. An aperiodic one with a phase is belated: its stamps may be old as
    well. (Neither has a flag of its own, so that older routers digest the same order.)
    """

    variable_id: int
    period: Period | None
    phase_ns: int = 0
    source: int = 0
    is_urgent: bool = False
    interval_ns_min: int = 0
    keeps_newest: bool = False
    floods: Annotated[tuple[FloodOrder, ...], msgspec.Meta(max_length=64)] = ()


class PathOrder(Struct, frozen=True):
    """One way of one subscription through this router: every n-th slot to a channel."""

    path_id: int
    variable_id: int
    channel_id: int
    every: int = 1
    modes: int = 1
    priority: int = 3


class ChangeTable(Struct, frozen=True):
    """A change of a table, done in the order torn down, dropped, closed, opened, carried, set up.

    Numbers count from 1 in each session. With `begins_anew` the orders up to `is_last` are the
    whole table, and what they do not name goes; until then they wait.
    """

    term: int
    number: int
    begins_anew: bool = False
    is_last: bool = True
    torn_down: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()
    closed_channels: tuple[int, ...] = ()
    closed_sources: tuple[int, ...] = ()
    channels: tuple[ChannelOrder, ...] = ()
    sources: tuple[SourceOrder, ...] = ()
    variables: tuple[VariableOrder, ...] = ()
    paths: tuple[PathOrder, ...] = ()


class RouterAccepted(Struct, frozen=True):
    """The answer to `ReportRouter`; `do_first_time` announces a whole table."""

    term: int
    mode: int = 1
    do_first_time: bool = False


class Return(Struct, frozen=True):
    """The broker's answer to a `Forward`, for the edge to hand to its end-point."""

    term: int
    endpoint: str
    request_id: int
    body: bytes


class Push(Struct, frozen=True):
    """A notice for an end-point, by way of its edge."""

    term: int
    endpoint: str
    body: bytes


class DetachEndPoint(Struct, frozen=True):
    """The end-point no longer belongs to this edge; its session is to be closed."""

    term: int
    endpoint: str
    code: int = 0
    reason: str = ""
