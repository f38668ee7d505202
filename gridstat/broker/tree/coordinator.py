"""Reserving with children, in rounds: plan, ask all at once, and plan round whoever refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gridstat.broker.capacity.allocation import everys
from gridstat.broker.requests.outcomes import refused
from gridstat.broker.tree.deadlines import Deadlines
from gridstat.broker.tree.latency_bounds import kept_within
from gridstat.broker.tree.latency_shares import are_own, divide, is_answered, join
from gridstat.broker.tree.path_planner import END, START, Question
from gridstat.broker.tree.path_refusals import no_way, not_found, too_slow, unfit
from gridstat.model.errors import DeadlinePassed, NoSuchSubscription, Refused
from gridstat.model.paths import NotFound
from gridstat.net.command.segment_messages import Reserve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gridstat.broker.tree.latency_shares import Division, Part
    from gridstat.broker.tree.membership import Membership
    from gridstat.broker.tree.path_planner import PathPlanner, Use
    from gridstat.broker.tree.segment_releases import Key, SegmentReleases
    from gridstat.broker.tree.transaction import Transaction
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.net.command.endpoint_messages import RefusedOutcome
    from gridstat.net.command.segment_messages import NotReserved, Reserved

RESERVE_TIMER: Final = "reserve"
PARKED_TIMER: Final = "parked"
SEARCHES_MAX: Final = 64
EXCLUDED_AT_ONCE: Final = 4


class Coordinator:
    """A transaction is open from its first plan until it is finished or given up."""

    def __init__(
        self,
        context: TreeContext,
        planner: PathPlanner,
        releases: SegmentReleases,
        membership: Membership,
    ) -> None:
        self._context = context
        self._planner = planner
        self._releases = releases
        self._membership = membership
        self._open: dict[Key, Transaction] = {}
        self._newest: dict[str, int] = {}
        self._waiting_for: dict[str, set[Key]] = {}
        self._due: Deadlines[Key] = Deadlines(context, RESERVE_TIMER)
        self._parked: dict[Key, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def find(self, key: Key) -> Transaction | None:
        return self._open.get(key)

    def keys_of(self, contract: str) -> list[Key]:
        generation = self._newest.get(contract)
        key = (contract, -1 if generation is None else generation)
        return [key] if key in self._open else []

    def begin(self, transaction: Transaction) -> None:
        within_ns = self._context.settings.reserve_within_ns * self._context.state.families.height
        transaction.deadline_ns = self._context.now_ns + within_ns
        self._open[transaction.key] = transaction
        self._newest[transaction.key[0]] = transaction.key[1]
        self._due.add(transaction.deadline_ns, transaction.key)
        self._try_next(transaction)

    def give_up(self, key: Key) -> Transaction | None:
        """Nobody wants it any more; whatever is reserved is given back."""
        transaction = self._open.get(key)
        if transaction is not None:
            self._close(transaction)
            self._take_back(transaction, transaction.children())
        return transaction

    def hand_over(self, transaction: Transaction) -> None:
        """What the plan has charged for is the holding's from now on."""
        if transaction.charged is not None:
            transaction.charged = None
            self._context.state.charged.add(transaction.key)

    def _uncharge(self, transaction: Transaction) -> None:
        if transaction.charged is not None and transaction.division is not None:
            self._context.state.channels.uncharge(
                transaction.variable, everys(transaction.charged, 0), transaction.division.ways
            )
            transaction.charged = None

    def _recharge(self, transaction: Transaction, division: Division) -> None:
        charged = transaction.charged
        self._uncharge(transaction)
        transaction.division = division
        if charged is not None:
            transaction.charged = charged
            self._context.state.channels.charge(
                transaction.variable, everys(charged, 0), division.ways
            )

    # What children say.

    def reserved(self, child: str, message: Reserved) -> None:
        transaction = self._awaited(child, message)
        if transaction is None:
            self._return_unwanted(child, (message.contract, message.generation))
            return
        assert transaction.division is not None
        part = transaction.division.parts[child]
        self._hear(transaction, child)
        is_own = are_own(child, message.paths, self._context.state.families)
        if not is_own or not is_answered(part, message.paths):
            self._context.note("not_as_asked", child=child, contract=message.contract)
            strange = Refused(f"broker {child} has reserved other ways than it was asked for")
            self._refused(transaction, part, refused(strange), transaction.children())
            return
        transaction.answers[child] = message
        if not transaction.waiting and not self._has_died(transaction):
            self._complete(transaction)

    def not_reserved(self, child: str, message: NotReserved) -> None:
        transaction = self._awaited(child, message)
        if transaction is None:
            return
        assert transaction.division is not None
        part = transaction.division.parts[child]
        self._hear(transaction, child)
        others = [found for found in transaction.children() if found != child]
        self._refused(transaction, part, message.refused, others)

    def _refused(
        self, transaction: Transaction, part: Part, why: RefusedOutcome, holders: Sequence[str]
    ) -> None:
        """Have it given back by those who may hold something of it, and plan round the part."""
        self._remember(transaction, why)
        self._take_back(transaction, holders)
        if not part.exits and why.code == NoSuchSubscription.code:
            # Its subscriber's cloud knows of no such contract, and no way leads round that.
            self._close(transaction)
            transaction.finished(transaction, why)
            return
        transaction.exclude(_replaceable(part), transaction.avoiding)
        self._try_next(transaction)

    def _return_unwanted(self, child: str, key: Key) -> None:
        """What an earlier life of this broker has asked for, and nobody here knows of."""
        holding = self._context.state.holdings.find(*key)
        is_held = holding is not None and child in holding.children
        is_open = key in self._open or self._releases.is_open(key, child)
        if not is_held and not is_open and not self._releases.start_unknown(key, child):
            self._membership.end_session(child, self._releases.too_many_unknown(child))

    def child_joined(self, child: str) -> None:
        """Say again what it has not answered, and that whatever it holds of it is void."""
        for key in sorted(self._waiting_for.get(child, ())):
            transaction = self._open[key]
            assert transaction.division is not None
            self._releases.start(key, [child])
            self._ask(transaction, transaction.division, child)

    def expire(self) -> None:
        for deadline_ns, key in self._due.take_due():
            transaction = self._open.get(key)
            if transaction is None or transaction.deadline_ns != deadline_ns:
                continue
            missing = ", ".join(sorted(transaction.waiting)) or "some broker"
            self.give_up(key)
            late = DeadlinePassed(
                f"{missing} did not answer in time",
                hint="is that broker running, and does it reach its parent? Ask again then",
            )
            transaction.finished(transaction, refused(late))

    # Rounds.

    def _try_next(self, transaction: Transaction) -> None:
        settings = self._context.settings
        for _ in range(SEARCHES_MAX):
            excluded = transaction.next_try(settings.rounds_max)
            if excluded is None:
                break
            division = self._plan(transaction, excluded)
            if division is not None:
                transaction.rounds += 1
                transaction.avoiding = excluded
                self._reserve(transaction, division)
                return
        is_unsettled = self._context.now_ns < self._context.unsettled_until_ns
        if transaction.is_lost and (is_unsettled or not self._context.is_placed):
            self._park(transaction)
            return
        self._close(transaction)
        transaction.finished(transaction, transaction.refusal or no_way(transaction))

    def _park(self, transaction: Transaction) -> None:
        """Somebody has come or gone just now: the way that is missing may yet be told of."""
        if not self._parked:
            self._context.set_timer(PARKED_TIMER, self._context.settings.patience_ns)
        self._parked[transaction.key] = None

    def park_all(self) -> None:
        """Channels get other numbers: whatever is open is planned anew with those."""
        for transaction in list(self._open.values()):
            self._take_back(transaction, transaction.children())
            self._park(transaction)

    def try_parked(self) -> None:
        parked, self._parked = self._parked, {}
        for key in parked:
            transaction = self._open.get(key)
            if transaction is not None:
                transaction.begin_anew()
                self._try_next(transaction)

    def _plan(self, transaction: Transaction, excluded: frozenset[Use]) -> Division | None:
        """A plan with its channels charged; None if there is none, which is then remembered."""
        starts, ends = transaction.starts, transaction.ends
        assert starts is not None
        assert ends is not None
        quality = transaction.bounded()
        question = Question(
            starts=starts,
            ends=ends,
            count=max(qos.redundancy for qos in quality.values()),
            bound_us=min(qos.latency_us for qos in quality.values()),
        )
        planned = self._planner.find(question, excluded | transaction.shunned)
        if isinstance(planned, NotFound):
            if transaction.refusal is None:
                transaction.is_lost = True
            self._remember(transaction, not_found(transaction, planned, question))
            return None
        channels, variable = self._context.state.channels, transaction.variable
        taken = everys(quality, 0)
        numbers = [number for way in planned for number in way.channel_ids]
        division = divide(planned, quality, channels.predictions(variable, taken, numbers))
        if division is None:
            self._remember(transaction, too_slow("with its load on their channels"))
            transaction.exclude(self._uses(numbers[:EXCLUDED_AT_ONCE]), excluded)
            return None
        channels.charge(variable, taken, division.ways)
        broken = channels.obstacles(numbers, is_replay=variable.is_replay)
        if not broken:
            transaction.charged = quality
            return division
        channels.uncharge(variable, taken, division.ways)
        self._remember(transaction, refused(broken[0].refusal()))
        full = {obstacle.element for obstacle in broken}
        uses = self._uses([number for number in numbers if number in full])
        transaction.tries.appendleft(excluded | set(uses))
        return None

    def _uses(self, numbers: list[int]) -> tuple[Use, ...]:
        channels = [self._context.state.channels.accounts[number].channel for number in numbers]
        return tuple((one.from_router, one.to_router, one.channel_id) for one in channels)

    def _reserve(self, transaction: Transaction, division: Division) -> None:
        transaction.division = division
        transaction.answers = {}
        transaction.asked = {}
        transaction.waiting = set(division.parts)
        for child in division.parts:
            self._waiting_for.setdefault(child, set()).add(transaction.key)
        for child in sorted(division.parts):
            self._ask(transaction, division, child)

    def _ask(self, transaction: Transaction, division: Division, child: str) -> None:
        """At once, or when what an earlier round has left with the child is given back."""

        def ask() -> None:
            if (
                self._open.get(transaction.key) is transaction
                and transaction.division is division
                and child in transaction.waiting
            ):
                transaction.asked[child] = self._context.next_question()
                self._context.send_child(child, self._request(transaction, division.parts[child]))

        self._releases.after(transaction.key, child, ask)

    def _request(self, transaction: Transaction, part: Part) -> Reserve:
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
            round=transaction.asked[part.child],
        )

    def _complete(self, transaction: Transaction) -> None:
        division, bounded = transaction.division, transaction.bounded()
        assert division is not None
        channels, owner = self._context.state.channels, self._context.settings.name
        joined = join(division, transaction.all_paths(), channels, owner)
        bound_us = min(qos.latency_us for qos in bounded.values())
        ways = None if joined is None else kept_within(division, joined[1], bounded, channels)
        why = unfit(transaction, joined, ways, bound_us)
        if why is not None:
            self._remember(transaction, why)
            self._take_back(transaction, transaction.children())
            transaction.exclude(_paired(division), transaction.avoiding)
            self._try_next(transaction)
            return
        assert joined is not None
        assert ways is not None
        if ways != joined[1]:
            self._recharge(transaction, replace(division, ways=ways))
        transaction.result = (joined[0], ways)
        self._close(transaction)
        transaction.finished(transaction, None)

    def _has_died(self, transaction: Transaction) -> bool:
        """Whether a channel of the plan cannot be used any more; it is then planned round."""
        assert transaction.division is not None
        accounts = self._context.state.channels.accounts
        numbers = [number for way in transaction.division.ways for number in way.channel_ids]
        dead = self._uses([number for number in numbers if not accounts[number].is_usable])
        if dead:
            self._take_back(transaction, transaction.children())
            transaction.exclude(dead, transaction.avoiding)
            self._try_next(transaction)
        return bool(dead)

    # Small things.

    def _close(self, transaction: Transaction) -> None:
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
            return None  # The answer to an earlier round, which is being given back.
        if message.round not in {0, transaction.asked.get(child)}:
            return None  # And that has been given back since.
        return transaction

    def _hear(self, transaction: Transaction, child: str) -> None:
        transaction.waiting.discard(child)
        keys = self._waiting_for.get(child)
        if keys is not None:
            keys.discard(transaction.key)
            if not keys:
                del self._waiting_for[child]

    def _take_back(self, transaction: Transaction, children: Sequence[str]) -> None:
        self._uncharge(transaction)
        for child in list(transaction.waiting):
            self._hear(transaction, child)
        transaction.division = None
        if children:
            self._releases.start(transaction.key, children)

    @staticmethod
    def _remember(transaction: Transaction, found: RefusedOutcome) -> None:
        if transaction.refusal is None:
            transaction.refusal = found


def _replaceable(part: Part) -> tuple[Use, ...]:
    """What else could lead round a refusal: another way through the child, or another border."""
    inside = [use for use in part.uses if not use[2]]
    channels = [use for use in part.uses if use[2] and START not in use and END not in use]
    return tuple((inside or channels)[:EXCLUDED_AT_ONCE])


def _paired(division: Division) -> tuple[Use, ...]:
    """Ways through children that have joined others than were planned, perhaps."""
    crossed = [part for part in division.parts.values() if part.entries and part.exits]
    return tuple(use for part in crossed for use in _replaceable(part))[:EXCLUDED_AT_ONCE]
