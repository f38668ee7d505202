"""Grants between the decision and the answer: one recorded state a request (S0 A4).

`subscriptions.py` decides a Subscribe. From then on `PendingGrants` holds it, under a token:

- WRITING: the journal writes the contracts and the answer. If the write fails, the request is
  refused with `StorageFailed`.
- CONFIRMING: the routers of all paths have their orders and confirm them (`TableChanged`). If all
  confirm, the answer is sent. A router that is absent, silent until `confirm_within_ns`, or that
  refuses a row leads to one of the next two states.
- REROUTING: the journal writes an answer with other paths that are not confirmed yet: those around
  a router that refuses a row, together with the move, or those to which recovery is moving a
  contract. Then the request is CONFIRMING again, at most until twice `confirm_within_ns` after its
  first confirmation began: contracts that move again and again would delay the answer without end.
- REVISING: the journal writes the last answer. It names the paths to which recovery has moved a
  contract, refuses the contracts without any confirmed path, which end, and grants the others with
  a remark. Then this answer is sent.
- RETRYING: the journal failed while REROUTING or REVISING. No answer is sent, because the one in
  the journal grants paths that are not up. After `retry_after_ns` the request is CONFIRMING again.

A contract is up if some path of it is confirmed, under any generation that routers carry: recovery
moves it make before break, so the paths of the decision work until the new ones are confirmed.

A Subscribe that is repeated after its answer was kept goes through two states of its own:

- REPEATING: the kept answer waits until all earlier operations are durable.
- RECONFIRMING: the routers of the granted paths confirm, and the kept answer is sent, followed by a
  notice of each contract that differs from it. After the deadline the wait begins again, for as
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
from gridstat.broker.requests.contract_notices import (
    announced_paths,
    ordered_paths,
    unconfirmed_remarks,
)
from gridstat.broker.requests.outcomes import encode_outcomes, granted, refused
from gridstat.broker.routers.path_moves import has_confirmed_path, routers_of
from gridstat.model.errors import DeadlinePassed, NoSuchVariable, NotAuthorised, RouterFull
from gridstat.net.command.endpoint_messages import GrantedOutcome, Matched
from gridstat.net.command.frames import decode_outcomes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence, Set

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operations import Operation, Subscribed
    from gridstat.broker.records.registry import Subscription
    from gridstat.broker.requests.contract_notices import ContractNotices
    from gridstat.broker.requests.notices import Notices
    from gridstat.broker.requests.request import Request
    from gridstat.broker.requests.request_intake import RequestIntake
    from gridstat.broker.routers.path_moves import PathMoves
    from gridstat.broker.tables.confirmation import Confirmation
    from gridstat.model.errors import GridStatError
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import Outcome

GRANT_RETRY_TIMER: Final = "grant-retry"


class GrantState(Enum):
    """Event that a pending grant waits for; the module's docstring explains each."""

    WRITING = auto()
    CONFIRMING = auto()
    REROUTING = auto()
    REVISING = auto()
    RETRYING = auto()
    REPEATING = auto()
    RECONFIRMING = auto()


