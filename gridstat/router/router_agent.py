"""What a managed router says and does: a pure machine between its broker, end-points and core.

The broker's orders become `ApplyTable`, the core's news becomes reports, end-points are served by
`edge_router.py`. Without a broker everything goes on and nothing is forgotten (S0 A20); when one
returns, it hears what the router holds and how its channels are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

import msgspec

from gridstat.model.errors import NotAuthorised, ShuttingDown, StaleTerm
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
    DetachEndPoint,
    Push,
    ReportCounters,
    ReportRouter,
    Return,
    RouterAccepted,
    TableRefused,
)
from gridstat.router.agent_events import (
    CountersRead,
    Drain,
    Leave,
    ReadCounters,
    RouterEvent,
    RouterInstruction,
    SetModes,
    SourcePoliced,
    SourceReceived,
    SourceSilent,
    TableApplied,
    TableFailed,
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
from gridstat.router.table_intake import TableIntake

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.core.rows import CopyFacts
    from gridstat.net.command.messages import Message
    from gridstat.net.command.order_table import OrderTable

COUNTERS_TIMER: Final = "counters"
COUNTERS_EVERY_NS: Final = NS_PER_S
BrokerOrder: TypeAlias = ChangeTable | RouterAccepted | Return | Push | DetachEndPoint
_WORD_OF: Final = {
    SourceSilent: "source_silent",
    SourceReceived: "source_heard",
    WaterMarkCrossed: "water_mark_crossed",
}


@dataclass(frozen=True, slots=True)
class RouterFacts:
    """Who the router is and where it listens; all of it is fixed once a broker hears of it."""

    name: str
    host: str = ""
    data_port: int = 0
    urgent_port: int = 0
    is_edge: bool = False
    command_host: str = ""
    command_port: int = 0
    datagram_versions: tuple[int, ...] = (1,)

    @property
    def broker(self) -> str:
        """The peer in charge: the leaf broker of the router's own cloud."""
        return f"broker/{self.name.split('/')[0]}"


class _Broker(Enum):
    """How far the session with the broker has come."""

    GONE = auto()
    REPORTED = auto()
    ACCEPTED = auto()
    FENCED = auto()
    """It spoke with a term that is over, and is being closed."""


