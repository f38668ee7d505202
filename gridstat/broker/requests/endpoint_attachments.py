"""Attachments of end-points: attach, loss, restart, grace time, detach (S0 A2, A22, A23).

An end-point is in one of these states:

- attached: it has a session with at least one of its edges.
- absent: it has a session with none. It keeps its contracts and variables for the grace time, and
  an Attach of the same process (incarnation) resumes them.
- ended: by Detach, or when the grace time is over. Its contracts and variables end, and subscribers
  to its variables receive `Unpublished`.

An Attach of another process ends the subscriptions of the first one; its publications are dormant
until they are published again, and end after the grace time. Every Attach and Detach is answered
once it is durable and its edge routers have confirmed, or had their time. A failed write refuses
the request and leaves the end-point where it was; a failed end is tried again by a timer. After a
restart of the broker the grace times begin anew.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from gridstat.broker.leaf_capability import LeafCapability
from gridstat.broker.records.end_operations import Ending
from gridstat.broker.records.operations import Answered, Attached
from gridstat.broker.records.snapshot import endpoint_snapshot
from gridstat.broker.requests.endpoint_presence import AWAY_TIMER, GRACE_TIMER
from gridstat.broker.requests.outcomes import encode_outcomes
from gridstat.broker.requests.request_checks import check_room
from gridstat.broker.routers.receiver_addresses import check_receiver
from gridstat.model.channel_security import HOP, SEALED_VERSION
from gridstat.model.cloud import RouterRole
from gridstat.model.errors import (
    EndPointExists,
    LayoutError,
    NoCommonVersion,
    NoSuchRouter,
    NotAuthorised,
    QuotaReached,
    SecurityNotSatisfiable,
    WrongCloud,
)
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.endpoint_messages import Attach, AttachedOutcome, Detach, DoneOutcome
from gridstat.net.command.router_messages import AttachmentChanged

if TYPE_CHECKING:
    from gridstat.broker.context import BrokerContext
    from gridstat.broker.effects.registration_effects import RegistrationEffects
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.records.registry import Attachment, EndPoint
    from gridstat.broker.requests.endpoint_presence import EndPointPresence
    from gridstat.broker.requests.notices import Notices
    from gridstat.broker.requests.request import Request
    from gridstat.broker.requests.request_intake import RequestIntake
    from gridstat.broker.tables.channel_plan import ChannelPlan
    from gridstat.broker.tables.confirmation import Confirmation
    from gridstat.net.command.endpoint_signatures import CertificateFacts

DORMANT_TIMER: Final = "dormant/"
FRESH: Final = 0
LINK_WAS_LOST: Final = 1
WAS_RESTARTED: Final = 3
EDGE_WAS_RESTARTED: Final = 4
"""The source's codes of a good attachment (S0 §3.11)."""