class Standing(Enum):
    """State of one contract of an answer, when the wait for its routers has ended."""

    CONFIRMED = auto()
    """A path that the answer names is confirmed, and routers carry it still."""
    MOVED = auto()
    """The contract has other paths now, which are confirmed."""
    MOVING = auto()
    """Recovery is moving the contract to paths that are not confirmed; no other path works."""
    DOWN = auto()
    """No path is confirmed."""
    ENDED = auto()


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
    once the answer is sent. After `revise_until_ns` contracts that are moving are not confirmed
    again. `carried` are, for a kept answer, the generations that routers carry of each contract.
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
    carried: Sequence[Sequence[Subscribed]] = ()
    ended: dict[int, str] = field(default_factory=dict)
    """Reasons for which access rules have ended contracts of the answer meanwhile."""


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
        contract_notices: ContractNotices,
        moves: PathMoves,
        replacement: RefusalReplacement,
    ) -> None:
        self._context = context
        self._requests = requests
        self._notices = notices
        self._contract_notices = contract_notices
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
        grant = self._add(request, GrantState.CONFIRMING, reply, sent=sent)
        self._await_routers(grant)

    def repeat(self, request: Request, body: bytes, sent: Callable[[], None]) -> None:
        """Send a kept answer again, once it is durable and the paths that it grants are up.

        Then run `sent`.
        """
        grant = self._add(request, GrantState.REPEATING, Reply(body), sent=sent)
        if self._context.pending_count:
            self._write(grant, Applied(), ())
        else:
            self._advance(grant.token, Written())

    def retry(self) -> None:
        """Continue the requests whose answer the journal could not take."""
        tokens, self._retrying = self._retrying, []
        for token in tokens:
            self._advance(token, RetryDue())

    def note_ended(self, reasons: Mapping[int, str]) -> None:
        """Note why access rules end contracts, some of which may not be answered yet."""
        for grant in self._pending.values():
            numbers = {record.subscription_id for record in grant.reply.records}
            grant.ended |= {number: reasons[number] for number in numbers & reasons.keys()}

    def notify_matched(self, matched: Iterable[Subscribed]) -> None:
        """Notify subscribers of contracts that patterns matched, each once its paths are up."""
        until_ns = self._revise_until_ns()
        live = self._context.registry.subscriptions
        for record in matched:
            found = live.get(record.subscription_id)
            if found is not None:
                self._await_matched(record, found.variable, until_ns)

    def _await_matched(
        self, record: Subscribed, variable: StatusVariable, revise_until_ns: int
    ) -> None:
        self._context.tables.await_confirmations(
            routers_of((record,)),
            partial(self._push_matched, record, variable, revise_until_ns),
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
            case GrantState.REVISING, Written():
                self._revise(grant)
                self._send(grant)
            case GrantState.REROUTING | GrantState.REVISING, WriteFailed():
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
        sent: Callable[[], None] | None = None,
    ) -> PendingGrant:
        self._token_last += 1
        grant = PendingGrant(self._token_last, request, state, reply, matched, sent=sent)
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
        records = grant.reply.records
        standings = {each.subscription_id: self._standing(each, silent) for each in records}
        found = set(standings.values())
        is_late = self._context.now_ns >= grant.revise_until_ns
        if found <= {Standing.CONFIRMED} and not silent and not any(map(self._refusing, records)):
            self._send(grant)
        elif Standing.MOVING in found and not is_late:
            moved = self._present(standings, {Standing.MOVED, Standing.MOVING})
            self._write_moves(grant, moved, [], Applied())
        elif is_late or not self._reroute(grant, silent):
            self._write_last(grant, standings, silent)

    def _standing(self, old: Subscribed, silent: Set[str]) -> Standing:
        """Judge a contract, for whose generation `old` all routers but the silent have confirmed.

        Recovery moves contracts meanwhile; `PathMoves` knows which moves were confirmed. The new
        identifier of a change of period carries no events until it is announced, and the old paths
        are held until then. The paths of a contract that is moving count only if they work (again).
        """
        found = self._context.registry.subscriptions.get(old.subscription_id)
        if found is None:
            return Standing.ENDED
        if self._has_moved(old, found):
            return Standing.MOVED
        is_other = found.record is not old and found.record.variable_id == old.variable_id
        broken = self._replacement.broken_paths(old) if is_other else ()
        if found.carries(old) and has_confirmed_path(old, silent | self._refusing(old), broken):
            return Standing.CONFIRMED
        return Standing.DOWN if found.record is old else Standing.MOVING

    def _has_moved(self, old: Subscribed, found: Subscription) -> bool:
        """Return whether a contract has other paths than `old`, which carry its events."""
        if found.record is old:
            return False
        if found.record.variable_id == old.variable_id:
            return self._moves.is_up(found)
        publication = self._context.registry.publications.get(found.variable.name)
        change = None if publication is None else publication.change
        return self._moves.is_up(found) if change is None else bool(change.from_ns)

    def _present(
        self, standings: dict[int, Standing], chosen: Set[Standing]
    ) -> dict[int, Subscribed]:
        """Return the newest records of the contracts with the chosen standings."""
        live = self._context.registry.subscriptions
        return {
            number: live[number].record
            for number, standing in standings.items()
            if standing in chosen
        }

    def _answer_or_wait(self, grant: PendingGrant, silent: Set[str]) -> None:
        if not _have_carried_path(grant.carried, silent):
            self._await_routers_again(grant)
            return
        self._send(grant)
        # The kept answer may name earlier paths of these contracts, and the end-point may not have
        # known the contracts when they moved.
        for outcome, found in self._live_contracts(grant.reply.body):
            record, _ = announced_paths(self._context.registry, found)
            named = [path.channel_ids for path in outcome.paths]
            here = routers_of((record,)) & silent
            if found.troubles or here or named != [path.channel_ids for path in record.paths]:
                self._contract_notices.push_present(found, here)

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
        """Wait until every living contract of a kept answer has a path that is up.

        Routers carry the old paths of a contract until its move is confirmed, so one path of either
        generation is enough.
        """
        grant.state = GrantState.RECONFIRMING
        grant.carried = [
            (ordered_paths(found)[0], *(each.replaced for each in found.retiring))
            for _, found in self._live_contracts(grant.reply.body)
        ]
        self._context.tables.await_confirmations(
            {name for records in grant.carried for name in routers_of(records)},
            partial(self._confirmed, grant.token),
            deadline_ns=self._context.now_ns + self._context.settings.confirm_within_ns,
            judge=partial(_have_carried_path, grant.carried),
        )

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

        The end-point did not know the contracts when recovery sent them. A move that is not
        confirmed yet is reported when it is.
        """
        live = self._context.registry.subscriptions
        for record in records:
            found = live.get(record.subscription_id)
            if found is not None and (found.troubles or self._has_moved(record, found)):
                self._contract_notices.push_present(found)

    def _live_contracts(self, body: bytes) -> list[tuple[GrantedOutcome, Subscription]]:
        """Return the contracts of this cloud that an answer grants, and that have not ended."""
        live = self._context.registry.subscriptions
        return [
            (outcome, found)
            for outcome in decode_outcomes(body).outcomes
            if isinstance(outcome, GrantedOutcome)
            and (found := live.get(outcome.subscription_id)) is not None
        ]

    def _revise(self, grant: PendingGrant) -> None:
        assert grant.revised is not None
        grant.reply, grant.revised, grant.moves = grant.revised, None, ()

    # Answers that differ from the decision.

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

    def _write_last(
        self, grant: PendingGrant, standings: dict[int, Standing], silent: Set[str]
    ) -> None:
        """Grant the contracts with a confirmed path, and end the others; then answer.

        A grant without a confirmed path would promise events that do not come. A silent router
        drops the paths of an ended contract when it returns. A contract that has ended meanwhile,
        together with its variable, is refused too.
        """
        reply = self._with_moves(grant, self._present(standings, {Standing.MOVED}))
        refusing = {record.subscription_id: self._refusing(record) for record in reply.records}
        dead = {
            number
            for number, standing in standings.items()
            if standing not in {Standing.CONFIRMED, Standing.MOVED}
        }
        outcomes = [
            refused(NotAuthorised(grant.ended[outcome.subscription_id]))
            if isinstance(outcome, GrantedOutcome) and outcome.subscription_id in grant.ended
            else self._reduced(outcome, dead, silent, refusing)
            for outcome in reply.outcomes
        ]
        grant.state = GrantState.REVISING
        left = [record for record in reply.records if record.subscription_id not in dead]
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
        here = refusing | silent & {name for path in outcome.paths for name in path.routers}
        degraded = (*outcome.degraded, *unconfirmed_remarks(here))
        return msgspec.structs.replace(outcome, degraded=degraded)

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

    def _push_matched(
        self,
        record: Subscribed,
        variable: StatusVariable,
        revise_until_ns: int,
        confirmation: Confirmation,
    ) -> None:
        found = self._context.registry.subscriptions.get(record.subscription_id)
        if found is None:
            return
        silent = set(confirmation.silent)
        match self._standing(record, silent):
            case Standing.MOVED:
                record, variable, silent = found.record, found.variable, set()
            case Standing.MOVING if self._context.now_ns < revise_until_ns:
                # The routers receive the orders of the new paths once the move is durable.
                number = record.subscription_id
                again = partial(self._await_moving, number, revise_until_ns)
                self._context.when_settled(again)
                return
            case Standing.MOVING:
                record, variable = announced_paths(self._context.registry, found)
                silent = self._context.tables.unconfirmed(routers_of((record,)))
        outcome = granted(
            record,
            variable,
            unconfirmed_remarks(self._refusing(record) | silent),
            detection=self._context.detection,
            order=self._context.next_order(),
        )
        notice = Matched(pattern_id=record.pattern_id, granted=outcome)
        self._notices.push(record.subscriber, notice)
        self._notify_changes((record,))

    def _await_moving(self, number: int, revise_until_ns: int) -> None:
        found = self._context.registry.subscriptions.get(number)
        if found is not None:
            self._await_matched(*ordered_paths(found), revise_until_ns)


def _are_up(records: Iterable[Subscribed], silent: Set[str]) -> bool:
    """Return whether each contract has a path that avoids the silent routers."""
    return all(has_confirmed_path(record, silent) for record in records)


def _have_carried_path(carried: Iterable[Sequence[Subscribed]], silent: Set[str]) -> bool:
    """Return whether each contract has a path, of any generation, without the silent routers."""
    return all(any(has_confirmed_path(each, silent) for each in records) for records in carried)


def _no_notice(_: list[str]) -> None:
    """Send no notice of a move: the answer to the request reports the new paths."""