class RouterAgent:
    """Obeys one broker at a time, the one of the highest term so far; the table is kept whole.

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
    ) -> None:
        self._facts = facts
        self._broker_peer = facts.broker
        self._intake = TableIntake()
        self._edge = (
            EdgeRouter(facts.name, facts.broker, newest=newest, copies=copies, bounds=edge_bounds)
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
        """What the router was told to hold, and has accepted."""
        return self._intake.held

    @property
    def term(self) -> int:
        """The highest term that any broker has shown."""
        return self._term

    @property
    def is_accepted(self) -> bool:
        """Whether a broker is in charge at present."""
        return self._broker is _Broker.ACCEPTED

    def listen_at(self, address: tuple[str, int, int], *, command: tuple[str, int]) -> None:
        """Where events and commands come in; to be said before there is a broker to report to."""
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
        """What the agent itself counts, beside the core."""
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
                return self._news(event)

    # What the core tells.

    def _news(
        self, event: TableApplied | TableFailed | ChannelNews | SourcePoliced | CountersRead
    ) -> list[RouterInstruction]:
        match event:
            case TableApplied(number, refused):
                return self._say(self._intake.applied(number, refused))
            case TableFailed():
                self._tables_refused += 1
                note = Note("table_failed", (("code", event.code), ("reason", event.reason)))
                return [note, *self._say(self._intake.failed(event))]
            case SourceSilent() | SourceReceived() | WaterMarkCrossed():
                return self._channel_news(event)
            case SourcePoliced():
                return [] if self._edge is None else [*self._edge.tell_policed(event)]
            case CountersRead(report):
                return self._say(self._with_own_counters(report))
            case _:
                assert_never(event)

    def _channel_news(self, event: ChannelNews) -> list[RouterInstruction]:
        report = self._reports.hear(event, self.table)
        if report is None:
            return []
        note = Note(_WORD_OF[type(event)], (("channel_id", event.channel_id),))
        return [note, *self._say(report)]

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
                return self._connected(peer, hello.instance)
            case Disconnected(peer):
                return self._disconnected(peer, now_ns)
            case TimerFired(name):
                return self._timer_fired(name, now_ns)
            case _:
                assert_never(event)

    def _connected(self, peer: str, instance: str) -> list[RouterInstruction]:
        role, _, name = peer.partition("/")
        if peer == self._broker_peer:
            return self._report()
        if role == ENDPOINT_ROLE:
            if self._edge is None:
                return [*refuse_endpoint(self._facts.name, name)]
            return [*self._edge.arrive(name, instance)]
        reason = (
            f"rule: a router's sessions are with {self._broker_peer} and, at an edge router, "
            f"with end-points; {peer} is neither"
        )
        return [Note("peer_refused", (("peer", peer),)), Close(peer, NotAuthorised.code, reason)]

    def _report(self) -> list[RouterInstruction]:
        """A session with the broker is up: say who and where we are, and what we hold."""
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
        )
        return [Send(self._broker_peer, report)]

    def _disconnected(self, peer: str, now_ns: int) -> list[RouterInstruction]:
        if peer == self._broker_peer:
            self._broker = _Broker.GONE
            if self._edge is not None:
                self._edge.broker_gone()
            return [Note("broker_gone"), CancelTimer(COUNTERS_TIMER)]
        role, _, name = peer.partition("/")
        if role == ENDPOINT_ROLE and self._edge is not None:
            return [*self._edge.depart(name, now_ns)]
        return []

    def _received(self, peer: str, message: Message, now_ns: int) -> list[RouterInstruction]:
        if peer == self._broker_peer:
            return self._from_broker(message, now_ns)
        role, _, name = peer.partition("/")
        if role == ENDPOINT_ROLE and self._edge is not None:
            return [*self._edge.hear(name, message, now_ns)]
        return []  # Refused when it connected, and not yet gone.

    def _timer_fired(self, name: str, now_ns: int) -> list[RouterInstruction]:
        if name == COUNTERS_TIMER and self.is_accepted:
            return [ReadCounters(), SetTimer(COUNTERS_TIMER, COUNTERS_EVERY_NS)]
        if name == EXPIRY_TIMER and self._edge is not None:
            return [*self._edge.expire(now_ns)]
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

    # What the broker orders.

    def _from_broker(self, message: Message, now_ns: int) -> list[RouterInstruction]:
        if self._broker is _Broker.GONE or self._broker is _Broker.FENCED:
            return []
        match message:
            case ChangeTable() | RouterAccepted() | Return() | Push() | DetachEndPoint():
                if message.term < self._term:
                    return self._fence(message.term)
                self._term = message.term
                return self._obey(message, now_ns)
            case _:
                return [Note("unexpected_message", (("message", type(message).__name__),))]

    def _obey(self, order: BrokerOrder, now_ns: int) -> list[RouterInstruction]:
        if isinstance(order, RouterAccepted):
            return self._accepted(order, now_ns)
        if not self.is_accepted:
            return [Note("order_before_acceptance", (("order", type(order).__name__),))]
        if isinstance(order, ChangeTable):
            return self._change(order)
        if self._edge is None:
            return [Note("order_for_an_edge", (("order", type(order).__name__),))]
        return [*self._edge.obey(order, now_ns)]

    def _accepted(self, accepted: RouterAccepted, now_ns: int) -> list[RouterInstruction]:
        self._broker = _Broker.ACCEPTED
        self._is_first_time = False
        facts = (("term", accepted.term), ("is_anew", int(accepted.do_first_time)))
        return [
            Note("broker_accepted", facts),
            SetModes(accepted.mode),
            *(Send(self._broker_peer, report) for report in self._reports.everything()),
            SetTimer(COUNTERS_TIMER, COUNTERS_EVERY_NS),
            *(() if self._edge is None else self._edge.broker_accepted(now_ns)),
        ]

    def _change(self, change: ChangeTable) -> list[RouterInstruction]:
        said = self._intake.take(change)
        if said is None:
            return []
        if isinstance(said, TableRefused):
            self._tables_refused += 1
            note = Note("table_refused", (("number", said.number), ("reason", said.reason)))
            return [note, *self._say(said)]
        self._reports.forget_closed(self.table)
        return [said]

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

    def _say(self, message: Message | None) -> list[RouterInstruction]:
        """Say it if a broker listens; what matters is said again when one does."""
        if message is None or not self.is_accepted:
            return []
        return [Send(self._broker_peer, message)]
