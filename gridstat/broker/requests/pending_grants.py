"""Grants between the decision and the answer: one recorded state a request (S0 A4).

`subscriptions.py` decides a Subscribe. From then on `PendingGrants` holds it, under a token:

- WRITING: the journal writes the contracts and the answer. If the write fails, the request is
  refused with `StorageFailed`.
- CONFIRMING: the routers of all paths have their orders and confirm them (`TableChanged`). If all
  confirm, the answer is sent. A router that is absent, silent until `confirm_within_ns`, or that
  refuses a row leads to one of the next two states.
- REROUTING: the journal writes an answer with other paths: those around a router that refuses a
  row, together with the move, or those to which recovery has moved a contract since the decision.
  Then the request is CONFIRMING again, at most until twice `confirm_within_ns` after its first
  confirmation began: contracts that move again and again would delay the answer without end.
- REDUCING: the journal writes an answer that refuses the contracts without any confirmed path,
  which end, and grants the others with a remark. Then this answer is sent.
- RETRYING: the journal failed while REROUTING or REDUCING. No answer is sent, because the one in
  the journal grants paths that are not up. After `retry_after_ns` the request is CONFIRMING again.

A Subscribe that is repeated after its answer was kept goes through two states of its own:

- REPEATING: the kept answer waits until all earlier operations are durable.
- RECONFIRMING: the routers of the granted paths confirm, and the kept answer is sent, followed by a
  notice of each contract that has moved since. After the deadline the wait begins again, for as
  long as no path is up: nobody knows whether the answer was sent before a restart, so nothing is
  revoked.

The end-point repeats an unanswered request. A restart of the broker loses this table and keeps the
journal, so a repeated request then finds its kept answer, and is REPEATING.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import msgspec

from gridstat.broker.records.operation import Applied
from gridstat.broker.records.operations import Answered, Moved, Unsubscribed
from gridstat.broker.requests.outcomes import encode_outcomes, granted, refused
from gridstat.broker.routers.path_moves import has_confirmed_path, routers_of
from gridstat.model.errors import DeadlinePassed, NoSuchVariable, RouterFull
from gridstat.net.command.endpoint_messages import ContractChanged, GrantedOutcome, Matched
from gridstat.net.command.frames import decode_outcomes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence, Set

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operations import Operation, Subscribed
    from gridstat.broker.records.registry import Subscription
    from gridstat.broker.requests.notices import Notices
    from gridstat.broker.requests.request import Request
    from gridstat.broker.requests.request_intake import RequestIntake
    from gridstat.broker.routers.path_moves import PathMoves
    from gridstat.broker.tables.confirmation import Confirmation
    from gridstat.model.errors import GridStatError
    from gridstat.net.command.endpoint_messages import Outcome

GRANT_RETRY_TIMER: Final = "owed"


class GrantState(Enum):
    """Event that a pending grant waits for; the module's docstring explains each."""

    WRITING = auto()
    CONFIRMING = auto()
    REROUTING = auto()
    REDUCING = auto()
    RETRYING = auto()
    REPEATING = auto()
    RECONFIRMING = auto()


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer to a Subscribe: its outcomes, their bytes, and the contracts that must be up."""

    body: bytes
    outcomes: Sequence[Outcome] = ()
    records: Sequence[Subscribed] = ()


@dataclass(slots=True)
class PendingGrant:
    """Request whose answer is not sent yet.

    `reply` is the answer in the journal. `revised` is the answer that the journal is writing in its
    place, and `moves` are the old and new generations of the contracts that it moves. `sent` runs
    once the answer is sent. After `revise_until_ns` contracts that have moved are not confirmed
    again.
    """

    token: int
    request: Request
    state: GrantState
    reply: Reply
    matched: Sequence[Subscribed] = ()
    revised: Reply | None = None
    moves: Sequence[tuple[Subscribed, Subscribed]] = field(default=())
    sent: Callable[[], None] | None = None
    revise_until_ns: int = 0


@dataclass(frozen=True, slots=True)
class Written:
    """The journal holds the operations of the present state."""


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """The journal does not hold them, and their effects are undone."""

    reason: str


@dataclass(frozen=True, slots=True)
class Confirmed:
    """All routers have confirmed but the silent ones, which are absent or out of time."""

    silent: frozenset[str]


@dataclass(frozen=True, slots=True)
class RetryDue:
    """The retry timer has fired."""


GrantEvent: TypeAlias = Written | WriteFailed | Confirmed | RetryDue


class RefusalReplacement(Protocol):
    """Planner of paths around routers that refuse a row (`path_replacement.py`).

    It also knows which paths of a contract do not work.
    """

    def around_refusals(self, record: Subscribed) -> Subscribed | None: ...

    def broken_paths(self, record: Subscribed) -> list[int]: ...


class PendingGrants:
    """`_pending` holds every request that is decided and not answered, by token."""

    def __init__(
        self,
        context: BrokerContext,
        requests: RequestIntake,
        notices: Notices,
        moves: PathMoves,
        replacement: RefusalReplacement,
    ) -> None:
        self._context = context
        self._requests = requests
        self._notices = notices
        self._moves = moves
        self._replacement = replacement
        self._token_last = 0
        self._pending: dict[int, PendingGrant] = {}
        self._retrying: list[int] = []

    def commit(
        self,
        request: Request,
        reply: Reply,
        matched: Sequence[Subscribed],
        applied: Applied,
        operations: Sequence[Operation],
    ) -> None:
        """Write a decision, and send its answer once the paths of `reply.records` are up."""
        grant = self._add(request, GrantState.WRITING, reply, matched)
        self._write(grant, applied, operations)

    def await_paths(
        self,
        request: Request,
        reply: Reply,
        sent: Callable[[], None],
    ) -> None:
        """Send a durable answer once the paths of `reply.records` are up, and then run `sent`."""
        grant = self._add(request, GrantState.CONFIRMING, reply)
        grant.sent = sent
        self._await_routers(grant)

    def repeat(self, request: Request, body: bytes, sent: Callable[[], None]) -> None:
        """Send a kept answer again, once it is durable and the paths that it grants are up.

        Then run `sent`.
        """
        grant = self._add(request, GrantState.REPEATING, Reply(body))
        grant.sent = sent
        if self._context.pending_count:
            self._write(grant, Applied(), ())
        else:
            self._advance(grant.token, Written())

    def retry(self) -> None:
        """Continue the requests whose answer the journal could not take."""
        tokens, self._retrying = self._retrying, []
        for token in tokens:
            self._advance(token, RetryDue())

    def notify_matched(self, matched: Iterable[Subscribed]) -> None:
        """Notify subscribers of contracts that patterns matched, each once its paths are up."""
        self._await_matched(matched, self._revise_until_ns())

    def _await_matched(self, matched: Iterable[Subscribed], revise_until_ns: int) -> None:
        for record in matched:
            self._context.tables.await_confirmations(
                routers_of((record,)),
                partial(self._push_matched, record, revise_until_ns),
                deadline_ns=self._context.now_ns + self._context.settings.confirm_within_ns,
                judge=partial(_are_up, (record,)),
            )

    def states(self) -> list[GrantState]:
        """Return the states of all pending grants, the oldest first."""
        return [grant.state for grant in self._pending.values()]

    # States.

    def _advance(self, token: int, event: GrantEvent) -> None:
        # A grant waits for one event at a time, so each token is used once a state.
        grant = self._pending[token]
        match grant.state, event:
            case GrantState.WRITING, Written():
                self.notify_matched(grant.matched)
                self._await_routers(grant)
            case GrantState.WRITING | GrantState.REPEATING, WriteFailed(reason=reason):
                del self._pending[token]
                self._requests.fail(grant.request)(reason)
            case GrantState.CONFIRMING, Confirmed(silent=silent):
                self._answer_or_revise(grant, silent)
            case GrantState.REROUTING, Written():
                self._follow_moves(grant)
                self._revise(grant)
                self._await_routers(grant)
            case GrantState.REDUCING, Written():
                self._revise(grant)
                self._send(grant)
            case GrantState.REROUTING | GrantState.REDUCING, WriteFailed():
                grant.state, grant.revised, grant.moves = GrantState.RETRYING, None, ()
                self._retrying.append(token)
                self._context.set_timer(GRANT_RETRY_TIMER, self._context.settings.retry_after_ns)
            case GrantState.RETRYING, RetryDue():
                grant.revise_until_ns = 0  # The disk took that time, and not the routers.
                self._await_routers(grant)
            case GrantState.REPEATING, Written():
                self._await_routers_again(grant)
            case GrantState.RECONFIRMING, Confirmed(silent=silent):
                self._answer_or_wait(grant, silent)
            case _:
                raise AssertionError(f"{event} in state {grant.state.name}")

    def _add(
        self,
        request: Request,
        state: GrantState,
        reply: Reply,
        matched: Sequence[Subscribed] = (),
    ) -> PendingGrant:
        self._token_last += 1
        grant = PendingGrant(self._token_last, request, state, reply, matched)
        self._pending[grant.token] = grant
        return grant

    def _write(
        self, grant: PendingGrant, applied: Applied, operations: Sequence[Operation]
    ) -> None:
        self._context.commit_applied(
            applied,
            operations,
            partial(self._written, grant.token),
            partial(self._write_failed, grant.token),
        )

    def _written(self, token: int, _: Applied) -> None:
        self._advance(token, Written())

    def _write_failed(self, token: int, reason: str) -> None:
        self._advance(token, WriteFailed(reason))

    def _confirmed(self, token: int, confirmation: Confirmation) -> None:
        self._advance(token, Confirmed(frozenset(confirmation.silent)))

    def _answer_or_revise(self, grant: PendingGrant, silent: Set[str]) -> None:
        # The routers have confirmed, or not, the paths of the decision. They say nothing about a
        # contract that has moved since.
        is_late = self._context.now_ns >= grant.revise_until_ns
        moved = self._moved_since(grant, silent)
        if moved and is_late:
            reply = self._with_moves(grant, moved)
            unconfirmed = self._context.tables.unconfirmed(routers_of(moved.values()))
            self._reduce(grant, reply, routers_of(reply.records) & (silent | unconfirmed))
        elif moved:
            self._write_moves(grant, moved, [], Applied())
        elif not silent and self._are_confirmed(grant.reply.records):
            self._send(grant)
        elif is_late or not self._reroute(grant, silent):
            self._reduce(grant, grant.reply, silent)

    def _answer_or_wait(self, grant: PendingGrant, silent: Set[str]) -> None:
        if not _are_up(grant.reply.records, silent):
            self._await_routers_again(grant)
            return
        self._send(grant)
        # The kept answer may name earlier paths of these contracts, and the end-point may not have
        # known the contracts when they moved.
        waited = {record.subscription_id for record in grant.reply.records}
        for found in self._live_contracts(grant.reply.body):
            is_known = found.record.subscription_id in waited or self._is_unannounced(found)
            if found.record.generation and not is_known:
                self._push_present(found)

    def _follow_moves(self, grant: PendingGrant) -> None:
        for old, new in grant.moves:
            self._moves.follow(old, new, _no_notice)

    def _await_routers(self, grant: PendingGrant) -> None:
        if not grant.reply.records:
            self._send(grant)
            return
        grant.state = GrantState.CONFIRMING
        grant.revise_until_ns = grant.revise_until_ns or self._revise_until_ns()
        self._await_confirmations(grant)

    def _revise_until_ns(self) -> int:
        return self._context.now_ns + 2 * self._context.settings.confirm_within_ns

    def _await_routers_again(self, grant: PendingGrant) -> None:
        """Wait for the contracts of a kept answer that live and have not moved.

        A contract that has moved is confirmed by its move.
        """
        records = [
            found.record
            for found in self._live_contracts(grant.reply.body)
            if not found.record.generation
        ]
        grant.state = GrantState.RECONFIRMING
        grant.reply = Reply(grant.reply.body, (), records)
        self._await_confirmations(grant)

    def _await_confirmations(self, grant: PendingGrant) -> None:
        # Contracts with a path that avoids the absent routers do not wait for those routers.
        records = grant.reply.records
        self._context.tables.await_confirmations(
            routers_of(records),
            partial(self._confirmed, grant.token),
            deadline_ns=self._context.now_ns + self._context.settings.confirm_within_ns,
            judge=partial(_are_up, records),
        )

    def _send(self, grant: PendingGrant) -> None:
        del self._pending[grant.token]
        self._requests.send(grant.request, grant.reply.body)
        self._notify_changes(grant.reply.records)
        if grant.sent is not None:
            grant.sent()

    def _notify_changes(self, records: Iterable[Subscribed]) -> None:
        """Repeat the notices of failures and moves since the decision.

        The end-point did not know the contracts when recovery sent them.
        """
        live = self._context.registry.subscriptions
        for record in records:
            found = live.get(record.subscription_id)
            if found is not None and (found.troubles or self._has_moved(record, found)):
                self._push_present(found)

    def _push_present(self, found: Subscription) -> None:
        outcome = granted(
            found.record,
            found.variable,
            found.troubles,
            detection=self._context.detection,
            down=self._replacement.broken_paths(found.record),
        )
        self._notices.push(found.record.subscriber, ContractChanged(granted=outcome))

    def _live_contracts(self, body: bytes) -> list[Subscription]:
        """Return the contracts of this cloud that an answer grants, and that have not ended."""
        live = self._context.registry.subscriptions
        return [
            found
            for outcome in decode_outcomes(body).outcomes
            if isinstance(outcome, GrantedOutcome)
            and (found := live.get(outcome.subscription_id)) is not None
        ]

    def _revise(self, grant: PendingGrant) -> None:
        assert grant.revised is not None
        grant.reply, grant.revised, grant.moves = grant.revised, None, ()

    # Answers that differ from the decision.

    def _moved_since(self, grant: PendingGrant, silent: Set[str]) -> dict[int, Subscribed]:
        """Return the present records of contracts that have moved since the decision.

        `PathMoves` follows the moves of recovery already, and `PublicationChanges` those to another
        period.
        """
        live = self._context.registry.subscriptions
        return {
            old.subscription_id: found.record
            for old in grant.reply.records
            if (found := live.get(old.subscription_id)) is not None
            and found.record is not old
            and (
                self._has_moved(old, found)
                or not has_confirmed_path(old, silent | self._refusing(old))
            )
        }

    def _has_moved(self, old: Subscribed, found: Subscription) -> bool:
        """Return whether a contract has other paths than those decided.

        The new identifier of a change of period carries no events until it is announced; the old
        paths do until then.
        """
        if found.record.variable_id != old.variable_id and self._is_unannounced(found):
            return False
        return found.record is not old

    def _is_unannounced(self, found: Subscription) -> bool:
        """Return whether `PublicationChanged` will report the contract to its subscriber."""
        publication = self._context.registry.publications.get(found.variable.name)
        change = None if publication is None else publication.change
        return change is not None and not change.from_ns

    def _reroute(self, grant: PendingGrant, silent: Set[str]) -> bool:
        """Move contracts that a router refuses to carry; False if no contract can be moved."""
        live = self._context.registry.subscriptions
        applied = Applied()
        moved: dict[int, tuple[Subscribed, Subscribed]] = {}
        operations: list[Operation] = []
        for old in grant.reply.records:
            refusing = self._refusing(old)
            if (
                not refusing
                or old.subscription_id not in live
                or live[old.subscription_id].record is not old
                or has_confirmed_path(old, silent | refusing)
            ):
                continue
            new = self._replacement.around_refusals(old)
            if new is not None:
                moved[old.subscription_id] = old, new
                operations.append(Moved(subscription=new, until_retired=True))
                self._context.effects.apply(operations[-1], applied)
        if not moved:
            return False
        grant.moves = tuple(moved.values())
        new_records = {number: new for number, (_, new) in moved.items()}
        self._write_moves(grant, new_records, operations, applied)
        return True

    def _write_moves(
        self,
        grant: PendingGrant,
        moved: dict[int, Subscribed],
        operations: list[Operation],
        applied: Applied,
    ) -> None:
        """Write an answer with the new paths of contracts; the first answer is valid until then."""
        grant.state = GrantState.REROUTING
        grant.revised = self._with_moves(grant, moved)
        self._write_revised(grant, applied, operations)

    def _with_moves(self, grant: PendingGrant, moved: dict[int, Subscribed]) -> Reply:
        live, context = self._context.registry.subscriptions, self._context
        outcomes = [
            granted(
                moved[number],
                live[number].variable,
                detection=context.detection,
                order=context.next_order(),
            )
            if isinstance(outcome, GrantedOutcome) and (number := outcome.subscription_id) in moved
            else outcome
            for outcome in grant.reply.outcomes
        ]
        records = [moved.get(old.subscription_id, old) for old in grant.reply.records]
        return Reply(encode_outcomes(outcomes), outcomes, records)

    def _reduce(self, grant: PendingGrant, reply: Reply, silent: Set[str]) -> None:
        """Grant the contracts that work without the silent and refusing routers; end the others.

        A grant without a confirmed path would promise events that do not come. A silent router
        drops the paths of an ended contract when it returns. A contract that has ended meanwhile,
        together with its variable, is refused too.
        """
        live = self._context.registry.subscriptions
        records = reply.records
        refusing = {record.subscription_id: self._refusing(record) for record in records}
        dead = {
            record.subscription_id
            for record in records
            if record.subscription_id not in live
            or not has_confirmed_path(record, silent | refusing[record.subscription_id])
        }
        outcomes = [self._reduced(outcome, dead, silent, refusing) for outcome in reply.outcomes]
        grant.state = GrantState.REDUCING
        left = [record for record in records if record.subscription_id not in dead]
        grant.revised = Reply(encode_outcomes(outcomes), outcomes, left)
        applied = Applied()
        operations: list[Operation] = [
            Unsubscribed(subscription_id=number) for number in sorted(dead)
        ]
        for operation in operations:
            self._context.effects.apply(operation, applied)
        self._write_revised(grant, applied, operations)

    def _write_revised(
        self, grant: PendingGrant, applied: Applied, operations: list[Operation]
    ) -> None:
        assert grant.revised is not None
        request, body = grant.request, grant.revised.body
        answered = Answered(endpoint=request.endpoint, request_id=request.request_id, body=body)
        self._context.effects.apply(answered, applied)
        self._write(grant, applied, [*operations, answered])

    def _reduced(
        self,
        outcome: Outcome,
        dead: set[int],
        silent: Set[str],
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
        remarks = tuple(f"router {name} has not confirmed its part yet" for name in here)
        return msgspec.structs.replace(outcome, degraded=(*outcome.degraded, *remarks))

    def _not_confirmed(self, outcome: GrantedOutcome, silent: Set[str]) -> GridStatError:
        """Return the refusal of an outcome whose routers are silent, or refuse their tables."""
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

    def _refusing(self, record: Subscribed) -> set[str]:
        return self._context.tables.refusing(record.variable_id, routers_of((record,)))

    def _are_confirmed(self, records: Iterable[Subscribed]) -> bool:
        """Return whether all contracts still live, and no router refuses a row of them."""
        live = self._context.registry.subscriptions
        return all(
            record.subscription_id in live and not self._refusing(record) for record in records
        )

    def _push_matched(
        self, record: Subscribed, revise_until_ns: int, confirmation: Confirmation
    ) -> None:
        found = self._context.registry.subscriptions.get(record.subscription_id)
        if found is None:
            return
        silent = set(confirmation.silent)
        if found.record is not record:
            record = found.record  # It has moved: its new paths must be up.
            if self._context.now_ns < revise_until_ns:
                self._await_matched((record,), revise_until_ns)
                return
            silent = self._context.tables.unconfirmed(routers_of((record,)))
        unconfirmed = sorted(self._refusing(record) | silent)
        remarks = tuple(f"router {name} has not confirmed its part yet" for name in unconfirmed)
        outcome = granted(
            record,
            found.variable,
            remarks,
            detection=self._context.detection,
            order=self._context.next_order(),
        )
        notice = Matched(pattern_id=record.pattern_id, granted=outcome)
        self._notices.push(record.subscriber, notice)
        self._notify_changes((record,))


def _are_up(records: Iterable[Subscribed], silent: Set[str]) -> bool:
    """Return whether each contract has a path that avoids the silent routers."""
    return all(has_confirmed_path(record, silent) for record in records)


def _no_notice(_: list[str]) -> None:
    """Send no notice of a move: the answer to the request reports the new paths."""
