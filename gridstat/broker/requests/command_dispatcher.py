"""Dispatch of the requests of end-points to the capabilities that decide them.

A request arrives as `Forward` from an edge router. `request_intake.py` checks it, the capability
that registered its command decides it, and every error refuses it: one request must not stop the
service of the others.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gridstat.broker.leaf_capability import LeafCapability
from gridstat.broker.records.snapshot import answer_snapshot
from gridstat.broker.requests.fair_queue import (
    IN_A_TURN,
    QUANTUM,
    FairQueue,
    edge_account,
    tokens_of,
    units_of,
)
from gridstat.broker.requests.request import Rest
from gridstat.broker.requests.request_intake import RepeatedSubscribe
from gridstat.model.errors import GridStatError, Refused
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.router_messages import Forward

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.effects.registration_effects import RegistrationEffects
    from gridstat.broker.requests.pending_grants import PendingGrants
    from gridstat.broker.requests.request import Request
    from gridstat.broker.requests.request_intake import OpenedRequest, RequestIntake
    from gridstat.model.errors import QuotaReached
    from gridstat.net.command.endpoint_messages import EndPointCommand

SERVE_TIMER: Final = "serve"
NOTE_NS: Final = NS_PER_S
LOOK_NS: Final = 1_000
"""Time that a look at one more rule or branch of names is charged as, with the path searches."""


class CommandDispatcher:
    """Each request that is opened is decided, or refused; end-points are served in turn."""

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
        requests.go_on = self.go_on
        requests.all_ended = self._all_ended
        requests.searched = self._searched_elsewhere
        self._grants = grants
        self._joins = joins
        self._report_changes = report_changes
        self.queue = FairQueue(context.quotas.of)
        self._serve_at_ns: int | None = None
        """Time of the timer that serves waiting requests, if it is set."""
        self._noted_ns = -NOTE_NS

    def capability(self, effects: RegistrationEffects) -> LeafCapability:
        """Register requests as such: their arrival, and the answers that are kept."""
        return LeafCapability(
            name="requests",
            operations=effects.answer_operations(),
            snapshot=partial(answer_snapshot, self._context.registry),
            router_messages={Forward: self.take},
            timers={SERVE_TIMER: self.serve_waiting},
            router_lost=self.queue.forget_edge,
            survey=self._survey,
        )

    def take(self, edge: str, forward: Forward) -> None:
        """Serve a request at once, or let it wait until its end-point's turn."""
        now_ns = self._context.now_ns
        who = forward.endpoint
        if self._requests.is_attached(edge, who):
            self._context.quotas.note_command(who, tokens_of(forward), now_ns)
        else:
            unfit = self._requests.unattached_refusal(edge, forward)
            if unfit is not None:
                self._requests.refuse_unopened(edge, forward, unfit)
                return
            who = edge_account(edge, who)
        if self.queue.is_free(who, now_ns):
            self.queue.served(who, forward, now_ns)
            self._serve(edge, forward)
            return
        refusal = self.queue.put(edge, forward, now_ns, account=who)
        if refusal is not None:
            self._requests.refuse_unopened(edge, forward, refusal)
            self._note_refused(refusal)
        for other_edge, other, reason in self.queue.take_dropped():
            self._requests.refuse_unopened(other_edge, other, reason)
            self._note_refused(reason)
        self._schedule()

    def serve_waiting(self) -> None:
        """Serve a few waiting requests, end-point by end-point, and set the timer of the next."""
        self._serve_at_ns = None
        units = 0
        while units < IN_A_TURN:
            taken = self.queue.take(self._context.now_ns)
            if taken is None:
                break
            if isinstance(taken, Rest):
                units += QUANTUM
                self._decide_rest(taken)
                continue
            units += units_of(taken[1])
            self._serve(*taken)
        self._schedule()

    def go_on(self, request: Request, work: Callable[[], None]) -> None:
        """Decide a further slice of a request when it is its end-point's turn again."""
        self.queue.put_rest(Rest(request, work), self._context.now_ns)
        self._schedule()

    def _all_ended(self, endpoint: str) -> None:
        self.queue.ended(endpoint, self._context.now_ns)
        self._schedule()

    def _searched_elsewhere(self, endpoint: str, took_ns: int) -> None:
        """Charge an end-point for the searches that its contract has caused in other brokers."""
        self.queue.searched(endpoint, took_ns, self._context.now_ns)

    def _schedule(self) -> None:
        next_ns = self.queue.next_ns(self._context.now_ns)
        if next_ns is None or (self._serve_at_ns is not None and self._serve_at_ns <= next_ns):
            return
        self._serve_at_ns = next_ns
        self._context.set_timer(SERVE_TIMER, next_ns - self._context.now_ns)

    def _note_refused(self, refusal: QuotaReached) -> None:
        """Log that somebody sends too many requests; once a second for all of them.

        The reason says who: an edge router may forward requests that bear other names.
        """
        if self._context.now_ns - self._noted_ns >= NOTE_NS:
            self._noted_ns = self._context.now_ns
            self._context.warn(
                "requests_refused",
                reason=refusal.args[0],
                waiting=self.queue.count,
                refused=self.queue.refused,
                hint=refusal.hint,
            )

    def _survey(self) -> dict[str, Any]:
        queue = self.queue
        return {
            "requests": {
                "waiting": queue.count,
                "delayed": queue.delayed,
                "refused": queue.refused,
                "search_ms": round(queue.search_times.total_ns / 1e6, 3),
            }
        }

    def _serve(self, edge: str, forward: Forward) -> None:
        self._open(edge, forward)
        if not self._requests.has_open(forward.endpoint):  # It was refused, or is answered already.
            self.queue.ended(forward.endpoint, self._context.now_ns)

    def _open(self, edge: str, forward: Forward) -> None:
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
        self._run(opened.request, partial(self._begin, opened.request, opened.command))

    def _begin(self, request: Request, command: EndPointCommand) -> None:
        if not self._joins(request):
            self._context.capabilities.endpoint_commands[type(command)](request, command)

    def _decide_rest(self, rest: Rest) -> None:
        if self._requests.is_open(rest.request):
            self._run(rest.request, rest.work, is_again=True)

    def _run(self, request: Request, work: Callable[[], None], *, is_again: bool = False) -> None:
        self._context.reservations.begin_turn()
        looked = self._looked()
        try:
            work()
        except GridStatError as error:
            self._requests.refuse(request, error)
        except Exception as error:  # As above; the note is for developers.
            self._context.note("request_failed", endpoint=request.endpoint, error=repr(error))
            self._context.abandon()
            hint = "report this to the operator of the broker: its log has request_failed"
            failed = Refused("the broker failed over this request", hint=hint)
            self._requests.refuse(request, failed)
        took_ns = self._context.reservations.end_turn() + LOOK_NS * (self._looked() - looked)
        now_ns = self._context.now_ns
        self.queue.searched(request.endpoint, took_ns, now_ns, is_again=is_again)

    def _looked(self) -> int:
        """Return at how many rules and names all requests with patterns have looked in vain."""
        context = self._context
        return context.permissions.rules.looked + context.registry.name_tree.in_vain
