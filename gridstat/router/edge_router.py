"""The proxy part of an edge router: sessions of end-points on one side, the broker on the other.

An end-point is unknown, attached, or absent (its session is lost and it may come back). The broker
is gone, reported (it knows who is attached) or accepted (it takes requests).

Messages: an end-point's signed `Submit` becomes `Forward` to the broker, unchanged; the broker's
`Return` becomes `Answer`, its `Push` becomes `Notify`, both with the newest events of what they
grant; `DetachEndPoint` closes a session. The broker gets `AttachmentChanged`. Seeds of the
end-points' channels are exchanged here, without the broker (`endpoint_seeds.py`), and so are the
proofs of their addresses (`address_proofs.py`).

Loss of the broker: requests in flight wait and are forwarded again when the broker accepts the
router; after some lost sessions, or when the end-point has not repeated it for long, a request is
dropped. Loss of an end-point: notices and reports of policed events are kept for a minute, two at
most, and sent when the same process is back, with the reports that the lost session may not have
delivered; a new process of the same name drops them and the old one's requests.

Pure: `router_agent.py` calls it and collects its instructions. An inner router has no such part,
and refuses end-points.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, assert_never

import msgspec

from gridstat.model.errors import (
    MalformedFrame,
    NotAuthorised,
    QuotaReached,
    ShuttingDown,
    WrongCloud,
)
from gridstat.model.keys.key_settings import KEYS_DEFAULT, KeySettings
from gridstat.net.command.endpoint_messages import (
    Answer,
    EventsPoliced,
    Notify,
    ProveAddress,
    Submit,
)
from gridstat.net.command.endpoint_signatures import check_request_id
from gridstat.net.command.machine import Close, Instruction, Note, Send, SetTimer
from gridstat.net.command.router_messages import (
    AttachmentChanged,
    DetachEndPoint,
    Forward,
    Push,
    Return,
    SeedAccepted,
)
from gridstat.router.address_proofs import AddressProofs
from gridstat.router.edge_attachments import AttachmentBounds, EdgeAttachments
from gridstat.router.edge_copies import copies_for_report
from gridstat.router.endpoint_seeds import EndPointSeeds
from gridstat.router.newest_events import newest_for_answer, newest_for_notice
from gridstat.router.pending_requests import PendingRequests, RequestBounds
from gridstat.router.policed_reports import PublisherChannels

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.core.rows import CopyFacts
    from gridstat.net.command.messages import Message
    from gridstat.net.command.router_messages import ChangeTable
    from gridstat.router.agent_events import (
        AddressChecked,
        RouterInstruction,
        SeedTaken,
        SourcePoliced,
    )

ENDPOINT_ROLE: Final = "endpoint"
EXPIRY_TIMER: Final = "edge/expiry"
_ENCODER: Final = msgspec.msgpack.Encoder()


@dataclass(frozen=True, slots=True)
class EdgeBounds:
    """Bounds of one edge router's work for its end-points."""

    attachments: AttachmentBounds = field(default_factory=AttachmentBounds)
    requests: RequestBounds = field(default_factory=RequestBounds)
    keys: KeySettings = KEYS_DEFAULT
    """Times of the seeds that the edge gives to its end-points."""


