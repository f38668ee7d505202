"""Messages of end-points: signed requests to the broker, their outcomes, and notices.

  end-point --Submit--> edge router --Forward--> leaf broker
  end-point <--Answer-- edge router <--Return-- leaf broker     (body: Outcomes)
  end-point <--Notify-- edge router <--Push---- leaf broker     (body: a Notice)

  edge router --AskAddress--> end-point --ProveAddress--> edge router
  end-point <--AddressProved or AddressRefused-- edge router

The body of Submit is one `EndPointCommand`, signed with the key of the end-point's certificate. An
end-point sends Attach first, through one or two edges; then any request through either edge.

Timeouts and restarts. An end-point repeats an unanswered request with the same number, through the
other edge or in the next session; the broker answers a repeated number with the stored answer and
does the work once. A restarted end-point attaches with `first_time`, and the broker ends its old
registrations. A broker that restarts keeps registrations and answers in its journal. The broker
keeps the registrations of an end-point without a session for the grace period, and repeats notices
that may have been lost after the next attachment.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, TypeAlias

import msgspec

from gridstat.model.channel_security import NONE, Security
from gridstat.model.latency_histogram import BUCKETS
from gridstat.model.qos import PATH_ROUTERS_MAX, ModalQos, Qos
from gridstat.model.rate_law import Period
from gridstat.model.status import StatusVariable
from gridstat.net.command.session_messages import (
    MANY_MAX,
    Count,
    NameText,
    ShortText,
    Struct,
    Versions,
)

MANY: Final = msgspec.Meta(max_length=MANY_MAX)
SUBSCRIPTIONS_AT_ONCE: Final = 32
"""Subscriptions that the end-point library asks for in one request; the broker decides a request
in one turn, and refuses those beyond its own bound (`BrokerSettings.subscribe_at_once`)."""
"""Bound on the items of one request; a longer request is refused before any item is handled."""
LEDGER_PATHS_MAX: Final = 16
"""Bound on the paths of one ledger, including those that the contract no longer uses."""
LEDGER_ROUTERS_MAX: Final = 2 * PATH_ROUTERS_MAX
"""Bound on the routers of one path, twice the granted length: its last cloud may reroute it."""


POLICED_REASONS_MAX: Final = 16
"""Bound on the reasons for which an edge router drops a published event; there are fewer now."""


class Attach(Struct, frozen=True):
    """Request to register with the cloud through the forwarding edge; once per edge, up to two.

    Answered by `AttachedOutcome`. `incarnation` is new with every process. `first_time` with a
    known name says that the process was restarted. Ports are those of the end-point's receiver; 0
    for an end-point that only publishes. `security` is that of its channels, which the edge must
    share; end-points of earlier releases do not say it, and cannot seal.
    """

    edge: NameText
    certificate: Annotated[bytes, msgspec.Meta(max_length=16_384)]
    incarnation: ShortText
    first_time: bool
    host: ShortText = ""
    data_port: int = 0
    urgent_port: int = 0
    datagram_versions: Versions = (1,)
    security: Security = NONE


ADDRESS_SCHEMA: Final = 4
"""First schema with proofs of an end-point's address."""


class AskAddress(Struct, frozen=True):
    """Request of an edge router for a counter that the end-point received on this channel.

    Until it is answered with the right one the edge sends probes on the channel and no events, for
    five seconds; then it sends nothing (`AddressRefused`), and asks again later.
    """

    since: ClassVar[int] = ADDRESS_SCHEMA

    channel_id: int


class ProveAddress(Struct, frozen=True):
    """Answer to `AskAddress`: the newest counter that came on the channel.

    The counters begin at random, so that only a receiver at the address knows one. A wrong one is
    asked for again.
    """

    since: ClassVar[int] = ADDRESS_SCHEMA

    channel_id: int
    counter: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class AddressProved(Struct, frozen=True):
    """Notice of an edge router that the address of a channel is proved: events go there.

    Sent after the proof, and in each new session for the channels that are proved already.
    """

    since: ClassVar[int] = ADDRESS_SCHEMA

    channel_id: int


class AddressRefused(Struct, frozen=True):
    """Notice of an edge router that the address of a channel is not proved: nothing is sent there.

    A new session, or another address, begins anew.
    """

    since: ClassVar[int] = ADDRESS_SCHEMA

    channel_id: int
    reason: ShortText
    hint: ShortText = ""


class Detach(Struct, frozen=True):
    """Request to leave the cloud: all publications, subscriptions and attachments end."""


