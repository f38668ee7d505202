"""What end-points ask of their cloud, and what they hear: signed, by way of their edge routers."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import msgspec

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
"""Of whatever one request asks for; more are refused before any of them is looked at."""
PATHS_TOLD_MAX: Final = 16
"""Paths of one ledger, those that a contract has left included."""
ROUTERS_TOLD_MAX: Final = 2 * PATH_ROUTERS_MAX
"""Of one path: after it is granted its last cloud may lead it another way, which may be as long."""


POLICED_REASONS_MAX: Final = 16
"""For which an edge router does not let an event pass; there are fewer at present."""


class Attach(Struct, frozen=True):
    """Register with the cloud through the edge that forwards it; once per edge, up to two.

    `incarnation` is new with every process. `first_time` with a known name says that the process
    was restarted. Ports are those of the end-point's receiver; 0 where it only publishes.
    """

    edge: NameText
    certificate: Annotated[bytes, msgspec.Meta(max_length=16_384)]
    incarnation: ShortText
    first_time: bool
    host: ShortText = ""
    data_port: int = 0
    urgent_port: int = 0
    datagram_versions: Versions = (1,)


class Detach(Struct, frozen=True):
    """Leave the cloud: all publications, subscriptions and attachments of the end-point end."""


class PublicationRequest(Struct, frozen=True):
    """A variable to be published, named below the publisher's own name."""

    variable: StatusVariable


class Publish(Struct, frozen=True):
    """Register variables, many at once; each has an outcome of its own."""

    publications: Annotated[tuple[PublicationRequest, ...], MANY]


class Unpublish(Struct, frozen=True):
    """Withdraw variables; always accepted, and their subscribers are told."""

    names: Annotated[tuple[NameText, ...], MANY]


class ChangePublication(Struct, frozen=True):
    """A new period (and phase) from the answer's `from_ns` on."""

    name: NameText
    period: Period
    phase_ns: int = 0


class SubscriptionRequest(Struct, frozen=True):
    """A variable by name, or every one that a pattern stands for, now and later.

    `value_type` None leaves the type unchecked. `label` is the subscriber's own name for it.
    """

    name: NameText
    qos: ModalQos
    value_type: Any = None
    label: NameText = ""


class Subscribe(Struct, frozen=True):
    """Ask for contracts, many at once; each has an outcome of its own."""

    subscriptions: Annotated[tuple[SubscriptionRequest, ...], MANY]


class Unsubscribe(Struct, frozen=True):
    """An empty tuple ends all of them."""

    subscription_ids: Annotated[tuple[int, ...], MANY] = ()


class ChangeSubscription(Struct, frozen=True):
    """Change a live contract; a refusal leaves the old one."""

    subscription_id: int
    qos: ModalQos


class FindVariables(Struct, frozen=True):
    """The published variables that match a pattern, at most `limit`, in the order of names.

    With `after` only those behind that name, which goes on where an answer that was not complete
    ended.
    """

    pattern: NameText
    limit: int = MANY_MAX
    after: NameText = ""


class ResolveName(Struct, frozen=True):
    """The name service: where a router's command server listens."""

    name: NameText


class PathEntry(Struct, frozen=True):
    """What came by one path of a contract, since it was one; `is_open` while it still is.

    Where nobody can tell the paths apart, `is_counted` is false and the counts say nothing. One in
    `one_in` due slots was looked at, at least, and stands for so many.
    """

    name: ShortText
    routers: Annotated[tuple[NameText, ...], msgspec.Meta(max_length=ROUTERS_TOLD_MAX)] = ()
    expected: Count = 0
    delivered: Count = 0
    lost: Count = 0
    first: Count = 0
    late: Count | None = None
    is_open: bool = True
    is_counted: bool = True
    one_in: Annotated[int, msgspec.Meta(ge=1)] = 1


class LedgerEntry(Struct, frozen=True):
    """What became of one subscription so far, as its subscriber counts; `copies` is by edge.

    With a `variable_id` the edge that passes the report on adds to its answer what it has counted
    of that variable, in `Answer.copies`. Latencies are counted by powers of two of a microsecond,
    empty buckets at the end left out; the gap is the worst of the newest hour that has one.
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
    paths: Annotated[tuple[PathEntry, ...], msgspec.Meta(max_length=PATHS_TOLD_MAX)] = ()
    variable_id: Count = 0
    latency_counts: Annotated[tuple[Count, ...], msgspec.Meta(max_length=BUCKETS)] = ()
    gap_slots_max: Count = 0
    gap_ended_ns: Count = 0


_NOT_COUNTED: Final = {
    "subscription_id",
    "copies",
    "paths",
    "variable_id",
    "latency_counts",
    "gap_slots_max",
    "gap_ended_ns",
}
LEDGER_COUNTS: Final = tuple(
    name for name in LedgerEntry.__struct_fields__ if name not in _NOT_COUNTED
)
"""What a ledger counts, in the order of its columns."""
PATH_COUNTS: Final = ("expected", "delivered", "lost", "first", "late")
"""What a ledger counts of each path; of some it cannot say how many were late."""


class ReportLedger(Struct, frozen=True):
    """Every few seconds, for `gridstat top` and the audit; answered by `DoneOutcome`.

    `impaired` are the subscriptions of which the subscriber was told that paths are down: a broker
    that was restarted since, and finds them whole, tells it so.
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
    """No, and why; the bottleneck is a channel, router or rule, the shortfall in its own unit."""

    code: int
    reason: str
    hint: str = ""
    bottleneck: str = ""
    shortfall: str = ""


