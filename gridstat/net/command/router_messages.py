"""Messages between a router and the leaf broker of its cloud, and the orders of a router's table.

  router -> broker:  ReportRouter, TableChanged, TableRefused, ChannelStateChanged,
                     BackPressureChanged, ReportCounters, AttachmentChanged, Forward,
                     SeedAccepted
  broker -> router:  RouterAccepted, ChangeTable, Return, Push, DetachEndPoint, ChannelSeed

A session begins with ReportRouter. The broker answers with RouterAccepted, compares the reported
digest with that of the wanted table, and sends the whole table if they differ. Then each change is
one ChangeTable with the next number; the router applies it to the core and confirms it with
TableChanged and its new digest. On TableRefused, or a wrong digest, the broker sends the whole
table again, each time after a longer pause.

Every order carries the broker's term: a router ignores a broker of a lower term than it knows. A
router that loses the session, or whose broker restarts, forwards on with the table it has and
reports its digest in the next session. A restarted router reports `is_first_time` and gets the
whole table. A router that is absent too long counts as down, and its paths are moved.

Keys of sealed channels: the broker sends ChannelSeed to the receiving router of a channel, which
installs it and answers SeedAccepted; then the broker sends the same seed, with the receiver's first
epoch, to the sending router. Both are sent anew in each session, every hour, and after each restart
of either end (`model/keys/seed_giver.py`). An edge router does the same with its end-points.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, TypeAlias

import msgspec

from gridstat.model.channel_security import NONE, Security
from gridstat.model.key_schedule import EPOCH_NS, RESEED_NS, SEED_BYTES, SEED_NS_MAX
from gridstat.model.keys.key_settings import (
    EPOCH_MAX,
    EPOCH_MS_MIN,
    NS_PER_MS,
    KeySettings,
    Seed,
)
from gridstat.model.rate_law import Period
from gridstat.model.stamp_law import DELAY_MS_MAX
from gridstat.net.command.session_messages import MANY_MAX, NameText, ShortText, Struct, Versions

Counters: TypeAlias = Annotated[dict[ShortText, int], msgspec.Meta(max_length=256)]
RefusedRows: TypeAlias = Annotated[dict[int, ShortText], msgspec.Meta(max_length=MANY_MAX)]
"""Reasons why a core cannot hold the rows of some variables; of very many, the first."""
Epoch: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=EPOCH_MAX)]
KEYS_SCHEMA: Final = 4
"""First schema with seeds of sealed channels."""
_EPOCH_MS: Final = EPOCH_NS // NS_PER_MS
_RESEED_MS: Final = RESEED_NS // NS_PER_MS
_LIFE_MS: Final = SEED_NS_MAX // NS_PER_MS
ManyCounters: TypeAlias = Annotated[dict[int, Counters], msgspec.Meta(max_length=16_384)]


class ReportRouter(Struct, frozen=True):
    """First message of a router on every session: its addresses and the digest of its table.

    The broker answers with `RouterAccepted`. `is_first_time` is true for a new process, whose table
    is empty; otherwise only the session was lost. `digest` is that of the table (`order_table.py`).
    With `counts_data_as_life` the router accepts any datagram as proof that a silent channel has
    returned; a router of an earlier release accepts probes alone, and needs them beside data. With
    `takes_probe_interval` it knows that field of `SourceOrder`, with `takes_delay` that of
    `VariableOrder`. A router that knows datagrams of version 3 can seal; `endpoint_security` says
    whether the channels of its end-points are sealed.
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
    endpoint_security: Security = NONE
    takes_delay: bool = False


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


class SeedAccepted(Struct, frozen=True):
    """Answer to `ChannelSeed` of the receiving end: it accepts the seed's keys from this epoch on.

    The giver then sends the seed to the sending end. `number` is that of the seed.
    """

    since: ClassVar[int] = KEYS_SCHEMA

    channel_id: int
    number: int
    first_epoch: Epoch


# Orders of the broker follow.


