"""Subscriptions of a connection: requests for contracts, and reactions to the cloud's notices.

Grants come on the session's thread. Later changes of a live subscription happen on the delivering
thread, between two batches, so that no event meets a half-changed one.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final, assert_never

from gridstat.endpoint.change import CODE_PURGED
from gridstat.endpoint.change_notifier import FORGOTTEN, refusal_reason
from gridstat.endpoint.joined_requests import JoinedRequests, undo
from gridstat.endpoint.mailbox import Mailbox
from gridstat.endpoint.options import refusal
from gridstat.endpoint.pattern import PatternSubscription
from gridstat.endpoint.request_client import awaited, ignore_outcomes, raise_refusals, spread
from gridstat.endpoint.subscriber import Subscription, without_oldest
from gridstat.endpoint.subscription_dispatch import SubscriptionDispatch
from gridstat.model.errors import GridStatError, Malformed, Misuse, NoSuchVariable
from gridstat.net.codec.event import walk_events
from gridstat.net.command.endpoint_messages import (
    SUBSCRIPTIONS_AT_ONCE,
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
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    from gridstat.endpoint.change_notifier import ChangeNotifier
    from gridstat.endpoint.change_stream import ChangeFollowers
    from gridstat.endpoint.deliverer import Deliverer
    from gridstat.endpoint.delivery import Row
    from gridstat.endpoint.expected_variables import ExpectedVariables
    from gridstat.endpoint.ledger import Ledger
    from gridstat.endpoint.options import SubscriptionSpec
    from gridstat.endpoint.request_client import RequestClient
    from gridstat.endpoint.session_events import SubscriptionRestored
    from gridstat.model.qos import ModalQos
    from gridstat.net.clock import Clock
    from gridstat.net.command.endpoint_messages import Notice, Outcome

RETIRE_AFTER_NS: Final = 2_000_000_000
"""Time after a change of period for which the old identifier may still bring events."""
ORPHANS_MAX: Final = 1_024
NO_MATCH_AFTER_NS: Final = 2_000_000_000
"""Time after which a pattern without a match is logged: a match comes only with its paths."""

log = logging.getLogger(__name__)


class SubscriptionRegistry:
    """Subscriptions by the cloud's number and by our label; both refer to the same object, which
    stays the same when the cloud forgets it and grants it again."""

    def __init__(
        self,
        client: RequestClient,
        expected: ExpectedVariables,
        deliverer: Deliverer,
        clock: Clock,
        notifier: ChangeNotifier,
    ) -> None:
        self._client = client
        self._notifier = notifier
        self._expected = expected
        self._deliverer = deliverer
        self._clock = clock
        self._by_id: dict[int, Subscription] = {}
        self._patterns: dict[int, PatternSubscription] = {}
        self._by_label: dict[str, Subscription | PatternSubscription] = {}
        self._specs: dict[str, SubscriptionSpec] = {}
        self._orphans: dict[int, list[tuple[Matched, tuple[bytes, ...]]]] = {}
        self._number = count(1)
        self._dropped_before = 0
        self._lock = threading.RLock()
        self.modes = 1
        self.next_modes = 0

    @property
    def is_empty(self) -> bool:
        """True if there is none."""
        return not (self._by_id or self._by_label)

    @property
    def dropped(self) -> int:
        """Events that slow readers have lost."""
        return self._dropped_before + sum(each.dropped for each in tuple(self._by_id.values()))

    # Requests of the application.

    def subscribe(self, specs: Sequence[SubscriptionSpec]) -> list[Subscription | GridStatError]:
        """Request contracts, a few in each message; each has its own answer, in order."""
        found: list[Subscription | GridStatError] = []
        try:
            for at in range(0, len(specs), MANY_MAX):
                some = awaited(self.subscribe_later(specs[at : at + MANY_MAX]), self.give_back)
                found += some
        except BaseException:
            self.give_back(found)
            raise
        return found

    def subscribe_later(
        self, specs: Sequence[SubscriptionSpec]
    ) -> Future[list[Subscription | GridStatError]]:
        """Request contracts, a few in each message, without waiting for the answers."""
        parts: list[Future[list[Subscription | GridStatError]]] = []
        try:
            for at in range(0, max(1, len(specs)), SUBSCRIPTIONS_AT_ONCE):
                asked = self._ask_for(specs[at : at + SUBSCRIPTIONS_AT_ONCE])
                parts.append(asked)  # One by one: those before are undone if this fails.
        except BaseException:
            undo(parts, self.give_back)
            raise
        return parts[0] if len(parts) == 1 else JoinedRequests(parts, self.give_back)

    def _ask_for(
        self, specs: Sequence[SubscriptionSpec]
    ) -> Future[list[Subscription | GridStatError]]:
        labels = [f"s{next(self._number)}" for _ in specs]
        requests = tuple(_request(spec, label) for spec, label in zip(specs, labels, strict=True))

        def use(
            outcomes: tuple[Outcome, ...], newest: tuple[bytes, ...]
        ) -> list[Subscription | GridStatError]:
            found = [
                self._granted(spec, label, outcome)
                for spec, label, outcome in zip(specs, labels, spread(outcomes, specs), strict=True)
            ]
            self._hold_newest(newest)
            return found

        return self._client.ask(Subscribe(subscriptions=requests), use)

    def subscribe_pattern(
        self, spec: SubscriptionSpec, on_match: Callable[[Subscription], object] | None
    ) -> PatternSubscription:
        """Subscribe to all variables of a pattern."""
        label = f"p{next(self._number)}"
        pattern = PatternSubscription(self, spec.name, label, on_match)

        def use(outcomes: tuple[Outcome, ...], _: tuple[bytes, ...]) -> None:
            (outcome,) = outcomes
            if isinstance(outcome, RefusedOutcome):
                raise refusal(outcome)
            assert isinstance(outcome, GrantedOutcome), "a pattern is granted or refused"
            with self._lock:
                self._specs[label] = spec
                self._by_label[label] = pattern
            self._hold_pattern(pattern, outcome)

        asked = self._client.ask(Subscribe(subscriptions=(_request(spec, label),)), use)
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
            self._deliverer.post(partial(self._expected.begin, subscription, self.modes))

        self._client.ask(command, use).result()

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
            self._client.ask(
                Unsubscribe(subscription_ids=tuple(ids[at : at + MANY_MAX])), ignore_outcomes
            )
            for at in range(0, len(ids), MANY_MAX)
        ]

    def end_pattern(self, pattern: PatternSubscription) -> None:
        """End a pattern and all its subscriptions."""
        self._end_pattern(pattern).result()

    def _end_pattern(self, pattern: PatternSubscription) -> Future[None]:
        pattern.is_over = True
        with self._lock:
            self._patterns.pop(pattern.pattern_id, None)
            self._by_label.pop(pattern.label, None)
            self._specs.pop(pattern.label, None)
        for match in pattern.matches:
            self._forget(match)
        return self._client.ask(Unsubscribe(subscription_ids=(pattern.pattern_id,)), raise_refusals)

    def unsubscribe_all(self) -> None:
        """End all of them in one request."""
        self.end()
        self._client.ask(Unsubscribe(), raise_refusals).result()

    def end(self) -> None:
        """End all subscriptions and patterns here."""
        with self._lock:
            patterns = tuple(self._patterns.values())
            self._patterns.clear()
            self._orphans.clear()
        for pattern in patterns:
            pattern.is_over = True
        for subscription in tuple(self._by_id.values()):
            self._forget(subscription)
        self._by_label.clear()
        self._specs.clear()

    def ledger(self, subscription: Subscription) -> Ledger:
        """Return the ledger of a contract so far."""
        return self._expected.ledger(subscription)

    def report(self) -> None:
        """Report all non-empty ledgers to the cloud; the answers are ignored."""
        held = sorted(self._by_id.items())
        impaired = tuple(number for number, each in held if each.contract.paths_down)[:MANY_MAX]
        for some in self._expected.reports(held):
            self._client.ask(ReportLedger(entries=some, impaired=impaired), ignore_outcomes)
            impaired = ()
        if impaired:
            self._client.ask(ReportLedger(entries=(), impaired=impaired), ignore_outcomes)

    # Notices of the cloud, on the session's thread.

    def notice_received(self, notice: Notice, newest: tuple[bytes, ...]) -> None:
        """Handle a notice; it may come twice, once by each edge, with the same effect."""
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
        pattern = self._patterns.get(notice.subscription_id)
        if pattern is not None and notice.is_over:
            self._pattern_ended(pattern, notice)
            return
        subscription = self._by_id.get(notice.subscription_id)
        if subscription is None:
            return
        code = notice.code or NoSuchVariable.code
        reason = notice.reason or f"{notice.name} is not published any more"
        is_known = subscription.error_code == code
        if notice.is_over or not is_known:
            self._notifier.subscription_purged(subscription, reason, code, is_over=notice.is_over)
        if notice.is_over:
            self._forget(subscription, code)
        else:
            subscription.incoming.holder.set_error_code(code)

    def _pattern_ended(self, pattern: PatternSubscription, notice: Unpublished) -> None:
        """Handle that the cloud has ended a pattern; its matches have notices of their own."""
        log.warning("pattern_ended pattern=%r reason=%r", pattern.pattern, notice.reason)
        pattern.is_over = True
        with self._lock:
            self._patterns.pop(pattern.pattern_id, None)
            if not pattern.matches:
                self._by_label.pop(pattern.label, None)
            spec = self._specs.pop(pattern.label, None)
        followers = self._notifier.new_followers(None if spec is None else spec.on_change)
        self._notifier.pattern_purged(pattern.pattern, notice.reason, notice.code, followers)

    def _contract_changed(self, notice: ContractChanged) -> None:
        subscription = self._by_id.get(notice.granted.subscription_id)
        if subscription is None:
            return
        if not subscription.takes_notice(notice.order):
            return  # Repeated, or from the other edge: known or outdated.
        before = subscription.contract
        subscription.replace_contract(notice.granted)
        self._deliverer.post(partial(self._expected.begin, subscription, self.modes))
        self._notifier.contract_changed(subscription, before, subscription.granted_contract)

    def registrations_lost(self) -> None:
        """Report all subscriptions as purged; each is granted again, or refused for now."""
        for subscription in tuple(self._by_id.values()):
            self._notifier.subscription_purged(subscription, FORGOTTEN, CODE_PURGED, is_over=False)

    def followers(self) -> list[ChangeFollowers]:
        """Return the followers of each subscription."""
        return [each.followers for each in tuple(self._by_id.values())]

    def restored(self, event: SubscriptionRestored) -> None:
        """Handle the restoration, or refusal, of a subscription that the cloud had forgotten."""
        held = self._by_label.get(event.label)
        if isinstance(held, Subscription):
            self._regrant(held, event.outcome)
            self._hold_newest(event.newest)
        elif held is not None and isinstance(event.outcome, GrantedOutcome):
            with self._lock:
                self._patterns.pop(held.pattern_id, None)
            self._hold_pattern(held, event.outcome)

    def set_modes(self, modes: int, next_modes: int = 0) -> None:
        """Set the active and the next modes, by which contracts are judged from now on."""
        has_changed = modes != self.modes
        self.modes, self.next_modes = modes, next_modes
        is_changing = next_modes not in (0, modes)
        for subscription in tuple(self._by_id.values()):
            subscription.incoming.pause(is_paused=is_changing)
            if has_changed:
                self._deliverer.post(partial(self._expected.begin, subscription, modes))

    def _granted(
        self, spec: SubscriptionSpec, label: str, outcome: Outcome
    ) -> Subscription | GridStatError:
        if isinstance(outcome, RefusedOutcome):
            return refusal(outcome)
        if not isinstance(outcome, GrantedOutcome):
            return Misuse(f"the cloud answered {type(outcome).__name__} to a subscription")
        batches = Mailbox(spec.keep_events, without_oldest) if spec.keep_events else None
        incoming = SubscriptionDispatch(spec.name, spec.handlers, self._deliverer.failures, batches)
        followers = self._notifier.new_followers(spec.on_change)
        subscription = Subscription(self, incoming, outcome, label, followers)
        try:
            self._expected.begin(subscription, self.modes)
        except GridStatError as problem:
            self._client.ask(
                Unsubscribe(subscription_ids=(outcome.subscription_id,)), ignore_outcomes
            )
            return problem
        for name in spec.derived:
            if not incoming.holder.register_derived(name):
                incoming.holder.set_error_code(NoSuchVariable.code)
        with self._lock:
            self._by_id[outcome.subscription_id] = subscription
            self._by_label.setdefault(label, subscription)
        return subscription

    def _regrant(
        self, subscription: Subscription, outcome: GrantedOutcome | RefusedOutcome
    ) -> None:
        if isinstance(outcome, RefusedOutcome):
            with self._lock:
                self._forget_number(subscription)
            is_known = subscription.error_code == outcome.code
            subscription.incoming.holder.set_error_code(outcome.code)
            if not is_known:
                reason = refusal_reason(outcome)
                self._notifier.subscription_purged(
                    subscription, reason, outcome.code, is_over=False
                )
            return
        with self._lock:
            self._forget_number(subscription)
            before = self._expected.identifiers(subscription)
            subscription.notice_order = (0, 0)  # Of another contract, perhaps of another broker.
            subscription.regrant_contract(outcome)
            subscription.paths.has_news = True
            self._by_id[outcome.subscription_id] = subscription
        subscription.incoming.holder.set_error_code(0)
        self._expected.begin(subscription, self.modes)
        after = None if outcome.variable is None else outcome.variable.variable_id
        for variable_id in before:
            if variable_id != after:
                self._expected.end(subscription, variable_id)
        self._notifier.subscription_restored(subscription)

    def _forget_number(self, subscription: Subscription) -> None:
        """Forget the number of a subscription, unless it is another one's by now.

        A broker of an earlier release that has lost its journal counts from the beginning.
        """
        number = subscription.contract.subscription_id
        if self._by_id.get(number) is subscription:
            del self._by_id[number]

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
            # Through the other edge the match may come before the pattern's own answer.
            with self._lock:
                if len(self._orphans) < ORPHANS_MAX:
                    self._orphans.setdefault(notice.pattern_id, []).append((notice, newest))
            return
        known = pattern.match(granted.variable.name)
        if known is not None:
            self._regrant(known, granted)
        else:
            spec = self._specs[pattern.label]
            named = replace(spec, name=granted.variable.name)
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
        if not subscription.takes_notice(notice.order):
            return
        before = [
            number
            for number in self._expected.identifiers(subscription)
            if number != variable.variable_id
        ]
        # Divisors count slots of the new period, so the old grant is no measure any more.
        subscription.replace_contract(notice.granted)
        subscription.granted_contract = subscription.contract
        begin = partial(self._expected.begin, subscription, self.modes, notice.from_ns)
        self._deliverer.post(begin)
        ahead_ns = max(0, notice.from_ns - self._clock.posix_ns())
        at_ns = self._clock.steady_ns() + ahead_ns + RETIRE_AFTER_NS
        for number in before:
            self._expected.limit(subscription, number, notice.from_ns)
            self._deliverer.later(at_ns, partial(self._expected.end, subscription, number))

    def _forget(self, subscription: Subscription, code: int = 0) -> None:
        with self._lock:
            self._by_id.pop(subscription.contract.subscription_id, None)
            held = self._by_label.get(subscription.label)
            if isinstance(held, PatternSubscription):
                held.lost(subscription)
                if held.is_over and not held.matches:
                    self._by_label.pop(subscription.label, None)
            else:
                self._by_label.pop(subscription.label, None)
        self._expected.end(subscription)
        self._dropped_before += 0 if subscription.is_over else subscription.dropped
        subscription.end(code)

    def _hold_newest(self, newest: tuple[bytes, ...]) -> None:
        """Fill the holders that are still empty with events that an edge router had cached."""
        for variable_id, row, options in _cached_events(newest, self._clock.posix_ns()):
            for taker in self._deliverer.takers(variable_id):
                taker.hold(row, options)


def _cached_events(newest: tuple[bytes, ...], received_ns: int) -> Iterator[tuple[int, Row, bytes]]:
    """Yield identifier, row and options of each event; malformed ones are left out."""
    for raw in newest:
        try:
            views = list(walk_events(raw))
        except Malformed:
            continue
        for view in views:
            row = (
                view.created_ns,
                received_ns,
                view.variable_id,
                view.option_count,
                view.flags,
                view.sequence,
                int.from_bytes(view.payload[:8], "big", signed=True),
            )
            yield view.variable_id, row, bytes(view.payload[8:])


def _warn_without_match(pattern: PatternSubscription) -> None:
    if not pattern.matched and not pattern.is_over:
        log.warning("no_match_yet pattern=%r missed=%d", pattern.pattern, len(pattern.missed))


def _request(spec: SubscriptionSpec, label: str) -> SubscriptionRequest:
    return SubscriptionRequest(
        name=spec.name, qos=spec.qos, value_type=spec.value_type, label=label
    )
