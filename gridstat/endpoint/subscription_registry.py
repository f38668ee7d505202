"""All subscriptions of a connection: asks for contracts, and follows what the cloud says of them.

Grants come on the session's thread; whatever changes a live subscription later happens on the
delivering thread, between two batches, so that no event meets a half-changed one.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final, assert_never

from gridstat.endpoint.cached_events import kept_events
from gridstat.endpoint.change import CODE_PURGED
from gridstat.endpoint.change_board import FORGOTTEN, refused_words
from gridstat.endpoint.mailbox import Mailbox
from gridstat.endpoint.options import refusal
from gridstat.endpoint.pattern import PatternSubscription
from gridstat.endpoint.request_client import awaited, nothing, spread, whatever
from gridstat.endpoint.subscriber import Subscription, without_oldest
from gridstat.endpoint.subscription_dispatch import Interests, SubscriptionDispatch
from gridstat.model.errors import GridStatError, Misuse, NoSuchVariable
from gridstat.net.command.endpoint_messages import (
    ChangeSubscription,
    ContractChanged,
    EventsPoliced,
    GrantedOutcome,
    Matched,
    ModesChanged,
    PublicationChanged,
    RefusedOutcome,
    ReportLedger,
    Subscribe,
    SubscriptionRequest,
    Unpublished,
    Unsubscribe,
)
from gridstat.net.command.session_messages import MANY_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from gridstat.endpoint.change import OnChange
    from gridstat.endpoint.change_board import ChangeBoard
    from gridstat.endpoint.change_stream import ChangeFollowers
    from gridstat.endpoint.deliverer import Deliverer
    from gridstat.endpoint.expected_variables import ExpectedVariables
    from gridstat.endpoint.ledger import Ledger
    from gridstat.endpoint.request_client import RequestClient
    from gridstat.endpoint.session_events import SubscriptionRestored
    from gridstat.model.qos import ModalQos
    from gridstat.model.status import ValueType
    from gridstat.net.clock import Clock
    from gridstat.net.command.endpoint_messages import Notice, Outcome

RETIRE_AFTER_NS: Final = 2_000_000_000
"""How long after a change of period the old identifier may still bring events."""
ORPHANS_MAX: Final = 1_024
NO_MATCH_AFTER_NS: Final = 2_000_000_000
"""How long a pattern may be without a match before that is said: a match comes with its paths."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Order:
    """One subscription as the application asks for it."""

    name: str
    qos: ModalQos
    value_type: ValueType | None = None
    interests: Interests = field(default_factory=Interests)
    derived: tuple[str, ...] = ()
    keep_events: int = 0
    on_change: OnChange | None = None