class EdgeRouter:
    """Remembers every request until it is answered, its bound is reached or its process is gone;
    reports every change of an attachment to the broker while it listens."""

    def __init__(
        self,
        router: str,
        broker: str,
        *,
        newest: Callable[[int], bytes | None],
        copies: Callable[[int], CopyFacts | None],
        random_bytes: Callable[[int], bytes],
        bounds: EdgeBounds | None = None,
    ) -> None:
        bounds = bounds or EdgeBounds()
        self._router = router
        self._broker = broker
        self._newest = newest
        self._copies = copies
        self._kept_ns_max = bounds.attachments.kept_ns_max
        self._attachments = EdgeAttachments(bounds.attachments)
        self._requests = PendingRequests(bounds.requests)
        self._publishers = PublisherChannels(router)
        self._seeds = EndPointSeeds(bounds.keys, random_bytes)
        self._proofs = AddressProofs()
        self._is_reported = False
        self._is_accepted = False
        self._is_draining = False
        self._is_expiry_timed = False
        self._answers_dropped = 0
        self._refused = 0

    def attached(self) -> tuple[str, ...]:
        return self._attachments.names()

    def counters(self) -> dict[str, int]:
        return {
            "end_points": len(self._attachments),
            "end_points_refused": self._refused,
            "requests_pending": len(self._requests),
            "requests_dropped": self._requests.dropped,
            "answers_dropped": self._answers_dropped,
            "addresses_refused": self._proofs.refused,
            "notices_dropped": self._attachments.notices_dropped + self._publishers.reports_dropped,
            "reports_forgotten": self._publishers.reports_forgotten,
        }

    # The broker's side.

    def broker_reported(self) -> None:
        """Note that the broker knows who is attached; from now on changes are reported."""
        self._is_reported = True

    def broker_accepted(self, now_ns: int) -> list[Instruction]:
        """Forward all unanswered requests, for the first time or again: the broker accepts the
        router."""
        self._is_accepted = True
        ready = self._requests.take_all_ready(now_ns)
        return [self._forward(endpoint, submit) for endpoint, submit in ready]

    def broker_gone(self) -> None:
        self._is_reported = False
        self._is_accepted = False
        self._requests.session_lost()

    def handle_order(self, order: Return | Push | DetachEndPoint, now_ns: int) -> list[Instruction]:
        match order:
            case Return():
                return self._returned(order, now_ns)
            case Push():
                return self._pushed(order)
            case DetachEndPoint():
                return self._detach(order)
            case _:
                assert_never(order)

    def _returned(self, answer: Return, now_ns: int) -> list[Instruction]:
        asked = self._requests.answered(answer.endpoint, answer.request_id)
        next_ones = self._forward_ready(answer.endpoint, now_ns)
        if answer.endpoint not in self._attachments:
            # The end-point repeats the request when it is back, and the broker its answer. If the
            # answer has attached it, nothing else tells the broker that it is not here any more.
            self._answers_dropped += 1
            return [*self._report_attachment(answer.endpoint, is_up=False), *next_ones]
        self._publishers.learn(answer.endpoint, answer.body)
        newest = newest_for_answer(answer.body, self._newest)
        copies = () if asked is None else copies_for_report(asked.body, self._copies)
        message = Answer(
            request_id=answer.request_id, body=answer.body, newest=newest, copies=copies
        )
        reports = self._send_kept_reports(answer.endpoint, now_ns)
        return [Send(_peer(answer.endpoint), message), *reports, *next_ones]

    def _pushed(self, push: Push) -> list[Instruction]:
        if push.endpoint not in self._attachments:
            self._attachments.keep_notice(push.endpoint, push.body)
            return []
        return [self._notify(push.endpoint, push.body)]

    def _detach(self, order: DetachEndPoint) -> list[Instruction]:
        was_here = order.endpoint in self._attachments
        self._attachments.forget(order.endpoint)
        self._publishers.forget(order.endpoint)
        self._requests.forget(order.endpoint)
        return [Close(_peer(order.endpoint), order.code, order.reason)] if was_here else []

    # Seeds of the end-points' channels.

    def table_changed(self, change: ChangeTable, now_ns: int) -> list[RouterInstruction]:
        """Give seeds for the sealed channels of end-points that a change of the table opens."""
        attached = self._attachments.names()
        return [
            *self._seeds.table_changed(change, attached, now_ns),
            *self._proofs.table_changed(change, attached, now_ns),
        ]

    def seeded_channels(self) -> tuple[int, ...]:
        """Return the channels whose seeds this edge gives itself."""
        return self._seeds.channel_ids()

    def gives_seeds_of(self, channel_id: int) -> bool:
        return channel_id in self._seeds

    def seed_taken(self, event: SeedTaken, now_ns: int) -> list[RouterInstruction]:
        return [*self._seeds.taken(event, now_ns)]

    def step_seeds(self, now_ns: int) -> list[RouterInstruction]:
        """Give fresh seeds where they are due."""
        return [*self._seeds.step(now_ns)]

    # Proofs of the end-points' addresses.

    def address_checked(self, event: AddressChecked, now_ns: int) -> list[RouterInstruction]:
        return [*self._proofs.checked(event, now_ns)]

    def step_proofs(self, now_ns: int) -> list[RouterInstruction]:
        """Stop the channels whose address was not proved in time, or ask again later."""
        return [*self._proofs.step(now_ns)]

    # The core's side.

    def report_policed(self, news: SourcePoliced, now_ns: int) -> list[Instruction]:
        """Notify a publisher of its policed events, now or once it has a session again.

        Reports of a channel whose publisher is unknown wait for the answer that attaches it.
        """
        endpoint = self._publishers.endpoint_on(news.channel_id)
        if endpoint is None or endpoint not in self._attachments:
            self._publishers.keep_unsent(news, now_ns)
            return self._time_expiry()
        return [self._send_policed(endpoint, news, now_ns)]

    def _send_kept_reports(self, endpoint: str, now_ns: int) -> list[Send]:
        unsent = self._publishers.take_unsent(endpoint)
        return [self._send_policed(endpoint, report, now_ns) for report in unsent]

    def _send_policed(self, endpoint: str, news: SourcePoliced, now_ns: int) -> Send:
        self._publishers.note_sent(endpoint, news, now_ns)
        notice = EventsPoliced(
            edge=self._router,
            variable_id=news.variable_id,
            count_id=news.count_id,
            counts=news.counts,
        )
        return Send(_peer(endpoint), Notify(body=_ENCODER.encode(notice)))

    # The end-points' side.

    def arrive(self, endpoint: str, instance: str, now_ns: int) -> list[RouterInstruction]:
        """Handle a new session of an end-point."""
        refusal = self._refusal(endpoint)
        if refusal is not None:
            self._refused += 1
            return [refusal]
        before = self._attachments.instance_of(endpoint)
        if before not in {None, instance}:
            self._requests.forget(endpoint)  # A new process has request numbers of its own.
        if before != instance:
            self._publishers.forget(endpoint)  # And events of its own, once it is attached.
        else:
            self._publishers.keep_sent(endpoint, now_ns)  # The session before may not have ended.
        waiting = self._attachments.arrive(endpoint, instance)
        return [
            *self._report_attachment(endpoint, is_up=True),
            *(self._notify(endpoint, body) for body in waiting),
            # The broker's answer may take long; a newer report must not overtake a kept one.
            *self._send_kept_reports(endpoint, now_ns),
            *self._seeds.arrived(endpoint, now_ns),
            *self._proofs.arrived(endpoint, now_ns),
        ]

    def depart(self, endpoint: str, now_ns: int) -> list[RouterInstruction]:
        """Handle the loss of a session; the end-point may come back."""
        if not self._attachments.depart(endpoint, now_ns):
            return []
        self._publishers.keep_sent(endpoint, now_ns)
        self._seeds.departed(endpoint)
        # Forwarded without a session, it would attach an end-point that is not there.
        self._requests.forget_attaching(endpoint)
        return [
            *self._proofs.departed(endpoint),
            *self._report_attachment(endpoint, is_up=False),
            *self._time_expiry(),
        ]

    def received(self, endpoint: str, message: Message, now_ns: int) -> list[RouterInstruction]:
        if endpoint not in self._attachments:
            return []  # It was refused or detached, and has not received that yet.
        if isinstance(message, SeedAccepted):
            return [*self._seeds.accepted(endpoint, message, now_ns)]
        if isinstance(message, ProveAddress):
            return [*self._proofs.received(endpoint, message)]
        if not isinstance(message, Submit):
            self._refused += 1
            name = type(message).__name__
            reason = (
                "rule: an end-point sends `Submit`, `SeedAccepted` or `ProveAddress` to an edge "
                f"router, never `{name}`"
            )
            return [Close(_peer(endpoint), NotAuthorised.code, reason)]
        try:
            check_request_id(message.request_id)
        except MalformedFrame as error:
            self._refused += 1
            return [Close(_peer(endpoint), error.code, str(error.args[0]))]
        self._requests.add(endpoint, message, now_ns)
        return [*self._forward_ready(endpoint, now_ns)]

    def expire(self, now_ns: int) -> list[Instruction]:
        """Forget absent end-points and kept reports whose time is over."""
        for endpoint in self._attachments.expire(now_ns):
            self._requests.forget(endpoint)
            self._publishers.forget(endpoint)
        self._publishers.expire(now_ns - self._kept_ns_max)
        self._is_expiry_timed = False
        if not self._attachments.has_absent() and not self._publishers.has_unsent():
            return []
        return self._time_expiry()

    def _time_expiry(self) -> list[Instruction]:
        """Start the timer unless it runs: a new start would put the expiry of all others off."""
        if self._is_expiry_timed:
            return []
        self._is_expiry_timed = True
        return [SetTimer(EXPIRY_TIMER, self._kept_ns_max)]

    def drain(self) -> list[Instruction]:
        """Close all sessions of end-points; each may have a second edge."""
        self._is_draining = True
        reason = f"edge router {self._router} is shutting down"
        return [
            Close(_peer(endpoint), ShuttingDown.code, reason)
            for endpoint in self._attachments.names()
        ]

    def _refusal(self, endpoint: str) -> Close | None:
        peer = _peer(endpoint)
        if self._is_draining:
            return Close(peer, ShuttingDown.code, f"edge router {self._router} is shutting down")
        if _cloud(endpoint) != _cloud(self._router):
            reason = f"{endpoint} is not of the cloud of edge router {self._router}"
            return Close(peer, WrongCloud.code, reason)
        if endpoint not in self._attachments and not self._attachments.has_room():
            reason = f"edge router {self._router} serves {len(self._attachments)} end-points"
            return Close(peer, QuotaReached.code, f"{reason}, as many as it may")
        return None

    def _forward_ready(self, endpoint: str, now_ns: int) -> list[Instruction]:
        """Forward the end-point's requests within its bound in flight, if there is a broker."""
        if not self._is_accepted:
            return []
        ready = self._requests.take_ready(endpoint, now_ns)
        return [self._forward(endpoint, submit) for submit in ready]

    def _forward(self, endpoint: str, submit: Submit) -> Send:
        message = Forward(
            endpoint=endpoint,
            request_id=submit.request_id,
            body=submit.body,
            signature=submit.signature,
        )
        return Send(self._broker, message)

    def _notify(self, endpoint: str, body: bytes) -> Send:
        newest = newest_for_notice(body, self._newest)
        return Send(_peer(endpoint), Notify(body=body, newest=newest))

    def _report_attachment(self, endpoint: str, *, is_up: bool) -> list[Instruction]:
        if not self._is_reported:
            return []
        return [Send(self._broker, AttachmentChanged(endpoint=endpoint, is_up=is_up))]


def refuse_endpoint(router: str, endpoint: str) -> list[Instruction]:
    """Return the refusal of an end-point by an inner router (S3 §3.1: it knows the last four
    commands)."""
    reason = (
        f"rule: end-points attach to edge routers only, and {router} is none; "
        "ask the name service for an edge router"
    )
    return [
        Note("end_point_refused", (("endpoint", endpoint),)),
        Close(_peer(endpoint), NotAuthorised.code, reason),
    ]


def _peer(endpoint: str) -> str:
    return f"{ENDPOINT_ROLE}/{endpoint}"


def _cloud(name: str) -> str:
    return name.partition("/")[0]