class EndPointAttachments:
    """At most one live process has a name; an absent one keeps its state for the grace time."""

    def __init__(
        self,
        context: BrokerContext,
        requests: RequestIntake,
        notices: Notices,
        channel_plan: ChannelPlan,
        presence: EndPointPresence,
    ) -> None:
        self._presence = presence
        self._context = context
        self._requests = requests
        self._notices = notices
        self._channel_plan = channel_plan

    def capability(self, effects: RegistrationEffects) -> LeafCapability:
        """Register end-points: their attachments, and their presence at edges."""
        return LeafCapability(
            name="end-points",
            operations=effects.endpoint_operations(),
            snapshot=partial(endpoint_snapshot, self._context.registry),
            resume=self.resume,
            endpoint_commands={Attach: self.attach, Detach: self.detach},
            router_messages={AttachmentChanged: self._presence.attachment_changed},
            named_timers={
                GRACE_TIMER: self.grace_ended,
                DORMANT_TIMER: self.dormancy_ended,
                AWAY_TIMER: self._presence.edge_is_absent,
            },
            router_reported=self._presence.edge_reported,
            router_lost=self._presence.edge_lost,
            # The rollback may restore attachments whose sessions were lost meanwhile.
            rolled_back=self._presence.rolled_back,
        )

    def attach(self, request: Request, command: Attach) -> None:
        """Attach an end-point, or raise the error that refuses it."""
        registry, edge, facts = self._context.registry, command.edge, request.facts
        assert facts is not None, "the intake checks the certificate of an Attach"
        endpoint = registry.endpoints.get(request.endpoint)
        self._check(request.endpoint, edge, command, endpoint)
        if endpoint is not None and edge not in endpoint.attachments:
            check_room(self._context, endpoint, edge)
        ending = Ending()
        code = FRESH
        if endpoint is None:
            code = FRESH if command.first_time else WAS_RESTARTED
        elif endpoint.incarnation != command.incarnation:
            ending.restart(registry, endpoint)
            code = WAS_RESTARTED
        elif (known := endpoint.attachments.get(edge)) is not None:
            is_same_edge = known.edge_instance == registry.reports[edge].instance
            code = LINK_WAS_LOST if is_same_edge else EDGE_WAS_RESTARTED
        elif endpoint.is_restarted:
            code = WAS_RESTARTED
        attached = self._attached(request, edge, command, facts, endpoint, code=code)
        outcome = self._outcome(attached, endpoint, code=code)
        body = encode_outcomes((outcome,))
        operations = [
            *ending.operations,
            attached,
            Answered(endpoint=request.endpoint, request_id=request.request_id, body=body),
        ]
        is_other_process = bool(ending.operations)
        routers = ending.routers | {edge}
        then = partial(
            self._when_attached, request, body, routers, is_other_process=is_other_process
        )
        lost_ns = None if endpoint is None else endpoint.lost_ns
        self._presence.session_found(edge, request.endpoint)
        self._context.commit(operations, then, partial(self._when_not_attached, request))
        if code in {LINK_WAS_LOST, EDGE_WAS_RESTARTED}:
            since_ns = self._context.now_ns if lost_ns is None else lost_ns
            self._notices.repeat(request.endpoint, edge, lost_ns=since_ns)

    def detach(self, request: Request, _: Detach) -> None:
        """End an end-point, which is known: others are answered at the intake."""
        endpoint = self._context.registry.endpoints[request.endpoint]
        ending = Ending()
        ending.end(self._context.registry, endpoint, request_id=request.request_id)
        then = partial(self._when_ended, endpoint.name, ending, request)
        self._requests.commit(request, ending.operations, then)

    # Timers.

    def grace_ended(self, name: str) -> None:
        endpoint = self._context.registry.endpoints.get(name)
        if endpoint is None or endpoint.lost_ns is None:
            return
        if endpoint.is_up:
            # An attachment is being written, and may fail.
            self._context.set_timer(GRACE_TIMER + name, self._context.settings.retry_after_ns)
            return
        left_ns = endpoint.lost_ns + self._context.settings.grace_ns - self._context.now_ns
        if left_ns > 0:
            self._context.set_timer(GRACE_TIMER + name, left_ns)
            return
        ending = Ending()
        ending.end(self._context.registry, endpoint)
        self._context.note("grace_is_over", endpoint=name)
        self._context.commit(
            ending.operations,
            partial(self._when_ended, name, ending, None),
            partial(self._retry, GRACE_TIMER + name),
        )

    def dormancy_ended(self, name: str) -> None:
        """End the publications that a restarted publisher has not published again."""
        endpoint = self._context.registry.endpoints.get(name)
        if endpoint is None:
            return
        publications = self._context.registry.publications
        ending = Ending()
        dormant = [found for found in endpoint.publications if publications[found].is_dormant]
        ending.withdraw(self._context.registry, dormant)
        if ending.operations:
            self._context.commit(
                ending.operations,
                partial(self._push_notices, ending),
                partial(self._retry, DORMANT_TIMER + name),
            )

    def resume(self) -> None:
        """Begin the grace times anew, after a start.

        End-points lose their sessions with edges that are no longer in the broker's file.
        """
        registry = self._context.registry
        for name, endpoint in sorted(registry.endpoints.items()):
            publications = registry.publications
            if any(publications[found].is_dormant for found in endpoint.publications):
                self._context.set_timer(DORMANT_TIMER + name, self._context.settings.grace_ns)
        for edge in sorted(registry.attached_to):
            if edge in registry.routers:
                self._context.set_timer(AWAY_TIMER + edge, self._context.settings.grace_ns)
            else:
                self._presence.edge_is_down(edge)

    def _retry(self, timer: str, _: str) -> None:
        """Set a timer again whose end could not be written."""
        self._context.set_timer(timer, self._context.settings.retry_after_ns)

    # Attaching.

    def _check(self, name: str, edge: str, command: Attach, endpoint: EndPoint | None) -> None:
        registry, quotas = self._context.registry, self._context.settings.quotas
        if name.partition("/")[0] != registry.cloud:
            raise WrongCloud(f"{name} does not belong to cloud {registry.cloud}")
        if "/" not in name:
            raise NotAuthorised(f"rule name: {name} is the cloud's own name, not an end-point's")
        if edge not in registry.routers or edge not in registry.reports:
            raise NoSuchRouter(f"router {edge} is being removed, or has not reported yet")
        if registry.routers[edge].role is not RouterRole.EDGE:
            raise NotAuthorised(
                f"rule edge: {edge} is no edge router, so no end-point can attach to it"
            )
        check_receiver(command, of=name)
        self._check_security(name, edge, command.security)
        if endpoint is None:
            if len(registry.endpoints) >= quotas.endpoints_max:
                raise QuotaReached(f"the cloud has {quotas.endpoints_max} end-points already")
        elif endpoint.incarnation != command.incarnation:
            self._check_first_process(endpoint, edge)
        elif edge in endpoint.attachments:
            if (
                endpoint.subscriptions
                and endpoint.attachments[edge].data_port
                and not command.data_port
            ):
                raise LayoutError(
                    f"{name} has subscriptions and attaches without a port to receive them on",
                    hint="attach with the ports of the receiver, or unsubscribe first",
                )
        else:
            there = endpoint.attachments.keys() & registry.routers.keys()
            self._context.quotas.check_sessions(name, there)

    def _check_security(self, name: str, edge: str, security: str) -> None:
        """Raise unless the edge seals the channels of its end-points exactly if this one does."""
        report = self._context.registry.reports[edge]
        wanted = report.endpoint_security
        if wanted == HOP and SEALED_VERSION not in report.datagram_versions:
            raise SecurityNotSatisfiable(
                f'edge router {edge} has endpoint_security = "hop" and cannot seal datagrams, so '
                "that no end-point can attach to it",
                hint=f"install libcrypto of OpenSSL on its machine and allow versions_max = "
                f'{SEALED_VERSION} in its file, or write endpoint_security = "none" there',
            )
        if security != wanted:
            raise SecurityNotSatisfiable(
                f'{name} attaches with security "{security}", and edge router {edge} has '
                f'endpoint_security = "{wanted}"',
                hint=f'connect with security="{wanted}", or change endpoint_security in the '
                "edge router's file; end-points of earlier releases cannot seal",
            )

    def _check_first_process(self, endpoint: EndPoint, edge: str) -> None:
        """Raise if the first process of a name is alive at another edge than the forwarding one.

        At the forwarding edge the first process is gone: an edge has one session a name.
        """
        for other, attachment in sorted(endpoint.attachments.items()):
            is_there = attachment.is_up and not attachment.is_doubtful
            if other != edge and is_there and self._context.tables[other].is_connected:
                raise EndPointExists(
                    f"another process is attached as {endpoint.name}, by {other}",
                    hint="end it, take another name, or wait until its session is lost",
                )

    def _attached(
        self,
        request: Request,
        edge: str,
        command: Attach,
        facts: CertificateFacts,
        endpoint: EndPoint | None,
        *,
        code: int,
    ) -> Attached:
        registry = self._context.registry
        known: Attachment | None = None
        known_since = request.request_id
        if endpoint is not None and endpoint.incarnation == command.incarnation:
            known = endpoint.attachments.get(edge)
            known_since = endpoint.known_since
        return Attached(
            endpoint=facts.name,
            edge=edge,
            edge_instance=registry.reports[edge].instance,
            incarnation=command.incarnation,
            public_key=facts.public_key,
            not_after_s=facts.not_after_s,
            up_channel_id=known.up_channel_id if known else self._context.new_channel_id(),
            down_channel_id=known.down_channel_id if known else self._context.new_channel_id(),
            is_restarted=code == WAS_RESTARTED or bool(endpoint and endpoint.is_restarted),
            host=command.host,
            data_port=command.data_port,
            urgent_port=command.urgent_port,
            datagram_versions=tuple(sorted(command.datagram_versions)),
            security=command.security,
            known_since=known_since,
        )

    def _outcome(
        self, attached: Attached, endpoint: EndPoint | None, *, code: int
    ) -> AttachedOutcome:
        report = self._context.registry.reports[attached.edge]
        version = self._channel_plan.attachment_version(
            attached.edge, attached.datagram_versions, attached.security
        )
        if version == 0:
            raise NoCommonVersion(
                f"{attached.endpoint} and {attached.edge} share no version of the datagram"
            )
        return AttachedOutcome(
            edge=attached.edge,
            host=report.host,
            data_port=report.data_port,
            urgent_port=report.urgent_port,
            up_channel_id=attached.up_channel_id,
            down_channel_id=attached.down_channel_id,
            datagram_version=version,
            code=code,
            kept=() if endpoint is None else tuple(sorted(endpoint.publications)),
            grace_s=self._context.settings.grace_ns / NS_PER_S,
            known_since=attached.known_since,
        )

    def _when_attached(
        self,
        request: Request,
        body: bytes,
        routers: set[str],
        applied: Applied,
        *,
        is_other_process: bool,
    ) -> None:
        if is_other_process:
            self._notices.forget(request.endpoint)
            self._context.set_timer(
                DORMANT_TIMER + request.endpoint, self._context.settings.grace_ns
            )
        endpoint = self._context.registry.endpoints.get(request.endpoint)
        if endpoint is not None:
            self._presence.update_grace(endpoint)
            self._presence.settle_later(endpoint)
        self._requests.send_when_confirmed(request, body, routers, applied)

    def _when_not_attached(self, request: Request, reason: str) -> None:
        """Refuse an attachment that was not written; the end-point is as absent as it was."""
        endpoint = self._context.registry.endpoints.get(request.endpoint)
        if endpoint is not None:
            self._presence.update_grace(endpoint)
        self._requests.fail(request)(reason)

    # Ending.

    def _when_ended(
        self, name: str, ending: Ending, request: Request | None, applied: Applied
    ) -> None:
        """Notify subscribers of an end; answer the Detach that requested it, if there was one."""
        self._push_notices(ending, applied)
        self._notices.forget(name)
        if name not in self._context.registry.endpoints:  # Else it is back with its own timers.
            self._context.cancel_timer(GRACE_TIMER + name)
            self._context.cancel_timer(DORMANT_TIMER + name)
        if request is not None:
            self._context.tables.await_confirmations(
                ending.routers,
                partial(self._answer_detach, request),
                deadline_ns=self._context.now_ns + self._context.settings.confirm_within_ns,
            )

    def _answer_detach(self, request: Request, _: Confirmation) -> None:
        self._requests.answer(request, (DoneOutcome(),))

    def _push_notices(self, ending: Ending, _: Applied) -> None:
        for subscriber, notice in ending.notices:
            self._notices.push(subscriber, notice)