class PublicationRequest(Struct, frozen=True):
    """One variable to be published, named below the publisher's own name."""

    variable: StatusVariable


class Publish(Struct, frozen=True):
    """Request to register variables; each has an outcome of its own, `PublishedOutcome` or a
    refusal."""

    publications: Annotated[tuple[PublicationRequest, ...], MANY]


class Unpublish(Struct, frozen=True):
    """Request to withdraw variables; always accepted, and their subscribers are notified."""

    names: Annotated[tuple[NameText, ...], MANY]


class ChangePublication(Struct, frozen=True):
    """Request for a new period (and phase) of a variable from the answer's `from_ns` on."""

    name: NameText
    period: Period
    phase_ns: int = 0


class SubscriptionRequest(Struct, frozen=True):
    """One subscription: a variable by name, or all present and future variables of a pattern.

    `value_type` None leaves the type unchecked. `label` is the subscriber's own name for it.
    """

    name: NameText
    qos: ModalQos
    value_type: Any = None
    label: NameText = ""


class Subscribe(Struct, frozen=True):
    """Request for contracts; each has an outcome of its own, `GrantedOutcome` or a refusal."""

    subscriptions: Annotated[tuple[SubscriptionRequest, ...], MANY]


class Unsubscribe(Struct, frozen=True):
    """Request to end subscriptions; an empty tuple ends all of them."""

    subscription_ids: Annotated[tuple[int, ...], MANY] = ()


class ChangeSubscription(Struct, frozen=True):
    """Request to change the quality of a contract; a refusal leaves the old contract in force."""

    subscription_id: int
    qos: ModalQos


class FindVariables(Struct, frozen=True):
    """Request for the published variables that match a pattern, at most `limit`, ordered by name.

    With `after` only names behind that one are returned, to continue an incomplete answer. Answered
    by `FoundOutcome`.
    """

    pattern: NameText
    limit: int = MANY_MAX
    after: NameText = ""


class ResolveName(Struct, frozen=True):
    """Request to the name service for the address of a router's command server."""

    name: NameText


class PathEntry(Struct, frozen=True):
    """Counts of the events that arrived by one path of a contract; `is_open` while it is in use.

    `is_counted` is false if the subscriber cannot tell the paths apart; the counts then mean
    nothing. At least one in `one_in` due slots was examined, and stands for that many. The channels
    between the routers have no names if `channel_names` is empty.
    """

    name: ShortText
    routers: Annotated[tuple[NameText, ...], msgspec.Meta(max_length=LEDGER_ROUTERS_MAX)] = ()
    expected: Count = 0
    delivered: Count = 0
    lost: Count = 0
    first: Count = 0
    late: Count | None = None
    is_open: bool = True
    is_counted: bool = True
    one_in: Annotated[int, msgspec.Meta(ge=1)] = 1
    channel_names: Annotated[tuple[NameText, ...], msgspec.Meta(max_length=LEDGER_ROUTERS_MAX)] = ()


class LedgerEntry(Struct, frozen=True):
    """Counts of one subscription's events so far, made by its subscriber; `copies` is by edge.

    With a `variable_id` the edge that forwards the report adds its own counts of that variable to
    the answer, in `Answer.copies`. Latencies are counted by powers of two of a microsecond, without
    empty buckets at the end; the gap is the worst of the newest hour that has one. Of the lost,
    `lost_to_clock` were lost while the publisher's clock was set.
    """

    subscription_id: int
    expected: Count = 0
    delivered: Count = 0
    late: Count = 0
    lost: Count = 0
    duplicate: Count = 0
    extrapolated: Count = 0
    unknown: Count = 0
    recovered: Count = 0
    dropped: Count = 0
    copies: Annotated[tuple[Count, ...], msgspec.Meta(max_length=8)] = ()
    paths: Annotated[tuple[PathEntry, ...], msgspec.Meta(max_length=LEDGER_PATHS_MAX)] = ()
    variable_id: Count = 0
    latency_counts: Annotated[tuple[Count, ...], msgspec.Meta(max_length=BUCKETS)] = ()
    gap_slots_max: Count = 0
    gap_ended_ns: Count = 0
    lost_to_clock: Count = 0


_NOT_COUNTED: Final = {
    "subscription_id",
    "copies",
    "paths",
    "variable_id",
    "latency_counts",
    "gap_slots_max",
    "gap_ended_ns",
    "lost_to_clock",
}
LEDGER_COUNTS: Final = tuple(
    name for name in LedgerEntry.__struct_fields__ if name not in _NOT_COUNTED
)
"""Counts of a ledger, in the order of its columns."""
PATH_COUNTS: Final = ("expected", "delivered", "lost", "first", "late")
"""Counts of each path in a ledger; `late` may be unknown."""


