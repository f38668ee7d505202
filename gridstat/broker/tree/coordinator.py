"""Coordinator of transactions: plan, reserve with all children at once, and plan again on refusal.

`transaction.py` draws the states of a transaction and says what happens on timeout and restart.
This module carries the transitions out. Each round charges the plan on the own channels before any
child is asked, so that two open transactions never plan with the same capacity.

A `Reserve` for a child that still has to release an earlier round of the same key is deferred until
the child has released: the child would otherwise take the two rounds for one. Answers carry the
round of the `Reserve`, so an answer to an earlier round is recognised and ignored.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import structs

from gridstat.broker.capacity.admission import Limit
from gridstat.broker.capacity.allocation import everys
from gridstat.broker.requests.outcomes import refused
from gridstat.broker.tree.deadlines import Deadlines
from gridstat.broker.tree.latency_shares import (
    divide,
    fit_to_bounds,
    join,
    lie_below_child,
    match_request,
)
from gridstat.broker.tree.paired_gates import keep_pairs, require_pairs
from gridstat.broker.tree.path_planner import (
    END,
    START,
    PathSearch,
    ScopePathQuery,
    conflict_of,
    highest_copies,
    is_inside,
)
from gridstat.broker.tree.path_refusals import (
    LATENCY_CODES,
    REASONS_OF_NUMBER,
    counted,
    fewer_granted,
    join_refusal,
    joined_otherwise,
    no_path,
    not_found,
    too_few,
    too_slow,
    unconfirmed,
    undecided,
    unsealed,
)
from gridstat.broker.tree.scope_room import ScopeRoom
from gridstat.broker.tree.scope_shares import Charge
from gridstat.broker.tree.transaction import Fastest, Purpose, TransactionState
from gridstat.broker.tree.tree_operations import body_of
from gridstat.model.errors import (
    DeadlinePassed,
    LatencyNotSatisfiable,
    NoSuchSubscription,
    RedundancyNotSatisfiable,
    Refused,
    SearchUndecided,
)
from gridstat.model.paths import NotFound
from gridstat.net.command.segment_messages import Reserve

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gridstat.broker.capacity.admission import Obstacle
    from gridstat.broker.tree.latency_shares import Division, Part
    from gridstat.broker.tree.membership import Membership
    from gridstat.broker.tree.path_planner import PathPlanner, PlannedPath, Use
    from gridstat.broker.tree.search_turns import SearchTurns
    from gridstat.broker.tree.segment_releases import Key, SegmentReleases
    from gridstat.broker.tree.transaction import Transaction
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.net.command.endpoint_messages import RefusedOutcome
    from gridstat.net.command.segment_messages import LowerContract, NotReserved, Reserved

RESERVE_TIMER: Final = "reserve"
PARKED_TIMER: Final = "parked"
SEARCHES_MAX: Final = 128
EXCLUDED_AT_ONCE: Final = 4
_LIMITS_OF_ROOM: Final = frozenset({Limit.CHANNEL.name, Limit.ROUTER.name})
"""Limits at which room is lacking, which other contracts may give."""
UNSEALED_MAX: Final = 8
"""Number of channels without sealing that a refusal names."""


class RoomListener(Protocol):
    """Notified of contracts to be lowered, so that a plan has room on channels of this broker."""

    def contract_in_the_way(self, wish: LowerContract) -> None: ...


class Coordinator:
    """Owner of the open transactions: those in PLANNING, RESERVING or PARKED."""

    def __init__(
        self,
        context: TreeContext,
        planner: PathPlanner,
        releases: SegmentReleases,
        membership: Membership,
        turns: SearchTurns,
        listener: RoomListener,
    ) -> None:
        self._context = context
        self._turns = turns
        self._room = ScopeRoom(context)
        self._listener = listener
        self._planner = planner
        self._releases = releases
        self._membership = membership
        self._open: dict[Key, Transaction] = {}
        self._newest: dict[str, int] = {}
        self._waiting_for: dict[str, set[Key]] = {}
        self._deferred: dict[tuple[Key, str], list[tuple[Transaction, Division]]] = {}
        """Reserve messages to send once the child has released an earlier round."""
        self._due: Deadlines[Key] = Deadlines(context, RESERVE_TIMER)
        self._parked: dict[Key, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def find(self, key: Key) -> Transaction | None:
        return self._open.get(key)

    def open_transactions(self) -> Iterator[Transaction]:
        """Return the transactions that are being planned or reserved."""
        return iter(self._open.values())

    def keys_of(self, contract: str) -> list[Key]:
        generation = self._newest.get(contract)
        key = (contract, -1 if generation is None else generation)
        return [key] if key in self._open else []

    def begin(self, transaction: Transaction) -> None:
        within_ns = self._context.settings.reserve_within_ns * self._context.state.families.height
        transaction.deadline_ns = self._context.now_ns + within_ns
        transaction.room.until_ns = self._context.now_ns + within_ns // 2
        self._open[transaction.key] = transaction
        self._newest[transaction.key[0]] = transaction.key[1]
        self._due.add(transaction.deadline_ns, transaction.key)
        self._plan_next(transaction)

    def cancel(self, key: Key) -> None:
        """Close a transaction that its owner no longer needs, and release what is reserved."""
        transaction = self._open.get(key)
        if transaction is not None:
            self._abort(transaction, TransactionState.CANCELLED)

    def _abort(self, transaction: Transaction, state: TransactionState) -> None:
        self._close(transaction, state)
        self._take_back(transaction, transaction.children())

    def hand_over(self, transaction: Transaction) -> None:
        """Transfer the charges of the plan to the holding."""
        if transaction.charged is not None:
            transaction.charged = None
            self._context.state.charged.add(transaction.key)

    def _uncharge(self, transaction: Transaction) -> None:
        if transaction.charged is not None and transaction.division is not None:
            self._context.state.channels.uncharge(
                transaction.variable,
                everys(transaction.charged, 0),
                transaction.division.scope_paths,
                transaction.payers,
            )
            transaction.charged = None

    def _recharge(self, transaction: Transaction, division: Division) -> None:
        charged = transaction.charged
        self._uncharge(transaction)
        transaction.division = division
        if charged is not None:
            transaction.charged = charged
            self._context.state.channels.charge(
                transaction.variable,
                everys(charged, 0),
                division.scope_paths,
                transaction.payers,
            )

    # Answers of children.

    def reserved(self, child: str, message: Reserved) -> None:
        self._note_search(message)
        transaction = self._awaited(child, message)
        if transaction is None:
            self._release_unknown(child, (message.contract, message.generation))
            return
        assert transaction.division is not None
        part = transaction.division.parts[child]
        self._mark_answered(transaction, child)
        is_own = lie_below_child(child, message.paths, self._context.state.families)
        if not is_own or not match_request(part, message.paths):
            self._context.note("not_as_asked", child=child, contract=message.contract)
            strange = Refused(f"broker {child} has reserved other paths than requested")
            self._refused(transaction, part, refused(strange), transaction.children())
            return
        if transaction.is_sealed and not message.is_sealed:
            self._refused(transaction, part, unconfirmed(child), transaction.children())
            return
        if transaction.is_node_wanted and not message.is_node_disjoint:
            # Other borders may have paths without a common router; else these will do.
            self._take_back(transaction, transaction.children())
            transaction.bar(conflict_of(part.steps, is_node_disjoint=True), is_node_disjoint=True)
            self._plan_next(transaction)
            return
        transaction.answers[child] = message
        if not transaction.waiting and not self._has_failed_channel(transaction):
            self._complete(transaction)

    def not_reserved(self, child: str, message: NotReserved) -> None:
        self._note_search(message)
        transaction = self._awaited(child, message)
        if transaction is None:
            return
        assert transaction.division is not None
        part = transaction.division.parts[child]
        self._mark_answered(transaction, child)
        transaction.room.is_short |= message.limit in _LIMITS_OF_ROOM
        transaction.room.is_being_made |= message.is_making_room and self._may_wait(transaction)
        transaction.room.was_made |= message.is_making_room
        others = [found for found in transaction.children() if found != child]
        self._refused(transaction, part, message.refused, others)

    def _note_search(self, message: Reserved | NotReserved) -> None:
        """Count what a child has searched, also for an answer that comes too late to be of use."""
        transaction = self._open.get((message.contract, message.generation))
        if transaction is not None and message.search_us:
            is_split = transaction.room.may_lower
            transaction.search.searched_below(message.search_us, is_split=is_split)

    def _refused(
        self, transaction: Transaction, part: Part, why: RefusedOutcome, holders: Sequence[str]
    ) -> None:
        """Release the round at those children that may hold it, and plan without the part."""
        self._remember(transaction, why)
        self._take_back(transaction, holders)
        if not part.exits and why.code == NoSuchSubscription.code:
            # The subscriber's cloud knows of no such contract: no other path changes that.
            self._close(transaction, TransactionState.REFUSED)
            transaction.owner.transaction_ended(transaction, why)
            return
        links = conflict_of(part.steps, is_node_disjoint=False)
        if why.code == RedundancyNotSatisfiable.code and links:
            transaction.bar(links, is_node_disjoint=False)
        elif why.code != LatencyNotSatisfiable.code or not transaction.divide_evenly():
            transaction.exclude(_replaceable(part), transaction.excluded)
        self._plan_next(transaction)

    def _release_unknown(self, child: str, key: Key) -> None:
        """Release a segment that this broker requested before its last restart."""
        holding = self._context.state.holdings.find(*key)
        is_held = holding is not None and child in holding.children
        is_open = key in self._open or self._releases.is_open(key, child)
        if not is_held and not is_open and not self._releases.start_unknown(key, child):
            self._membership.end_session(child, self._releases.too_many_unknown(child))

    def child_joined(self, child: str) -> None:
        """Send again each unanswered Reserve, after a Release of whatever the child holds."""
        for key in sorted(self._waiting_for.get(child, ())):
            # The child may hold the reservation without this broker having got the answer.
            transaction = self._open[key]
            assert transaction.division is not None
            self._releases.start(key, [child])
            self._request(transaction, transaction.division, child)

    def child_released(self, key: Key, child: str) -> None:
        """Send the Reserve messages that waited for the release of an earlier round."""
        for transaction, division in self._deferred.pop((key, child), ()):
            self._send_reserve(transaction, division, child)

    def expire(self) -> None:
        for deadline_ns, key in self._due.take_due():
            transaction = self._open.get(key)
            if transaction is None or transaction.deadline_ns != deadline_ns:
                continue
            missing = ", ".join(sorted(transaction.waiting)) or "some broker"
            self._abort(transaction, TransactionState.REFUSED)
            late = DeadlinePassed(
                f"{missing} did not answer in time",
                hint="is that broker running, and does it reach its parent? Try again then",
            )
            transaction.owner.transaction_ended(transaction, refused(late))

    # Rounds.

    def _plan_next(self, transaction: Transaction) -> None:
        """Begin the next round; without a plan, park the transaction or refuse it."""
        transaction.enter(TransactionState.PLANNING)
        if self._begin_round(transaction):
            return
        is_unsettled = self._context.now_ns < self._context.unsettled_until_ns
        if transaction.has_no_path and (is_unsettled or not self._context.is_placed):
            # A child has joined or left recently, and may yet report the missing path.
            self._park(transaction)
            return
        self._send_wishes(transaction)
        if transaction.room.is_being_made and transaction.purpose is not Purpose.SEGMENT:
            self._park(transaction)
            return
        if transaction.unusable:
            # The child of a broken path may have another one from the same channel by now.
            transaction.unusable = frozenset()
            transaction.begin_again()
            self._plan_next(transaction)
            return
        while self._is_uncounted(transaction) and transaction.count_paths():
            if self._begin_round(transaction):
                return
        self._close(transaction, TransactionState.REFUSED)
        transaction.owner.transaction_ended(transaction, self._final_refusal(transaction))

    def _final_refusal(self, transaction: Transaction) -> RefusedOutcome:
        """Return why there is no plan left, once no paths could be counted either."""
        refusal, known = transaction.refusal or no_path(transaction), transaction.known
        if refusal.code not in REASONS_OF_NUMBER:
            return refusal
        wanted = transaction.count_desired
        if known.is_undecided:
            return undecided(transaction, wanted)
        if self._is_uncounted(transaction) and known.paths_max < wanted:
            return too_few(transaction, wanted, known.paths_max)
        # Where latency was in the way of some paths, nobody has shown that there are too few.
        return known.late or refusal

    def _begin_round(self, transaction: Transaction) -> bool:
        """Plan and send the requests to the children; return whether there is a plan."""
        is_begun = self._plan_round(transaction)
        self._turns.charge(transaction)
        return is_begun

    def _plan_round(self, transaction: Transaction) -> bool:
        settings = self._context.settings
        is_again = transaction.purpose is Purpose.REPLACEMENT
        rounds_max = settings.rounds_again_max if is_again else settings.rounds_max
        for _ in range(SEARCHES_MAX):
            excluded = transaction.next_exclusion(rounds_max)
            if excluded is None:
                break
            if not transaction.search.left_us:
                transaction.known.is_undecided = True
                break
            division = self._plan(transaction, excluded)
            if division is not None:
                transaction.rounds += excluded not in transaction.known.even
                transaction.excluded = excluded
                self._reserve(transaction, division)
                return True
        return False

    def _send_wishes(self, transaction: Transaction) -> None:
        wishes, transaction.room.wishes = transaction.room.wishes, {}
        for wish in wishes.values():
            self._listener.contract_in_the_way(wish)

    def _may_wait(self, transaction: Transaction) -> bool:
        """Return whether to wait for others to be lowered; a segment's parent waits for it."""
        is_segment = transaction.purpose is Purpose.SEGMENT
        return is_segment or self._context.now_ns < transaction.room.until_ns

    @staticmethod
    def _is_uncounted(transaction: Transaction) -> bool:
        """Return whether a refusal has to say how many disjoint paths exist."""
        why, known = transaction.refusal, transaction.known
        is_of_number = why is not None and why.code in REASONS_OF_NUMBER
        # Fewer paths than would do may be proved, whatever else was left undecided.
        is_open = known.is_undecided and known.paths_max >= transaction.count_worst
        return is_of_number and not is_open and transaction.purpose is Purpose.CONTRACT

    def _park(self, transaction: Transaction) -> None:
        """Wait a little, and plan again from the beginning."""
        transaction.enter(TransactionState.PARKED)
        if not self._parked:
            self._context.set_timer(PARKED_TIMER, self._context.settings.path_retry_ns)
        self._parked[transaction.key] = None

    def park_all(self) -> None:
        """Release every open round before channels get other numbers, and plan again later."""
        for transaction in list(self._open.values()):
            self._take_back(transaction, transaction.children())
            self._park(transaction)

    def try_parked(self) -> None:
        parked, self._parked = self._parked, {}
        for key in parked:
            transaction = self._open.get(key)
            if transaction is not None:
                transaction.begin_again()
                self._plan_next(transaction)

    def _plan(self, transaction: Transaction, excluded: frozenset[Use]) -> Division | None:
        """Return a plan whose channels are charged, or None after recording why there is none."""
        starts, ends = transaction.starts, transaction.ends
        assert starts is not None
        assert ends is not None
        quality = transaction.bounded()
        question = ScopePathQuery(
            starts=starts,
            ends=ends,
            count=max(qos.redundancy for qos in quality.values()),
            bound_us=min(qos.latency_us for qos in quality.values()),
            is_paired=bool(transaction.pairs),
        )
        channels, variable = self._context.state.channels, transaction.variable
        closed = excluded | transaction.unusable
        plain = self._uses(sorted(channels.plain_channels())) if transaction.is_sealed else ()
        is_node_wanted = transaction.is_node_wanted
        search = PathSearch(
            question,
            is_node_disjoint=is_node_wanted,
            excluded=closed.union(plain),
            conflicts=frozenset(transaction.known.conflicts[is_node_wanted]),
        )
        planned = self._find(transaction, search)
        if isinstance(planned, NotFound):
            if is_node_wanted:
                return None  # Paths that share a router come next.
            if not excluded and planned.reason in {"disconnected", "disjoint"}:
                transaction.known.paths_max = min(transaction.known.paths_max, planned.paths_max)
            if planned.reason == "latency":
                transaction.known.fastest = Fastest(question.count, planned.latency_us_best)
            if transaction.refusal is None:
                transaction.has_no_path = True
            why = self._unsealed(transaction, question, closed, frozenset(plain))
            self._remember(transaction, why or not_found(transaction, planned, question))
            return None
        taken = everys(quality, 0)
        numbers = [number for way in planned for number in way.channel_ids]
        division = divide(
            planned,
            quality,
            channels.predictions(variable, taken, numbers),
            is_even=excluded in transaction.known.even,
        )
        if division is None:
            detail = "with its load on their channels"
            self._remember(transaction, too_slow(detail, is_skewed=transaction.is_skewed))
            transaction.exclude(self._uses(numbers[:EXCLUDED_AT_ONCE]), excluded)
            return None
        require_pairs(division, planned, channels, is_paired=bool(transaction.pairs))
        if self._charge(transaction, excluded, division, numbers):
            transaction.charged = quality
            return division
        return None

    def _charge(
        self,
        transaction: Transaction,
        excluded: frozenset[Use],
        division: Division,
        numbers: list[int],
    ) -> bool:
        """Charge a plan on its channels; return whether they have room, after recording if not."""
        channels, variable = self._context.state.channels, transaction.variable
        # Charge first and look for obstacles then: a load also slows the contracts beside it.
        taken = everys(transaction.quality, 0)
        charge = Charge(variable, taken, division.scope_paths, transaction.payers)
        channels.charge(*charge)
        broken = channels.obstacles(numbers, is_replay=variable.is_replay)
        if not transaction.is_kept:
            broken += channels.shares.obstacles(charge, self._beside(transaction))
        if not broken:
            return True
        self._ask_room(transaction, numbers, broken)
        channels.uncharge(*charge)
        self._remember(transaction, refused(broken[0].refusal()))
        transaction.room.is_short |= any(each.limit.name in _LIMITS_OF_ROOM for each in broken)
        full = {obstacle.element for obstacle in broken}
        uses = self._uses([number for number in numbers if number in full])
        transaction.untried.appendleft(excluded | set(uses))
        return False

    def _ask_room(
        self, transaction: Transaction, numbers: list[int], broken: list[Obstacle]
    ) -> None:
        """Note whom a split lowers for a charged plan that only lacks room on own channels."""
        is_room = all(obstacle.limit is Limit.CHANNEL for obstacle in broken)
        if not (is_room and transaction.room.may_lower and self._may_wait(transaction)):
            return
        wishes = self._room.wishes(transaction, numbers)
        if wishes is not None:
            transaction.room.is_being_made = transaction.room.was_made = True
            transaction.room.wishes.update({wish.contract: wish for wish in wishes})

    def _beside(self, transaction: Transaction) -> list[Charge]:
        """Return what the other generations of the contract are charged with."""
        bodies = map(body_of, self._context.state.holdings.of(transaction.key[0]))
        return [
            Charge(body.variable, everys(body.granted, 0), body.scope_paths, body.payers)
            for body in bodies
        ]

    def _find(self, transaction: Transaction, search: PathSearch) -> list[PlannedPath] | NotFound:
        """Return planned paths, or why there are none; those that are only counted are the fastest,
        if a search has shown how fast, so that a refusal says how much they are too slow at least.
        """
        known, budget = transaction.known, transaction.search.budget
        if known.is_counting and transaction.count == known.fastest.paths:
            fast = structs.replace(search.query, bound_us=known.fastest.latency_us)
            found = self._planner.find(structs.replace(search, query=fast), budget)
            if not isinstance(found, NotFound):
                return found
        return self._planner.find(search, budget)

    def _unsealed(
        self,
        transaction: Transaction,
        question: ScopePathQuery,
        closed: frozenset[Use],
        plain: frozenset[Use],
    ) -> RefusedOutcome | None:
        """Return the refusal that names the first plain channel on every path; None without one."""
        named: dict[Use, None] = {}
        while plain and len(named) < UNSEALED_MAX:
            search = PathSearch(question, excluded=closed.union(named))
            found = self._planner.find(search, transaction.search.budget)
            if isinstance(found, NotFound):
                break
            ways = [[use for step in way.steps for use in step.uses] for way in found]
            first = [next((use for use in way if use in plain), None) for way in ways]
            more = [use for use in first if use is not None]
            if not more:
                break
            named.update(dict.fromkeys(more))
        if not named:
            return None
        accounts = self._context.state.channels.accounts
        return unsealed([accounts[number].channel.label for _, _, number in named])

    def _uses(self, numbers: list[int]) -> tuple[Use, ...]:
        channels = [self._context.state.channels.accounts[number].channel for number in numbers]
        return tuple((one.from_router, one.to_router, one.channel_id) for one in channels)

    def _reserve(self, transaction: Transaction, division: Division) -> None:
        transaction.enter(TransactionState.RESERVING)
        transaction.division = division
        transaction.answers = {}
        transaction.rounds_sent = {}
        transaction.waiting = set(division.parts)
        for child in division.parts:
            self._waiting_for.setdefault(child, set()).add(transaction.key)
        for child in sorted(division.parts):
            self._request(transaction, division, child)

    def _request(self, transaction: Transaction, division: Division, child: str) -> None:
        """Send Reserve to a child, at once or after the child has released an earlier round."""
        if self._releases.is_open(transaction.key, child):
            waiting = self._deferred.setdefault((transaction.key, child), [])
            waiting.append((transaction, division))
        else:
            self._send_reserve(transaction, division, child)

    def _send_reserve(self, transaction: Transaction, division: Division, child: str) -> None:
        is_open = self._open.get(transaction.key) is transaction
        if is_open and transaction.division is division and child in transaction.waiting:
            transaction.rounds_sent[child] = self._context.next_request()
            self._context.send_child(
                child, self._reserve_message(transaction, division.parts[child])
            )

    def _reserve_message(self, transaction: Transaction, part: Part) -> Reserve:
        assert transaction.ends is not None
        is_last = part.child == transaction.ends.child
        return Reserve(
            term=self._context.term,
            contract=transaction.key[0],
            generation=transaction.key[1],
            variable=transaction.variable,
            granted=part.granted,
            entries=part.entries,
            exits=part.exits,
            subscriber=transaction.subscriber if is_last else "",
            replaces=transaction.replaces,
            round=transaction.rounds_sent[part.child],
            reader=transaction.reader,
            is_sealed=transaction.is_sealed,
            charged_to=transaction.payers,
            is_kept=transaction.is_kept,
            may_lower=transaction.room.may_lower,
            every_worst=transaction.room.every_worst,
            lowered_for=transaction.room.lowered_for,
            is_paired=part.is_paired,
            search_us=max(1, transaction.search.left_us),
        )

    def _complete(self, transaction: Transaction) -> None:
        division, bounded = transaction.division, transaction.bounded()
        assert division is not None
        channels, owner = self._context.state.channels, self._context.settings.name
        joined = join(division, transaction.all_paths(), channels, owner)
        bound_us = min(qos.latency_us for qos in bounded.values())
        ways = None if joined is None else fit_to_bounds(division, joined[1], bounded, channels)
        why = join_refusal(transaction, joined, ways, bound_us)
        if joined is not None and why is None:
            is_apart = keep_pairs(joined[1], transaction.pairs, channels)
            why = None if is_apart else joined_otherwise(transaction)
        if why is not None:
            self._remember(transaction, why)
            self._take_back(transaction, transaction.children())
            transaction.exclude(_paired(division), transaction.excluded)
            self._plan_next(transaction)
            return
        assert joined is not None
        assert ways is not None
        if transaction.known.is_counting:
            slowest_us = max(path.latency_us for path in joined[0]) + transaction.ends_us
            self._end_count(transaction, slowest_us)
            return
        transaction.refusal = fewer_granted(transaction) or transaction.refusal
        if ways != joined[1]:
            # A child has joined other borders than planned: the shares are cut to keep the bound.
            self._recharge(transaction, replace(division, scope_paths=ways))
        transaction.result = (joined[0], ways)
        self._close(transaction, TransactionState.RESERVED)
        transaction.owner.transaction_ended(transaction, None)

    def _end_count(self, transaction: Transaction, slowest_us: int) -> None:
        """Refuse a request once paths are reserved, of which it had only to be known how many."""
        known, count = transaction.known, transaction.count
        is_proved = known.paths_max <= count or not known.is_undecided
        known.paths_max = count
        self._abort(transaction, TransactionState.REFUSED)
        refusal = counted(transaction, count, slowest_us)
        if not is_proved:
            refusal = undecided(transaction, transaction.count_desired)
        transaction.owner.transaction_ended(transaction, refusal)

    def _has_failed_channel(self, transaction: Transaction) -> bool:
        """Return whether a channel of the plan has failed, after planning again without it."""
        assert transaction.division is not None
        accounts = self._context.state.channels.accounts
        numbers = [number for way in transaction.division.scope_paths for number in way.channel_ids]
        dead = self._uses([number for number in numbers if not accounts[number].is_usable])
        if dead:
            self._take_back(transaction, transaction.children())
            transaction.exclude(dead, transaction.excluded)
            self._plan_next(transaction)
        return bool(dead)

    # Helpers.

    def _close(self, transaction: Transaction, state: TransactionState) -> None:
        transaction.enter(state)
        self._turns.charge(transaction)
        contract, generation = transaction.key
        del self._open[transaction.key]
        self._parked.pop(transaction.key, None)
        if self._newest.get(contract) == generation:
            del self._newest[contract]

    def _awaited(self, child: str, message: Reserved | NotReserved) -> Transaction | None:
        key = (message.contract, message.generation)
        transaction = self._open.get(key)
        if transaction is None or child not in transaction.waiting:
            return None
        if self._releases.is_open(key, child):
            return None  # An answer to an earlier round, which the child has to release.
        if message.round not in {0, transaction.rounds_sent.get(child)}:
            return None  # An answer to an earlier round, which the child has released.
        return transaction

    def _mark_answered(self, transaction: Transaction, child: str) -> None:
        transaction.waiting.discard(child)
        keys = self._waiting_for.get(child)
        if keys is not None:
            keys.discard(transaction.key)
            if not keys:
                del self._waiting_for[child]

    def _take_back(self, transaction: Transaction, children: Sequence[str]) -> None:
        self._uncharge(transaction)
        for child in list(transaction.waiting):
            self._mark_answered(transaction, child)
        transaction.division = None
        if children:
            self._releases.start(transaction.key, children)

    @staticmethod
    def _remember(transaction: Transaction, found: RefusedOutcome) -> None:
        if found.code in LATENCY_CODES:
            transaction.known.late = found
        transaction.known.is_undecided |= found.code == SearchUndecided.code
        if transaction.refusal is None:
            transaction.refusal = found


def _replaceable(part: Part) -> tuple[Use, ...]:
    """Return the links to leave out after a refusal: inside the child, or else its channels."""
    inside = [use for use in part.uses if is_inside(use) and use[0] != use[1]]
    channels = [
        use for use in part.uses if not is_inside(use) and START not in use and END not in use
    ]
    return tuple((highest_copies(inside) or channels)[:EXCLUDED_AT_ONCE])


def _paired(division: Division) -> tuple[Use, ...]:
    """Return links of children that may have joined other borders than planned."""
    crossed = [part for part in division.parts.values() if part.entries and part.exits]
    return tuple(use for part in crossed for use in _replaceable(part))[:EXCLUDED_AT_ONCE]