class SubscriptionRegistry:
    """Subscriptions by the cloud's number and by our label; both lead to the same object, which
    keeps its identity whatever the cloud forgets and grants again."""

    def __init__(
        self,
        asker: RequestClient,
        listening: ExpectedVariables,
        deliverer: Deliverer,
        clock: Clock,
        board: ChangeBoard,
    ) -> None:
        self._asker = asker
        self._board = board
        self._listening = listening
        self._deliverer = deliverer
        self._clock = clock
        self._by_id: dict[int, Subscription] = {}
        self._patterns: dict[int, PatternSubscription] = {}
        self._labelled: dict[str, Subscription | PatternSubscription] = {}
        self._orders: dict[str, Order] = {}
        self._orphans: dict[int, list[tuple[Matched, tuple[bytes, ...]]]] = {}
        self._number = count(1)
        self._dropped_before = 0
        self._lock = threading.RLock()
        self.modes = 1
        self.next_modes = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is none."""
        return not (self._by_id or self._labelled)

    @property
    def dropped(self) -> int:
        """Events that slow readers have lost."""
        return self._dropped_before + sum(each.dropped for each in tuple(self._by_id.values()))

    # What the application asks.

    def subscribe(self, orders: Sequence[Order]) -> list[Subscription | GridStatError]:
        """Ask for contracts, many in one request; each has an answer of its own, in order."""
        found: list[Subscription | GridStatError] = []
        try:
            for at in range(0, len(orders), MANY_MAX):
                some = awaited(self.subscribe_later(orders[at : at + MANY_MAX]), self.give_back)
                found += some
        except BaseException:
            self.give_back(found)
            raise
        return found

    def subscribe_later(
        self, orders: Sequence[Order]
    ) -> Future[list[Subscription | GridStatError]]:
        """Ask in one request, without waiting for the answers."""
        labels = [f"s{next(self._number)}" for _ in orders]
        requests = tuple(
            _request(order, label) for order, label in zip(orders, labels, strict=True)
        )

        def use(
            outcomes: tuple[Outcome, ...], newest: tuple[bytes, ...]
        ) -> list[Subscription | GridStatError]:
            found = [
                self._granted(order, label, outcome)
                for order, label, outcome in zip(
                    orders, labels, spread(outcomes, orders), strict=True
                )
            ]
            self._hold_newest(newest)
            return found

        return self._asker.ask(Subscribe(subscriptions=requests), use)

    def subscribe_pattern(
        self, order: Order, on_match: Callable[[Subscription], object] | None
    ) -> PatternSubscription:
        """Ask for all that a pattern stands for."""
        label = f"p{next(self._number)}"
        pattern = PatternSubscription(self, order.name, label, on_match)

        def use(outcomes: tuple[Outcome, ...], _: tuple[bytes, ...]) -> None:
            (outcome,) = outcomes
            if isinstance(outcome, RefusedOutcome):
                raise refusal(outcome)
            assert isinstance(outcome, GrantedOutcome), "a pattern is granted or refused"
            with self._lock:
                self._orders[label] = order
                self._labelled[label] = pattern
            self._hold_pattern(pattern, outcome)

        asked = self._asker.ask(Subscribe(subscriptions=(_request(order, label),)), use)
        awaited(asked, lambda _: self._end_pattern(pattern))
        at_ns = self._clock.steady_ns() + NO_MATCH_AFTER_NS
        self._deliverer.later(at_ns, partial(_warn_without_match, pattern))
        return pattern

    def change(self, subscription: Subscription, qos: ModalQos) -> None:
        """Change a live contract; a refusal raises and changes nothing."""
        command = ChangeSubscription(subscription_id=subscription.contract.subscription_id, qos=qos)

        def use(outcomes: tuple[Outcome, ...], _: tuple[bytes, ...]) -> None:
            (outcome,) = outcomes
            if isinstance(outcome, RefusedOutcome):
                raise refusal(outcome)
            assert isinstance(outcome, GrantedOutcome), "a change is granted or refused"
            subscription.regrant_contract(outcome)
            self._deliverer.post(partial(self._listening.begin, subscription, self.modes))

        self._asker.ask(command, use).result()

    def unsubscribe(self, subscription: Subscription) -> None:
        """End one; nothing is delivered from now on, whether or not the cloud answers."""
        for asked in self.give_back([subscription]):
            asked.result()

    def give_back(self, found: Sequence[Subscription | GridStatError]) -> list[Future[None]]:
        """End several without waiting for the answers; nothing is delivered from now on."""
        held = [each for each in found if isinstance(each, Subscription) and not each.is_over]
        for subscription in held:
            self._forget(subscription)
        ids = [each.contract.subscription_id for each in held]
        return [
            self._asker.ask(Unsubscribe(subscription_ids=tuple(ids[at : at + MANY_MAX])), whatever)
            for at in range(0, len(ids), MANY_MAX)
        ]

    def end_pattern(self, pattern: PatternSubscription) -> None:
        """End a pattern and all that it has caught."""
        self._end_pattern(pattern).result()

    def _end_pattern(self, pattern: PatternSubscription) -> Future[None]:
        pattern.is_over = True
        with self._lock:
            self._patterns.pop(pattern.pattern_id, None)
            self._labelled.pop(pattern.label, None)
            self._orders.pop(pattern.label, None)
        for match in pattern.matches:
            self._forget(match)
        return self._asker.ask(Unsubscribe(subscription_ids=(pattern.pattern_id,)), nothing)

    def unsubscribe_all(self) -> None:
        """End all of them in one request."""
        self.end()
        self._asker.ask(Unsubscribe(), nothing).result()

    def end(self) -> None:
        """Nothing more comes to any of them."""
        with self._lock:
            patterns = tuple(self._patterns.values())
            self._patterns.clear()
            self._orphans.clear()
        for pattern in patterns:
            pattern.is_over = True
        for subscription in tuple(self._by_id.values()):
            self._forget(subscription)
        self._labelled.clear()
        self._orders.clear()

    def ledger(self, subscription: Subscription) -> Ledger:
        """What came of a contract so far."""
        return self._listening.ledger(subscription)

    def report(self) -> None:
        """Notify the cloud the ledgers of all that got anything; nobody waits for the answer."""
        held = sorted(self._by_id.items())
        impaired = tuple(number for number, each in held if each.contract.paths_down)[:MANY_MAX]
        for some in self._listening.reports(held):
            self._asker.ask(ReportLedger(entries=some, impaired=impaired), whatever)
            impaired = ()
        if impaired:
            self._asker.ask(ReportLedger(entries=(), impaired=impaired), whatever)

    # What the cloud says, on the session's thread.

    def told(self, notice: Notice, newest: tuple[bytes, ...]) -> None:
        """A notice; it may come twice, once by each edge, and means the same then."""
        match notice:
            case Matched():
                self._matched(notice, newest)
            case Unpublished():
                self._unpublished(notice)
            case ContractChanged():
                self._contract_changed(notice)
            case PublicationChanged():
                self._publication_changed(notice)
            case ModesChanged(modes=modes, next_modes=next_modes):
                self.set_modes(modes, next_modes)
            case EventsPoliced():
                pass  # Of a publication.
            case _:
                assert_never(notice)

    def _unpublished(self, notice: Unpublished) -> None:
        subscription = self._by_id.get(notice.subscription_id)
        if subscription is None:
            return
        code = notice.code or NoSuchVariable.code
        reason = notice.reason or f"{notice.name} is not published any more"
        is_known = subscription.error_code == code
        if notice.is_over or not is_known:
            self._board.subscription_purged(subscription, reason, code, is_over=notice.is_over)
        if notice.is_over:
            self._forget(subscription, code)
        else:
            subscription.incoming.holder.set_error_code(code)

    def _contract_changed(self, notice: ContractChanged) -> None:
        subscription = self._by_id.get(notice.granted.subscription_id)
        if subscription is None:
            return
        if any(notice.order):
            if notice.order <= subscription.notice_order:
                return  # By the other edge, or repeated: it is known, or out of date.
            subscription.notice_order = notice.order
        before = subscription.contract
        subscription.replace_contract(notice.granted)
        self._deliverer.post(partial(self._listening.begin, subscription, self.modes))
        self._board.contract_changed(subscription, before, subscription.granted_contract)

    def registrations_lost(self) -> None:
        """The cloud has forgotten all of them; each is granted again, or refused for now."""
        for subscription in tuple(self._by_id.values()):
            self._board.subscription_purged(subscription, FORGOTTEN, CODE_PURGED, is_over=False)

    def followers(self) -> list[ChangeFollowers]:
        """Who follows the changes of each subscription."""
        return [each.followers for each in tuple(self._by_id.values())]

    def restored(self, word: SubscriptionRestored) -> None:
        """The cloud had forgotten one of ours, and grants it again or not yet."""
        held = self._labelled.get(word.label)
        if isinstance(held, Subscription):
            self._regrant(held, word.outcome)
            self._hold_newest(word.newest)
        elif held is not None and isinstance(word.outcome, GrantedOutcome):
            with self._lock:
                self._patterns.pop(held.pattern_id, None)
            self._hold_pattern(held, word.outcome)

    def set_modes(self, modes: int, next_modes: int = 0) -> None:
        """Other modes are active, or about to be: contracts are judged by them from now on."""
        has_changed = modes != self.modes
        self.modes, self.next_modes = modes, next_modes
        is_changing = next_modes not in (0, modes)
        for subscription in tuple(self._by_id.values()):
            subscription.incoming.pause(is_paused=is_changing)
            if has_changed:
                self._deliverer.post(partial(self._listening.begin, subscription, modes))

    def _granted(self, order: Order, label: str, outcome: Outcome) -> Subscription | GridStatError:
        if isinstance(outcome, RefusedOutcome):
            return refusal(outcome)
        if not isinstance(outcome, GrantedOutcome):
            return Misuse(f"the cloud answered {type(outcome).__name__} to a subscription")
        incoming = SubscriptionDispatch(order.name, order.interests, self._deliverer.failures)
        if order.keep_events:
            incoming.batches = Mailbox(order.keep_events, without_oldest)
        followers = self._board.new_followers(order.on_change)
        subscription = Subscription(self, incoming, outcome, label, followers)
        try:
            self._listening.begin(subscription, self.modes)
        except GridStatError as problem:
            self._asker.ask(Unsubscribe(subscription_ids=(outcome.subscription_id,)), whatever)
            return problem
        for name in order.derived:
            if not incoming.holder.register_derived(name):
                incoming.holder.set_error_code(NoSuchVariable.code)
        with self._lock:
            self._by_id[outcome.subscription_id] = subscription
            self._labelled.setdefault(label, subscription)
        return subscription

    def _regrant(
        self, subscription: Subscription, outcome: GrantedOutcome | RefusedOutcome
    ) -> None:
        if isinstance(outcome, RefusedOutcome):
            with self._lock:
                self._by_id.pop(subscription.contract.subscription_id, None)
            is_known = subscription.error_code == outcome.code
            subscription.incoming.holder.set_error_code(outcome.code)
            if not is_known:
                reason = refused_words(outcome)
                self._board.subscription_purged(subscription, reason, outcome.code, is_over=False)
            return
        with self._lock:
            self._by_id.pop(subscription.contract.subscription_id, None)
            before = self._listening.identifiers(subscription)
            subscription.regrant_contract(outcome)
            subscription.notice_order = (0, 0)
            subscription.paths.has_news = True
            self._by_id[outcome.subscription_id] = subscription
        subscription.incoming.holder.set_error_code(0)
        self._listening.begin(subscription, self.modes)
        after = None if outcome.variable is None else outcome.variable.variable_id
        for variable_id in before:
            if variable_id != after:
                self._listening.end(subscription, variable_id)
        self._board.subscription_restored(subscription)

    def _hold_pattern(self, pattern: PatternSubscription, outcome: GrantedOutcome) -> None:
        pattern.granted(outcome)
        with self._lock:
            self._patterns[outcome.subscription_id] = pattern
            waiting = self._orphans.pop(outcome.subscription_id, [])
        for notice, newest in waiting:
            self._matched(notice, newest)

    def _matched(self, notice: Matched, newest: tuple[bytes, ...]) -> None:
        granted = notice.granted
        if granted.variable is None or granted.subscription_id in self._by_id:
            return
        pattern = self._patterns.get(notice.pattern_id)
        if pattern is None:
            # By the other edge it may be ahead of the pattern's own answer.
            with self._lock:
                if len(self._orphans) < ORPHANS_MAX:
                    self._orphans.setdefault(notice.pattern_id, []).append((notice, newest))
            return
        known = pattern.match(granted.variable.name)
        if known is not None:
            self._regrant(known, granted)
        else:
            order = self._orders[pattern.label]
            named = replace(order, name=granted.variable.name)
            found = self._granted(named, pattern.label, granted)
            if isinstance(found, GridStatError):
                pattern.miss(granted.variable.name, f"{found.args[0]} ({found.code})")
                return
            pattern.caught(found)
            if pattern.on_match is not None:
                self._deliverer.post(partial(pattern.on_match, found))
        self._hold_newest(newest)

    def _publication_changed(self, notice: PublicationChanged) -> None:
        subscription = self._by_id.get(notice.subscription_id)
        variable = notice.granted.variable
        if subscription is None or variable is None:
            return
        before = [
            number
            for number in self._listening.identifiers(subscription)
            if number != variable.variable_id
        ]
        subscription.replace_contract(notice.granted)
        begin = partial(self._listening.begin, subscription, self.modes, notice.from_ns)
        self._deliverer.post(begin)
        ahead_ns = max(0, notice.from_ns - self._clock.posix_ns())
        at_ns = self._clock.steady_ns() + ahead_ns + RETIRE_AFTER_NS
        for number in before:
            self._listening.limit(subscription, number, notice.from_ns)
            self._deliverer.later(at_ns, partial(self._listening.end, subscription, number))

    def _forget(self, subscription: Subscription, code: int = 0) -> None:
        with self._lock:
            self._by_id.pop(subscription.contract.subscription_id, None)
            held = self._labelled.get(subscription.label)
            if isinstance(held, PatternSubscription):
                held.lost(subscription)
            else:
                self._labelled.pop(subscription.label, None)
        self._listening.end(subscription)
        self._dropped_before += 0 if subscription.is_over else subscription.dropped
        subscription.end(code)

    def _hold_newest(self, newest: tuple[bytes, ...]) -> None:
        """Events that an edge router had kept fill the holders that are still empty."""
        for variable_id, row, options in kept_events(newest, self._clock.posix_ns()):
            for taker in self._deliverer.takers(variable_id):
                taker.hold(row, options)


def _warn_without_match(pattern: PatternSubscription) -> None:
    if not pattern.matched and not pattern.is_over:
        log.warning("no_match_yet pattern=%r missed=%d", pattern.pattern, len(pattern.missed))


def _request(order: Order, label: str) -> SubscriptionRequest:
    return SubscriptionRequest(
        name=order.name, qos=order.qos, value_type=order.value_type, label=label
    )