class ReportLedger(Struct, frozen=True):
    """Report of all ledgers every few seconds, for `gridstat top` and the audit.

    Answered by `DoneOutcome`. `impaired` lists the subscriptions that the subscriber believes to
    have broken paths; a restarted broker that finds the paths working notifies the subscriber.
    """

    entries: Annotated[tuple[LedgerEntry, ...], MANY]
    impaired: Annotated[tuple[int, ...], MANY] = ()


class ListenToFloods(Struct, frozen=True, tag="HearFlooded"):
    """Request for every event that floods the end-point's edges, of any variable (S0 A.18).

    The events go to these ports; ports 0 end the delivery. The answer lists the variables that
    flood now; an end-point that receives an event of another variable sends the request again.
    """

    data_port: int = 0
    urgent_port: int = 0


EndPointCommand: TypeAlias = (
    Attach
    | Detach
    | Publish
    | Unpublish
    | ChangePublication
    | Subscribe
    | Unsubscribe
    | ChangeSubscription
    | FindVariables
    | ResolveName
    | ReportLedger
    | ListenToFloods
)


# Answers and notices follow.


class RefusedOutcome(Struct, frozen=True):
    """Refusal with its reason; the bottleneck is a channel, router or rule, with its shortfall."""

    code: int
    reason: str
    hint: str = ""
    bottleneck: str = ""
    shortfall: str = ""


class AttachedOutcome(Struct, frozen=True):
    """Channels of an attachment: `up_channel_id` to send events, `down_channel_id` to receive them.

    `code` is 0, or the source's 1 (after a link failure), 3 (end-point was restarted, its old
    registrations are gone), 4 (the edge was restarted). `known_since` is the request by which the
    cloud first registered this process; while it stays the same, no registration is lost.
    """

    edge: str
    host: str
    data_port: int
    urgent_port: int
    up_channel_id: int
    down_channel_id: int
    datagram_version: int = 1
    modes: int = 1
    code: int = 0
    kept: tuple[str, ...] = ()
    grace_s: float = 0.0
    known_since: int = 0


class PublishedOutcome(Struct, frozen=True):
    """The variable as registered, with its identifier; a change of period holds from `from_ns`."""

    variable: StatusVariable
    from_ns: int = 0


class GrantedPath(Struct, frozen=True):
    """One of the disjoint paths, in order, with its predicted p99 latency.

    `name` gives the position in that order; routers and the names of the channels between them
    identify the path in a ledger. `channel_names` is empty if none has a name. Admission allows at
    most `LEDGER_ROUTERS_MAX` routers; earlier releases had no bound.
    """

    routers: tuple[str, ...]
    channel_ids: tuple[int, ...]
    latency_us: int
    name: str = ""
    channel_names: tuple[str, ...] = ()


class GrantedOutcome(Struct, frozen=True):
    """A granted contract. Latencies are predictions until a scheduler bounds them.

    A pattern is granted with the subscriptions that it has matched so far, each a `Matched` notice.
    `detection_ms` is the longest time until a dead channel on the paths is detected: 0 without
    channels, None (unknown) from a broker that does not report it. `paths_down` names the paths
    that do not work at present; None in answers, and from a broker that does not report it.
    `order` is that of an answer among the contract's notices, as in `ContractChanged`; inside a
    notice that has an order of its own it is not used.
    """

    subscription_id: int
    variable: StatusVariable | None
    granted: dict[int, Qos] = msgspec.field(default_factory=dict)
    paths: tuple[GrantedPath, ...] = ()
    is_node_disjoint: bool = True
    shares_edge: bool = False
    degraded: tuple[str, ...] = ()
    label: str = ""
    detection_ms: Count | None = None
    paths_down: tuple[str, ...] | None = None
    order: tuple[int, int] = (0, 0)


class DoneOutcome(Struct, frozen=True):
    """The request was carried out, and there are no details."""


class FoundOutcome(Struct, frozen=True):
    """Variables that match a pattern at present.

    As the answer to `ListenToFloods`, it also names the sealed channels by which they come.
    """

    variables: tuple[StatusVariable, ...]
    is_complete: bool = True
    sealed_channels: Annotated[tuple[int, ...], MANY] = ()


class ResolvedOutcome(Struct, frozen=True):
    """Address of the command server of a name."""

    host: str
    port: int


