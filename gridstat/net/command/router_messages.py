"""Messages between a router and the leaf broker of its cloud, and the orders of a router's table.

  router -> broker:  ReportRouter, TableChanged, TableRefused, ChannelStateChanged,
                     BackPressureChanged, ReportCounters, AttachmentChanged, Forward
  broker -> router:  RouterAccepted, ChangeTable, Return, Push, DetachEndPoint

A session begins with ReportRouter. The broker answers with RouterAccepted, compares the reported
digest with that of the wanted table, and sends the whole table if they differ. Then each change is
one ChangeTable with the next number; the router applies it to the core and confirms it with
TableChanged and its new digest. On TableRefused, or a wrong digest, the broker sends the whole
table again, each time after a longer pause.

Every order carries the broker's term: a router ignores a broker of a lower term than it knows. A
router that loses the session, or whose broker restarts, forwards on with the table it has and
reports its digest in the next session. A restarted router reports `is_first_time` and gets the
whole table. A router that is absent too long counts as down, and its paths are moved.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, TypeAlias

import msgspec

from gridstat.model.rate_law import Period
from gridstat.net.command.session_messages import MANY_MAX, NameText, ShortText, Struct, Versions

Counters: TypeAlias = Annotated[dict[ShortText, int], msgspec.Meta(max_length=256)]
RefusedRows: TypeAlias = Annotated[dict[int, ShortText], msgspec.Meta(max_length=MANY_MAX)]
"""Reasons why a core cannot hold the rows of some variables; of very many, the first."""
ManyCounters: TypeAlias = Annotated[dict[int, Counters], msgspec.Meta(max_length=16_384)]


class ReportRouter(Struct, frozen=True):
    """First message of a router on every session: its addresses and the digest of its table.

    The broker answers with `RouterAccepted`. `is_first_time` is true for a new process, whose table
    is empty; otherwise only the session was lost. `digest` is that of the table (`order_table.py`).
    With `counts_data_as_life` the router accepts any datagram as proof that a silent channel has
    returned; a router of an earlier release accepts probes alone, and needs them beside data. With
    `takes_probe_interval` it knows that field of `SourceOrder`.
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
    takes_probe_interval: bool = False


class TableChanged(Struct, frozen=True):
    """A router confirms all changes of this session up to `number`, and sends the digest of its
    table.

    The core holds all of them except the `refused` rows: of those it holds the previous row, or
    none. The broker completes the requests that wait for this router, and moves paths away from
    refused rows.
    """

    number: int
    digest: int
    refused: RefusedRows = msgspec.field(default_factory=dict)


class TableRefused(Struct, frozen=True):
    """A router could not apply a change; the broker sends the whole table again."""

    number: int
    code: int
    reason: str


class ChannelStateChanged(Struct, frozen=True):
    """The receiving router of a channel reports that its probes have stopped, or have returned.

    The broker moves paths away from the channel, or back.
    """

    channel_id: int
    is_up: bool
    silent_ms: int = 0


class BackPressureChanged(Struct, frozen=True):
    """The sending router of a paced channel reports that its queue is above the high-water mark.

    `is_on` false reports that it fell below the low-water mark. The broker plans new paths around
    the channel meanwhile.
    """

    since: ClassVar[int] = 2

    channel_id: int
    is_on: bool
    queued_events: int = 0


class ReportCounters(Struct, frozen=True):
    """A router reports the counters of its core, channels and sources about every second."""

    router: Counters = msgspec.field(default_factory=dict)
    channels: ManyCounters = msgspec.field(default_factory=dict)
    sources: ManyCounters = msgspec.field(default_factory=dict)


class Forward(Struct, frozen=True):
    """An edge router forwards a signed request of an attached end-point; answered by `Return`.

    The edge's name is in the certificate of the session. `signature` covers `body` and the prefix
    of `endpoint_signatures.signed_bytes`; the broker checks it.
    """

    endpoint: str
    request_id: int
    body: bytes
    signature: bytes


class AttachmentChanged(Struct, frozen=True):
    """An edge router reports that the session of an end-point has opened or ended.

    The broker keeps the end-point's registrations for a grace period after the end of its sessions.
    """

    endpoint: str
    is_up: bool


# Orders of the broker follow.


class ChannelOrder(Struct, frozen=True):
    """Order to open an outgoing channel, or to change it. `probe_interval_ms` 0: send no probes.

    With `probes_only_when_idle` a probe is sent only when no event has left for an interval. The
    broker sets it only if both ends know the field: a router that does not would compute another
    digest.
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
    """Order to accept events of a channel. `silent_ms_max` 0: its silence is not reported.

    `probe_interval_ms` is that of the sender, for which a return must last; 0: a quarter of
    `silent_ms_max`. The broker sets it only where it differs from that quarter and the router
    knows the field: a router that does not would compute another digest.
    """

    channel_id: int
    sender: str
    is_publisher: bool = False
    back_channel: int = 0
    silent_ms_max: int = 0
    probe_interval_ms: int = 0


FLOODS_SCHEMA: Final = 3
"""First schema whose routers know floods; an older router would compute another digest."""


class FloodOrder(Struct, frozen=True):
    """Order to flood every n-th slot, in these modes, to all channels of this level or deeper."""

    level: int
    modes: int = 1
    every: int = 1


class VariableOrder(Struct, frozen=True):
    """Order to carry a variable; `source` is the publisher's channel at the publisher's edge, else
    0.

    A periodic variable with a minimum interval is replayed: its time stamps are in the past, and
    the interval bounds its rate. An aperiodic variable with a phase is belated: its time stamps may
    be old as well. (Neither has a flag of its own, so that older routers compute the same digest.)
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
    """Order for one path of one subscription through this router: every n-th slot to a channel."""

    path_id: int
    variable_id: int
    channel_id: int
    every: int = 1
    modes: int = 1
    priority: int = 3


class ChangeTable(Struct, frozen=True):
    """The broker changes a router's table; the router answers with `TableChanged` or
    `TableRefused`.

    The parts are applied in the order torn_down, dropped, closed, channels, sources, variables,
    paths. Numbers count from 1 in each session. With `begins_anew` the changes up to `is_last` are
    the whole table: the router collects them, and removes what they do not name.
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
    """Answer to `ReportRouter`; `do_first_time` announces a whole table.

    The router stores the term, and refuses brokers of lower terms from then on.
    """

    term: int
    mode: int = 1
    do_first_time: bool = False


class Return(Struct, frozen=True):
    """Answer to `Forward`; the edge router sends it to the end-point as `Answer`."""

    term: int
    endpoint: str
    request_id: int
    body: bytes


class Push(Struct, frozen=True):
    """The broker sends a notice to an end-point; the edge router passes it on as `Notify`."""

    term: int
    endpoint: str
    body: bytes


class DetachEndPoint(Struct, frozen=True):
    """The broker detaches an end-point from this edge; the router closes the end-point's
    session."""

    term: int
    endpoint: str
    code: int = 0
    reason: str = ""
