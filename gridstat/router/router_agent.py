"""The agent of a managed router: a pure state machine between its broker, end-points and core.

States of the broker's session: GONE; REPORTED (the session is up and `ReportRouter` was sent);
ACCEPTED (the broker answered `RouterAccepted` and its orders are followed); FENCED (a message had
an old term, and the session is being closed).

Messages of the broker: `ChangeTable` becomes `ApplyTable` for the core, and is acknowledged by
`TableChanged` with a digest once the core has committed it, or by `TableRefused`; `Return`, `Push`
and `DetachEndPoint` are for end-points (`edge_router.py`). Messages to the broker: `ReportRouter`,
channel states, back-pressure, and counters every second. A `ChannelSeed` becomes `TakeSeed` for the
core, and is answered by `SeedAccepted` if the router receives on that channel.

Without a broker the router forwards by its last table and keeps all channel states (S0 A20); a
broker that returns gets the digest of the table and all states. A broker of a lower term than the
highest seen is refused. A restarted router reports `is_first_time` with an empty table, and gets a
whole one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from secrets import token_bytes
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

import msgspec

from gridstat.model.channel_security import HOP, NONE, Security
from gridstat.model.errors import NotAuthorised, ShuttingDown, StaleTerm
from gridstat.model.keys.channel_keys import KeyNews, KeysFailed, SeedOver, SeedOverdue
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.machine import (
    CancelTimer,
    Close,
    Connected,
    Disconnected,
    Note,
    Persisted,
    PersistFailed,
    Received,
    Send,
    SetTimer,
    TimerFired,
)
from gridstat.net.command.router_messages import (
    ChangeTable,
    ChannelSeed,
    DetachEndPoint,
    Push,
    ReportCounters,
    ReportRouter,
    Return,
    RouterAccepted,
    SeedAccepted,
    TableRefused,
)
from gridstat.router.address_proofs import ADDRESSES_TIMER
from gridstat.router.agent_events import (
    AddressChecked,
    CountersRead,
    Drain,
    ForgetSeeds,
    Leave,
    ReadCounters,
    RouterEvent,
    RouterInstruction,
    SeedTaken,
    SetModes,
    SourcePoliced,
    SourceReceived,
    SourceSilent,
    TableApplied,
    TableFailed,
    TakeSeed,
    WaterMarkCrossed,
)
from gridstat.router.channel_reports import ChannelNews, ChannelReports
from gridstat.router.edge_router import (
    ENDPOINT_ROLE,
    EXPIRY_TIMER,
    EdgeBounds,
    EdgeRouter,
    refuse_endpoint,
)
from gridstat.router.endpoint_seeds import SEEDS_TIMER
from gridstat.router.table_intake import TableIntake

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.core.rows import CopyFacts
    from gridstat.net.command.messages import Message
    from gridstat.net.command.order_table import OrderTable

COUNTERS_TIMER: Final = "counters"
COUNTERS_EVERY_NS: Final = NS_PER_S
BrokerOrder: TypeAlias = ChangeTable | RouterAccepted | Return | Push | DetachEndPoint | ChannelSeed
_NOTE_NAMES: Final = {
    SourceSilent: "source_silent",
    SourceReceived: "source_heard",
    WaterMarkCrossed: "water_mark_crossed",
}


@dataclass(frozen=True, slots=True)
class RouterFacts:
    """Name and addresses of the router; fixed once a broker knows them."""

    name: str
    host: str = ""
    data_port: int = 0
    urgent_port: int = 0
    is_edge: bool = False
    command_host: str = ""
    command_port: int = 0
    datagram_versions: tuple[int, ...] = (1,)
    endpoint_security: Security = HOP
    """Whether the channels of end-points are sealed, as the file says; a router that cannot seal
    what is to be sealed has no end-points."""

    @property
    def broker(self) -> str:
        """The peer in charge: the leaf broker of the router's own cloud."""
        return f"broker/{self.name.split('/')[0]}"


class _Broker(Enum):
    """State of the session with the broker."""

    GONE = auto()
    REPORTED = auto()
    ACCEPTED = auto()
    FENCED = auto()
    """A message had an old term, and the session is being closed."""