class AttachedOutcome(Struct, frozen=True):
    """Where to send events (`up_channel_id`) and what to expect (`down_channel_id`).

    `code` is 0, or the source's 1 (after a link failure), 3 (end-point was restarted, its old
    registrations are gone), 4 (the edge was restarted). `known_since` is the request by which the
    cloud came to know this process; while it stays the same, nothing that was registered is lost.
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

    Its `name` says the place in that order; with its routers it is the path of a ledger. There are
    `ROUTERS_TOLD_MAX` of those at most, as admission sees to; earlier releases had no such bound.
    """

    routers: tuple[str, ...]
    channel_ids: tuple[int, ...]
    latency_us: int
    name: str = ""


class GrantedOutcome(Struct, frozen=True):
    """A contract. Latencies are predictions until a scheduler bounds them.

    A pattern is granted with the subscriptions it has caught so far, each a `Matched` push.
    `detection_ms` is how long it takes at most until a dead channel on its paths is noticed: 0
    where there is no channel, and None, which is unknown, where a broker does not tell it.
    `paths_down` names the paths that do not work at the moment; None where nobody has looked, as
    in answers, and of a broker that does not tell.
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


class DoneOutcome(Struct, frozen=True):
    """What was asked has happened, and there is nothing more to say."""


class FoundOutcome(Struct, frozen=True):
    """What a pattern stands for at present."""

    variables: tuple[StatusVariable, ...]
    is_complete: bool = True


class ResolvedOutcome(Struct, frozen=True):
    """Where the name can be reached."""

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
    """The answer to one command: one outcome for each thing it asked, in its order."""

    outcomes: tuple[Outcome, ...]


class Matched(Struct, frozen=True):
    """A pattern subscription has caught a variable."""

    pattern_id: int
    granted: GrantedOutcome


class Unpublished(Struct, frozen=True):
    """The variable is gone; its subscription waits for the name, or ended if `is_over`.

    `code` and `reason` say why the broker has ended it, where that is not that it was withdrawn.
    """

    subscription_id: int
    name: str
    is_over: bool = True
    code: int = 0
    reason: str = ""


class ContractChanged(Struct, frozen=True):
    """The broker has moved a subscription to other paths, or some are down for now.

    `order` is the broker's term and the number of the notice within it: one that comes by the
    second edge, or is repeated, after a later one is out of date. (0, 0) of a broker that does not
    number them.
    """

    granted: GrantedOutcome
    order: tuple[int, int] = (0, 0)


class PublicationChanged(Struct, frozen=True):
    """From `from_ns` on the variable is published under a new identifier and period."""

    subscription_id: int
    variable: StatusVariable
    granted: GrantedOutcome
    from_ns: int


class ModesChanged(Struct, frozen=True):
    """The active modes as a mask, or those about to become active."""

    modes: int
    next_modes: int = 0


class EventsPoliced(Struct, frozen=True):
    """Events of an end-point's variable that its edge router did not let pass, by reason.

    Said by the edge router itself, at most once a second for each variable. The counts are totals
    of the count that `count_id` names; a router that counts from nothing again gives it another.
    """

    edge: NameText
    variable_id: int
    count_id: int
    counts: Annotated[dict[ShortText, Count], msgspec.Meta(max_length=POLICED_REASONS_MAX)]


Notice: TypeAlias = (
    Matched | Unpublished | ContractChanged | PublicationChanged | ModesChanged | EventsPoliced
)


# The envelopes between an end-point and its edge follow.


class Submit(Struct, frozen=True):
    """A signed command; answered by an `Answer` with the same number, however often it is sent."""

    request_id: int
    body: bytes
    signature: bytes


class EdgeCopies(Struct, frozen=True):
    """Of every n-th slot of a variable: how many came to an edge, and by which channels.

    `ways` has for each channel, 0 being the publisher's own, how many it brought, and how many of
    them before all others. It has missed `passed` less what it brought.
    """

    variable_id: int
    every: int
    passed: int
    ways: dict[int, tuple[int, int]] = msgspec.field(default_factory=dict)


class Answer(Struct, frozen=True):
    """`newest` holds the edge's newest event of each granted variable, as event bytes; `copies`
    what it has counted of the variables for which a report of ledgers asks."""

    request_id: int
    body: bytes
    newest: tuple[bytes, ...] = ()
    copies: tuple[EdgeCopies, ...] = ()


class Notify(Struct, frozen=True, tag="Tell"):
    """A notice; its `body` is a `Notice`."""

    body: bytes
    newest: tuple[bytes, ...] = ()
