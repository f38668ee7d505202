"""Dispatch of the requests of end-points to the capabilities that decide them.

A request arrives as `Forward` from an edge router. `request_intake.py` checks it, the capability
that registered its command decides it, and every error refuses it: one request must not stop the
service of the others.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gridstat.broker.leaf_capability import LeafCapability
from gridstat.broker.records.snapshot import answer_snapshot
from gridstat.broker.requests.request_intake import RepeatedSubscribe
from gridstat.model.errors import GridStatError, Refused
from gridstat.net.command.router_messages import Forward

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.effects.registration_effects import RegistrationEffects
    from gridstat.broker.requests.pending_grants import PendingGrants
    from gridstat.broker.requests.request import Request
    from gridstat.broker.requests.request_intake import OpenedRequest, RequestIntake


class CommandDispatcher:
    """Each request that is opened is decided, or refused."""

    def __init__(
        self,
        context: BrokerContext,
        requests: RequestIntake,
        grants: PendingGrants,
        joins: Callable[[Request], bool],
        report_changes: Callable[[bytes], None],
    ) -> None:
        """`joins` returns whether a request continues one from before the broker's last start.

        `report_changes` notifies of contracts with other clouds that differ from a kept answer.
        """
        self._context = context
        self._requests = requests
        self._grants = grants
        self._joins = joins
        self._report_changes = report_changes

    def capability(self, effects: RegistrationEffects) -> LeafCapability:
        """Register requests as such: their arrival, and the answers that are kept."""
        return LeafCapability(
            name="requests",
            operations=effects.answer_operations(),
            snapshot=partial(answer_snapshot, self._context.registry),
            router_messages={Forward: self.take},
        )

    def take(self, edge: str, forward: Forward) -> None:
        if not self._context.tables[edge].is_connected:
            return  # The edge forwards the request again once it has reported.
        try:
            opened = self._requests.open(edge, forward)
            if isinstance(opened, RepeatedSubscribe):
                sent = partial(self._report_changes, opened.answer)
                self._grants.repeat(opened.request, opened.answer, sent)
                return
        except Exception as error:  # One request must not stop the service of the others.
            self._context.note("request_failed", endpoint=forward.endpoint[:80], error=repr(error))
            self._requests.refuse_unreadable(edge, forward)
            return
        if opened is not None:
            self._decide(opened)

    def _decide(self, opened: OpenedRequest) -> None:
        request, command = opened.request, opened.command
        try:
            if not self._joins(request):
                self._context.capabilities.endpoint_commands[type(command)](request, command)
        except GridStatError as error:
            self._requests.refuse(request, error)
        except Exception as error:  # As above; the note is for developers.
            self._context.note("request_failed", endpoint=request.endpoint, error=repr(error))
            self._context.abandon()
            hint = "report this to the operator of the broker: its log has request_failed"
            failed = Refused("the broker failed over this request", hint=hint)
            self._requests.refuse(request, failed)