class ChannelSeed(Struct, frozen=True):
    """Seed of a sealed channel, from its giver: a leaf broker, or an edge router to an end-point.

    Without `first_epoch` (-1) it is for the receiving end, which installs its keys and answers with
    `SeedAccepted`. With it, it is for the sending end, which uses it from the next datagram on. The
    times are those of `KeySettings`. An end that has not opened the channel yet keeps the seed
    until it has, or until the session ends.
    """

    since: ClassVar[int] = KEYS_SCHEMA

    channel_id: int
    number: int
    secret: Annotated[bytes, msgspec.Meta(min_length=SEED_BYTES, max_length=SEED_BYTES)]
    first_epoch: Annotated[int, msgspec.Meta(ge=-1, le=EPOCH_MAX)] = -1
    epoch_ms: Annotated[int, msgspec.Meta(ge=EPOCH_MS_MIN, le=_EPOCH_MS)] = _EPOCH_MS
    reseed_ms: Annotated[int, msgspec.Meta(ge=EPOCH_MS_MIN, le=_RESEED_MS)] = _RESEED_MS
    life_ms: Annotated[int, msgspec.Meta(ge=EPOCH_MS_MIN, le=_LIFE_MS)] = _LIFE_MS
    term: int = 0

    def __repr__(self) -> str:
        return (
            f"ChannelSeed(channel_id={self.channel_id}, number={self.number}, "
            f"first_epoch={self.first_epoch})"
        )

    @property
    def seed(self) -> Seed:
        settings = KeySettings(self.epoch_ms, self.reseed_ms, self.life_ms)
        return Seed(self.channel_id, self.number, self.secret, settings)


def seed_message(seed: Seed, first_epoch: int | None = None, *, term: int = 0) -> ChannelSeed:
    """Return the message that gives a seed to the receiving end, or with an epoch to the sending
    one."""
    return ChannelSeed(
        channel_id=seed.channel_id,
        number=seed.number,
        secret=seed.secret,
        first_epoch=-1 if first_epoch is None else first_epoch,
        epoch_ms=seed.settings.epoch_ms,
        reseed_ms=seed.settings.reseed_ms,
        life_ms=seed.settings.life_ms,
        term=term,
    )


class ChannelOrder(Struct, frozen=True):
    """Order to open an outgoing channel, or to change it. `probe_interval_ms` 0: send no probes.

    With `probes_only_when_idle` a probe is sent only when no event has left for an interval. The
    broker sets it only if both ends know the field: a router that does not would compute another
    digest. With datagram version 3 the channel is sealed; with `is_endpoint` it leads to an
    end-point, to which the router gives the seeds itself. That is said of sealed channels alone.
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
    is_endpoint: bool = False


class SourceOrder(Struct, frozen=True):
    """Order to accept events of a channel. `silent_ms_max` 0: its silence is not reported.

    `probe_interval_ms` is that of the sender, for which a return must last; 0: a quarter of
    `silent_ms_max`. The broker sets it only where it differs from that quarter and the router
    knows the field: a router that does not would compute another digest. A sealed source accepts
    sealed datagrams alone; only routers that can seal are ordered one.
    """

    channel_id: int
    sender: str
    is_publisher: bool = False
    back_channel: int = 0
    silent_ms_max: int = 0
    probe_interval_ms: int = 0
    is_sealed: bool = False


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
    `delay_ms` is how old an event of the publisher may be at this router, its first; 0: 10 s, and
    as much ahead. The broker sets it only at the first router, and if the router knows the field.
    """

    variable_id: int
    period: Period | None
    phase_ns: int = 0
    source: int = 0
    is_urgent: bool = False
    interval_ns_min: int = 0
    keeps_newest: bool = False
    floods: Annotated[tuple[FloodOrder, ...], msgspec.Meta(max_length=64)] = ()
    delay_ms: Annotated[int, msgspec.Meta(ge=0, le=DELAY_MS_MAX)] = 0


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