Outcome: TypeAlias = (
    RefusedOutcome
    | AttachedOutcome
    | PublishedOutcome
    | GrantedOutcome
    | DoneOutcome
    | FoundOutcome
    | ResolvedOutcome
)


class Outcomes(Struct, frozen=True):
    """Body of `Answer`: one outcome for each item of the request, in its order."""

    outcomes: tuple[Outcome, ...]


# Notices of a broker to an end-point follow. Each has a property `live_subscription_id`: the
# subscription without which a repetition would mislead the end-point; None if it never does.


class Matched(Struct, frozen=True):
    """Notice that a pattern subscription has matched a variable and was granted a contract for
    it."""

    pattern_id: int
    granted: GrantedOutcome

    @property
    def live_subscription_id(self) -> int:
        return self.granted.subscription_id


class Unpublished(Struct, frozen=True):
    """Notice that a variable was withdrawn; with `is_over` the subscription has ended.

    Otherwise the subscription waits for the name. `code` and `reason` are set if the broker has
    ended the subscription for another reason. Without a subscription (0) it is for the publisher:
    the broker has withdrawn its variable, of the identifier `variable_id`; with the name `**` it is
    for a listener to floods, who gets no more of them.
    """

    subscription_id: int
    name: str
    is_over: bool = True
    code: int = 0
    reason: str = ""
    variable_id: int = 0

    @property
    def live_subscription_id(self) -> None:
        return None


class ContractChanged(Struct, frozen=True):
    """Notice that the broker has moved a subscription to other paths, or that paths are down.

    `order` is the broker's term and the number of the notice within the term, counted together with
    answers that grant: the end-point drops a notice that arrives, repeated or by the second edge,
    after a later one. (0, 0) from a broker that does not number notices.
    """

    granted: GrantedOutcome
    order: tuple[int, int] = (0, 0)

    @property
    def live_subscription_id(self) -> int:
        return self.granted.subscription_id


class PublicationChanged(Struct, frozen=True):
    """Notice that the variable has a new identifier and period from `from_ns` on.

    `order` is numbered together with that of `ContractChanged`.
    """

    subscription_id: int
    variable: StatusVariable
    granted: GrantedOutcome
    from_ns: int
    order: tuple[int, int] = (0, 0)

    @property
    def live_subscription_id(self) -> int:
        return self.subscription_id


class ModesChanged(Struct, frozen=True):
    """Notice of the active modes as a mask, and of those about to become active."""

    modes: int
    next_modes: int = 0

    @property
    def live_subscription_id(self) -> None:
        return None


class EventsPoliced(Struct, frozen=True):
    """Notice of an edge router that it dropped events of the end-point's variable, by reason.

    Sent at most once a second for each variable. The counts are totals since the start of the count
    `count_id`; a router that restarts its counts uses another one.
    """

    edge: NameText
    variable_id: int
    count_id: int
    counts: Annotated[dict[ShortText, Count], msgspec.Meta(max_length=POLICED_REASONS_MAX)]

    @property
    def live_subscription_id(self) -> None:
        return None


Notice: TypeAlias = (
    Matched | Unpublished | ContractChanged | PublicationChanged | ModesChanged | EventsPoliced
)


# The envelopes between an end-point and its edge follow.


class Submit(Struct, frozen=True):
    """Signed request of an end-point to its edge router, which sends it on as `Forward`.

    Answered by an `Answer` with the same number, also if it is sent again.
    """

    request_id: int
    body: bytes
    signature: bytes


class EdgeCopies(Struct, frozen=True):
    """Counts of the copies of every n-th slot of a variable at an edge router, by channel.

    `ways` holds for each channel (0 is the publisher's own) how many events it brought, and how
    many of these arrived before all other copies. A channel has missed `passed` less what it
    brought.
    """

    variable_id: int
    every: int
    passed: int
    ways: dict[int, tuple[int, int]] = msgspec.field(default_factory=dict)


class Answer(Struct, frozen=True):
    """Answer of an edge router to `Submit`; its `body` is an `Outcomes`.

    `newest` holds the edge's newest event of each granted variable, as event bytes; `copies` holds
    the counts of the variables that a report of ledgers names.
    """

    request_id: int
    body: bytes
    newest: tuple[bytes, ...] = ()
    copies: tuple[EdgeCopies, ...] = ()


class Notify(Struct, frozen=True, tag="Tell"):
    """Notice of the broker or of the edge router to an end-point; its `body` is a `Notice`."""

    body: bytes
    newest: tuple[bytes, ...] = ()
