"""A grant leaves once its paths are up; what cannot be set up is refused and taken back.

After `subscriptions.py` has decided and the disk has it, the routers have the word (S0 A4).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from gridstat.broker.records.operation import Applied
from gridstat.broker.records.operations import Answered, Moved, Unsubscribed
from gridstat.broker.requests.outcomes import encode_outcomes, granted, refused
from gridstat.broker.routers.path_moves import has_confirmed_path, routers_of
from gridstat.model.errors import DeadlinePassed, NoSuchVariable, RouterFull
from gridstat.net.command.endpoint_messages import GrantedOutcome
from gridstat.net.command.frames import decode_outcomes

if TYPE_CHECKING:
    from collections.abc import Callable, Set

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operations import Operation, Subscribed
    from gridstat.broker.requests.request_intake import Request, RequestIntake
    from gridstat.broker.routers.path_moves import PathMoves
    from gridstat.broker.tables.confirmation import Confirmation
    from gridstat.model.errors import GridStatError
    from gridstat.net.command.endpoint_messages import Outcome

OWED_TIMER: Final = "owed"


class PendingGrants:
    """`_owed` are the requests whose answer the disk did not take; it is tried again."""

    def __init__(
        self,
        context: BrokerContext,
        requests: RequestIntake,
        moves: PathMoves,
        way_round: Callable[[Subscribed], Subscribed | None],
    ) -> None:
        self._context = context
        self._requests = requests
        self._moves = moves
        self._way_round = way_round
        self._owed: list[Callable[[], None]] = []

    def await_paths(
        self, request: Request, body: bytes, outcomes: list[Outcome], direct: list[Subscribed]
    ) -> None:
        """Answer with `body` once every router has confirmed `direct`, and in part if they do not.

        What has a path up without the routers that are away does not wait for those.
        """

        def confirmed(waiting: Confirmation) -> None:
            live = self._context.registry.subscriptions
            is_whole = all(
                record.subscription_id in live and not self._refusing(record) for record in direct
            )
            if is_whole and not waiting.silent:
                self._requests.send(request, body)
                return
            silent = set(waiting.silent)
            if not self._lead_round(request, outcomes, direct, silent):
                later = partial(self.await_paths, request, body, outcomes, direct)
                self._answer_in_part(request, outcomes, direct, silent, later)

        def judge(silent: Set[str]) -> bool:
            return all(has_confirmed_path(record, silent) for record in direct)

        self._context.tables.await_confirmations(
            routers_of(direct),
            confirmed,
            deadline_ns=self._context.now_ns + self._context.settings.confirm_within_ns,
            judge=judge,
        )

    def _lead_round(
        self,
        request: Request,
        outcomes: list[Outcome],
        direct: list[Subscribed],
        silent: set[str],
    ) -> bool:
        """Whether contracts that would be refused for a router's row go another way instead."""
        live = self._context.registry.subscriptions
        applied = Applied()
        moved: dict[int, tuple[Subscribed, Subscribed]] = {}
        operations: list[Operation] = []
        for old in direct:
            refusing = self._refusing(old)
            if (
                not refusing
                or old.subscription_id not in live
                or has_confirmed_path(old, silent | refusing)
            ):
                continue
            new = self._way_round(old)
            if new is not None:
                moved[old.subscription_id] = old, new
                operations.append(Moved(subscription=new, until_retired=True))
                self._context.effects.apply(operations[-1], applied)
        if not moved:
            return False
        changed = [
            granted(moved[number][1], live[number].variable, detection=self._context.detection)
            if isinstance(outcome, GrantedOutcome) and (number := outcome.subscription_id) in moved
            else outcome
            for outcome in outcomes
        ]
        body = encode_outcomes(changed)
        answered = Answered(endpoint=request.endpoint, request_id=request.request_id, body=body)
        self._context.effects.apply(answered, applied)
        records = [moved.get(old.subscription_id, (old, old))[1] for old in direct]

        def go_on(_: Applied) -> None:
            for old, new in moved.values():
                self._moves.follow(old, new, _nobody)
            self.await_paths(request, body, changed, records)

        self._context.commit_applied(
            applied,
            [*operations, answered],
            go_on,
            partial(self._owe, partial(self.await_paths, request, body, outcomes, direct)),
        )
        return True

    def again(self, request: Request, body: bytes) -> None:
        """A kept answer is asked for again: not sent before what it grants is up.

        Whether it was sent before is not known after a restart, so nothing is taken back here.
        """
        live = self._context.registry.subscriptions
        records = [
            found.record
            for outcome in decode_outcomes(body).outcomes
            if isinstance(outcome, GrantedOutcome)
            and (found := live.get(outcome.subscription_id)) is not None
            and not found.record.generation  # PathMoves look after themselves.
        ]

        def judge(silent: Set[str]) -> bool:
            return all(has_confirmed_path(record, silent) for record in records)

        def confirmed(waiting: Confirmation) -> None:
            if judge(set(waiting.silent)):
                self._requests.send(request, body)
            else:
                self.again(request, body)

        self._context.tables.await_confirmations(
            routers_of(records),
            confirmed,
            deadline_ns=self._context.now_ns + self._context.settings.confirm_within_ns,
            judge=judge,
        )

    def _answer_in_part(
        self,
        request: Request,
        outcomes: list[Outcome],
        direct: list[Subscribed],
        silent: set[str],
        later: Callable[[], None],
    ) -> None:
        """Some routers kept silent or refused: what works without them is granted, and says so.

        A contract of which no path is up would be a promise without a stream, so it is refused and
        taken back; the silent router drops it when it returns. One that has ended meanwhile, with
        its variable, was never granted. While the disk takes none of this nobody is answered: the
        answer that it has would grant what is not up.
        """
        live = self._context.registry.subscriptions
        dead = {
            record.subscription_id
            for record in direct
            if record.subscription_id not in live
            or not has_confirmed_path(record, silent | self._refusing(record))
        }
        refusing = {record.subscription_id: self._refusing(record) for record in direct}
        changed = [self._in_part(outcome, dead, silent, refusing) for outcome in outcomes]
        body = encode_outcomes(changed)
        operations: list[Operation] = [
            *(Unsubscribed(subscription_id=number) for number in sorted(dead)),
            Answered(endpoint=request.endpoint, request_id=request.request_id, body=body),
        ]
        self._context.commit(
            operations, lambda _: self._requests.send(request, body), partial(self._owe, later)
        )

    def _owe(self, later: Callable[[], None], _: str) -> None:
        self._owed.append(later)
        self._context.set_timer(OWED_TIMER, self._context.settings.retry_after_ns)

    def answer_owed(self) -> None:
        """Look again at what could not be answered; its routers may have confirmed meanwhile."""
        owed, self._owed = self._owed, []
        for answer in owed:
            answer()

    def _refusing(self, record: Subscribed) -> set[str]:
        return self._context.tables.refusing(record.variable_id, routers_of((record,)))

    def _in_part(
        self,
        outcome: Outcome,
        dead: set[int],
        silent: set[str],
        refusing_of: dict[int, set[str]],
    ) -> Outcome:
        if not isinstance(outcome, GrantedOutcome):
            return outcome
        refusing = refusing_of.get(outcome.subscription_id, set())
        if outcome.subscription_id in dead:
            if outcome.subscription_id not in self._context.registry.subscriptions:
                return refused(NoSuchVariable("it was withdrawn while the paths were set up"))
            if refusing:
                return refused(self._cannot_carry(outcome, min(refusing)))
            return refused(self._not_confirmed(outcome, silent))
        here = sorted(refusing | silent & {name for path in outcome.paths for name in path.routers})
        words = tuple(f"router {name} has not confirmed its part yet" for name in here)
        return msgspec.structs.replace(outcome, degraded=(*outcome.degraded, *words))

    def _not_confirmed(self, outcome: GrantedOutcome, silent: set[str]) -> GridStatError:
        """Why no path of an outcome is up: its routers kept silent, or refuse their tables."""
        here = silent & {name for path in outcome.paths for name in path.routers}
        refusals = {name: self._context.tables[name].refusal for name in sorted(here)}
        for name, reason in refusals.items():
            if reason:
                return RouterFull(
                    f"router {name} refuses its table: {reason}",
                    hint=f"subscribe again once `gridstat top` shows {name} in step",
                )
        names = ", ".join(sorted(silent))
        return DeadlinePassed(f"no path could be set up: {names} did not confirm")

    def _cannot_carry(self, outcome: GrantedOutcome, router: str) -> RouterFull:
        assert outcome.variable is not None
        reason = self._context.tables[router].refused[outcome.variable.variable_id]
        return RouterFull(f"router {router} cannot carry {outcome.variable.name}: {reason}")


def _nobody(_: list[str]) -> None:
    """The subscriber is answered when all of its request is up."""