class RouterAgent:
    """Follows one broker at a time, the one of the highest term so far, and keeps its whole table.

    `newest` gives the newest event of a carried variable, for end-points that have just subscribed;
    `copies` by which channels it came, for those that ask which of their paths loses.
    """

    def __init__(
        self,
        facts: RouterFacts,
        *,
        newest: Callable[[int], bytes | None],
        copies: Callable[[int], CopyFacts | None] = lambda _: None,
        edge_bounds: EdgeBounds | None = None,
        random_bytes: Callable[[int], bytes] = token_bytes,
    ) -> None:
        self._facts = facts
        self._broker_peer = facts.broker
        self._intake = TableIntake()
        self._edge = (
            EdgeRouter(
                facts.name,
                facts.broker,
                newest=newest,
                copies=copies,
                random_bytes=random_bytes,
                bounds=edge_bounds,
            )
            if facts.is_edge
            else None
        )
        self._broker = _Broker.GONE
        self._term = 0
        self._is_first_time = True
        self._reports = ChannelReports()
        self._tables_refused = 0
        self._terms_refused = 0

    @property
    def table(self) -> OrderTable:
        """Orders that the router has accepted."""
        return self._intake.held

    @property
    def term(self) -> int:
        """The highest term that any broker has shown."""
        return self._term

    @property
    def is_accepted(self) -> bool:
        """True if a broker is in charge at present."""
        return self._broker is _Broker.ACCEPTED

    def listen_at(self, address: tuple[str, int, int], *, command: tuple[str, int]) -> None:
        """Set the addresses for events and commands, before the first session with a broker."""
        assert self._broker is _Broker.GONE
        host, data_port, urgent_port = address
        self._facts = replace(
            self._facts,
            host=host,
            data_port=data_port,
            urgent_port=urgent_port,
            command_host=command[0],
            command_port=command[1],
        )

    def counters(self) -> dict[str, int]:
        """Return the agent's own counters, besides the core's."""
        own = {"tables_refused": self._tables_refused, "terms_refused": self._terms_refused}
        return own if self._edge is None else {**own, **self._edge.counters()}

    def handle(self, event: RouterEvent, now_ns: int) -> list[RouterInstruction]:
        match event:
            case Connected() | Disconnected() | Received() | TimerFired():
                return self._session_event(event, now_ns)
            case Persisted() | PersistFailed():
                return []  # A router has no journal: its broker rebuilds it.
            case Drain() | Leave():
                return self._ending(event)
            case _:
                return self._news(event, now_ns)

    # Events of the core.

    def _news(
        self,
        event: TableApplied
        | TableFailed
        | ChannelNews
        | SourcePoliced
        | CountersRead
        | SeedTaken
        | AddressChecked
        | KeyNews,
        now_ns: int,
    ) -> list[RouterInstruction]:
        match event:
            case TableApplied(number, refused):
                if self._intake.is_newest(number):
                    self._reports.forget_unnamed()
                return self._report_to_broker(self._intake.applied(number, refused))
            case TableFailed():
                self._tables_refused += 1
                note = Note("table_failed", (("code", event.code), ("reason", event.reason)))
                return [note, *self._report_to_broker(self._intake.failed(event))]
            case SourceSilent() | SourceReceived() | WaterMarkCrossed():
                return self._channel_news(event)
            case SourcePoliced():
                return [] if self._edge is None else [*self._edge.report_policed(event, now_ns)]
            case CountersRead(report):
                return self._report_to_broker(self._with_own_counters(report))
            case SeedTaken() | AddressChecked() | SeedOver() | SeedOverdue() | KeysFailed():
                return self._sealed_news(event, now_ns)
            case _:
                assert_never(event)

    def _sealed_news(
        self, event: SeedTaken | AddressChecked | KeyNews, now_ns: int
    ) -> list[RouterInstruction]:
        match event:
            case SeedTaken():
                return self._seed_taken(event, now_ns)
            case AddressChecked():
                return [] if self._edge is None else self._edge.address_checked(event, now_ns)
            case SeedOver() | SeedOverdue() | KeysFailed():
                return [_note_of_keys(event)]
            case _:
                assert_never(event)

    def _channel_news(self, event: ChannelNews) -> list[RouterInstruction]:
        report = self._reports.note(event, self.table)
        if report is None:
            return []
        note = Note(_NOTE_NAMES[type(event)], (("channel_id", event.channel_id),))
        return [note, *self._report_to_broker(report)]

    def _seed_taken(self, event: SeedTaken, now_ns: int) -> list[RouterInstruction]:
        if self._edge is not None and self._edge.gives_seeds_of(event.channel_id):
            return self._edge.seed_taken(event, now_ns)
        accepted = SeedAccepted(
            channel_id=event.channel_id, number=event.number, first_epoch=event.first_epoch
        )
        return self._report_to_broker(accepted)

    def _with_own_counters(self, report: ReportCounters) -> ReportCounters:
        return msgspec.structs.replace(report, router={**report.router, **self.counters()})

    # The sessions.

    def _session_event(
        self, event: Connected | Disconnected | Received | TimerFired, now_ns: int
    ) -> list[RouterInstruction]:
        match event:
            case Received(peer, message):
                return self._received(peer, message, now_ns)
            case Connected(peer, hello):
                return self._connected(peer, hello.instance, now_ns)
            case Disconnected(peer):
                return self._disconnected(peer, now_ns)
            case TimerFired(name):
                return self._timer_fired(name, now_ns)
            case _:
                assert_never(event)

    def _connected(self, peer: str, instance: str, now_ns: int) -> list[RouterInstruction]:
        role, _, name = peer.partition("/")
        if peer == self._broker_peer:
            return self._report()
        if role == ENDPOINT_ROLE:
            if self._edge is None:
                return [*refuse_endpoint(self._facts.name, name)]
            return self._edge.arrive(name, instance, now_ns)
        reason = (
            f"rule: a router's sessions are with {self._broker_peer} and, at an edge router, "
            f"with end-points; {peer} is neither"
        )
        return [Note("peer_refused", (("peer", peer),)), Close(peer, NotAuthorised.code, reason)]

    def _report(self) -> list[RouterInstruction]:
        """Report identity, addresses and the table's digest: a session with the broker is up."""
        facts = self._facts
        self._broker = _Broker.REPORTED
        self._intake.begin_session()
        if self._edge is not None:
            self._edge.broker_reported()
        report = ReportRouter(
            host=facts.host,
            data_port=facts.data_port,
            urgent_port=facts.urgent_port,
            is_first_time=self._is_first_time,
            digest=self._intake.reported_digest,
            term=self._term,
            command_host=facts.command_host,
            command_port=facts.command_port,
            datagram_versions=facts.datagram_versions,
            attached=() if self._edge is None else self._edge.attached(),
            counts_data_as_life=True,
            takes_probe_interval=True,
            endpoint_security=self._endpoint_security(),
            takes_delay=True,
        )
        return [Send(self._broker_peer, report)]

    def _endpoint_security(self) -> Security:
        return NONE if self._edge is None else self._facts.endpoint_security

    def _disconnected(self, peer: str, now_ns: int) -> list[RouterInstruction]:
        if peer == self._broker_peer:
            self._broker = _Broker.GONE
            own: tuple[int, ...] = ()
            if self._edge is not None:
                self._edge.broker_gone()
                own = self._edge.seeded_channels()
            return [Note("broker_gone"), CancelTimer(COUNTERS_TIMER), ForgetSeeds(own)]
        role, _, name = peer.partition("/")
        if role == ENDPOINT_ROLE and self._edge is not None:
            return [*self._edge.depart(name, now_ns)]
        return []

    def _received(self, peer: str, message: Message, now_ns: int) -> list[RouterInstruction]:
        if peer == self._broker_peer:
            return self._from_broker(message, now_ns)
        role, _, name = peer.partition("/")
        if role == ENDPOINT_ROLE and self._edge is not None:
            return self._edge.received(name, message, now_ns)
        return []  # Refused when it connected, and not yet closed.

    def _timer_fired(self, name: str, now_ns: int) -> list[RouterInstruction]:
        if name == COUNTERS_TIMER and self.is_accepted:
            return [ReadCounters(), SetTimer(COUNTERS_TIMER, COUNTERS_EVERY_NS)]
        if name == EXPIRY_TIMER and self._edge is not None:
            return [*self._edge.expire(now_ns)]
        if name == SEEDS_TIMER and self._edge is not None:
            return self._edge.step_seeds(now_ns)
        if name == ADDRESSES_TIMER and self._edge is not None:
            return self._edge.step_proofs(now_ns)
        return []

    def _ending(self, event: Drain | Leave) -> list[RouterInstruction]:
        reason = f"router {self._facts.name} is shutting down"
        match event:
            case Drain():
                return [] if self._edge is None else [*self._edge.drain()]
            case Leave():
                if self._broker is _Broker.GONE:
                    return []
                return [Close(self._broker_peer, ShuttingDown.code, reason)]
            case _:
                assert_never(event)

    # Orders of the broker.

    def _from_broker(self, message: Message, now_ns: int) -> list[RouterInstruction]:
        if self._broker is _Broker.GONE or self._broker is _Broker.FENCED:
            return []
        match message:
            case (
                ChangeTable()
                | RouterAccepted()
                | Return()
                | Push()
                | DetachEndPoint()
                | ChannelSeed()
            ):
                if message.term < self._term:
                    return self._fence(message.term)
                self._term = message.term
                return self._handle_order(message, now_ns)
            case _:
                return [Note("unexpected_message", (("message", type(message).__name__),))]

    def _handle_order(self, order: BrokerOrder, now_ns: int) -> list[RouterInstruction]:
        if isinstance(order, RouterAccepted):
            return self._accepted(order, now_ns)
        if not self.is_accepted:
            return [Note("order_before_acceptance", (("order", type(order).__name__),))]
        if isinstance(order, ChangeTable):
            return self._change(order, now_ns)
        if isinstance(order, ChannelSeed):
            return [TakeSeed(order)]
        if self._edge is None:
            return [Note("order_for_an_edge", (("order", type(order).__name__),))]
        return [*self._edge.handle_order(order, now_ns)]

    def _accepted(self, accepted: RouterAccepted, now_ns: int) -> list[RouterInstruction]:
        self._broker = _Broker.ACCEPTED
        self._is_first_time = False
        facts = (("term", accepted.term), ("is_anew", int(accepted.do_first_time)))
        return [
            Note("broker_accepted", facts),
            SetModes(accepted.mode),
            *(Send(self._broker_peer, report) for report in self._reports.all()),
            SetTimer(COUNTERS_TIMER, COUNTERS_EVERY_NS),
            *(() if self._edge is None else self._edge.broker_accepted(now_ns)),
        ]

    def _change(self, change: ChangeTable, now_ns: int) -> list[RouterInstruction]:
        taken = self._intake.take(change)
        if taken is None:
            return []
        if isinstance(taken, TableRefused):
            self._tables_refused += 1
            note = Note("table_refused", (("number", taken.number), ("reason", taken.reason)))
            return [note, *self._report_to_broker(taken)]
        unheard = self._reports.follow(self.table)
        seeds = () if self._edge is None else self._edge.table_changed(taken.change, now_ns)
        return [taken, *seeds, *(Send(self._broker_peer, report) for report in unheard)]

    def _fence(self, term: int) -> list[RouterInstruction]:
        self._broker = _Broker.FENCED
        self._terms_refused += 1
        if self._edge is not None:
            self._edge.broker_gone()
        reason = f"term {term} is over: a broker of term {self._term} is in charge"
        return [
            Note("term_refused", (("term", term), ("highest", self._term))),
            CancelTimer(COUNTERS_TIMER),
            Close(self._broker_peer, StaleTerm.code, reason),
        ]

    def _report_to_broker(self, message: Message | None) -> list[RouterInstruction]:
        """Send a report if a broker is in charge; states are sent again when one returns."""
        if message is None or not self.is_accepted:
            return []
        return [Send(self._broker_peer, message)]


def _note_of_keys(news: KeyNews) -> Note:
    """Report in words what has become of the keys of a channel."""
    channel = ("channel_id", news.channel_id), ("sends", int(news.is_sender))
    match news:
        case SeedOver():
            hint = "its last seed is too old; bring back the broker, or the end-point's session"
            return Note("seed_over", (*channel, ("hint", hint)), is_warning=True)
        case SeedOverdue():
            hint = (
                "bring back the broker, or the end-point's session; the channel stops 24 h after "
                "its last seed"
            )
            return Note("seed_overdue", (*channel, ("hint", hint)), is_warning=True)
        case KeysFailed():
            hint = "the other channels go on, and this one is tried again; report it as a bug"
            facts = (*channel, ("reason", news.reason), ("hint", hint))
            return Note("keys_failed", facts, is_warning=True)
        case _:
            assert_never(news)
