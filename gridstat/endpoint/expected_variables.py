"""Variables that the receiver expects, the subscriptions to them, and their counts.

While a publication changes its period a subscription has two identifiers; several subscriptions of
one end-point may have the same one.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, zip_longest
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from gridstat.endpoint.contract import latency_ns_in, terms_in
from gridstat.endpoint.ledger import Ledger, frames_of
from gridstat.endpoint.path_ledger import Counted, EdgeReading
from gridstat.endpoint.slot_clock import StartTime
from gridstat.endpoint.tally import Tally
from gridstat.model.copy_window import counted_every

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gridstat.core.samples import VariableCounters
    from gridstat.endpoint.deliverer import Deliverer
    from gridstat.endpoint.path_ledger import PathLedger
    from gridstat.endpoint.subscriber import Subscription
    from gridstat.endpoint.tap import Tap
    from gridstat.endpoint.violation import Terms
    from gridstat.model.rate_law import Period
    from gridstat.model.status import StatusVariable
    from gridstat.net.clock import Clock
    from gridstat.net.command.endpoint_messages import EdgeCopies, LedgerEntry

FULL_EVERY: Final = 12
"""One report in so many also has the paths that were left, in case the cloud has forgotten them."""


class Expecting(Protocol):
    """Part of a receiver that is needed here."""

    def expect(
        self,
        variable_id: int,
        period: Period | None,
        phase_ns: int = 0,
        *,
        every: int = 1,
        deadline_ns: int = 0,
    ) -> None:
        """Accept this variable, the first copy of each event; copies may be late."""
        ...

    def forget(self, variable_id: int) -> None:
        """Stop accepting the variable."""
        ...

    def variable_counters(self, variable_id: int) -> VariableCounters:
        """Return the counts since the variable was first expected."""
        ...


@dataclass(slots=True)
class _Expectation:
    """One identifier that a subscription expects, with its counts.

    The receiver counts copies for all subscriptions of the identifier; `duplicate`, `unread` and
    `copies` are its counts from before this one began.
    """

    variable: StatusVariable
    terms: Terms | None
    tally: Tally
    latency_ns: int
    subscription_id: int = 0
    """Subscription number that the tap knows."""
    duplicate: int = 0
    unread: int = 0
    copies: tuple[int, ...] = ()

    @property
    def law(self) -> _Law:
        return _Law(1 if self.terms is None else self.terms.every, self.latency_ns)


class _Law(NamedTuple):
    """Divisor and deadline by which the receiver counts a variable."""

    every: int
    deadline_ns: int


class ExpectedVariables:
    """Expects an identifier while a subscription needs it, and no longer."""

    def __init__(self, receiver: Expecting, deliverer: Deliverer, clock: Clock) -> None:
        self.source_indices: dict[str, int] = {}
        """Index of each edge among the receiver's sources."""
        self._tap: Tap | None = None
        self._receiver = receiver
        self._deliverer = deliverer
        self._clock = clock
        self._expectations: dict[Subscription, dict[int, _Expectation]] = {}
        self._listeners: dict[int, list[_Expectation]] = {}
        self._laws: dict[int, _Law] = {}
        self._begun: dict[int, int] = {}
        """Number of the receiver's present count, by variable."""
        self._count_ids = count(1)
        self._reports = 0
        self._edges: dict[tuple[str, int], EdgeReading] = {}
        self._lock = threading.RLock()

    def set_tap(self, tap: Tap) -> None:
        """Notify this tap of every contract from now on."""
        self._tap = tap

    def begin(self, subscription: Subscription, modes: int, from_ns: int = 0) -> None:
        """Expect the variable of a contract; raise if it cannot be delivered as requested.

        With `from_ns` the variable bears this identifier for stamps from then on.
        """
        variable = subscription.contract.variable
        if variable is None:
            return
        terms = terms_in(subscription.contract, modes)
        latency_ns = latency_ns_in(subscription.contract, modes)
        begin = self._begin(from_ns)
        with self._lock:
            self._follow_paths(subscription)
            expectations = self._expectations.setdefault(subscription, {})
            if variable.variable_id in expectations:
                self._renew(subscription, expectations[variable.variable_id], terms, latency_ns)
                return
            expectation = _Expectation(variable, terms, Tally(terms, latency_ns, begin), latency_ns)
            subscription.incoming.set_terms(variable, terms, expectation.tally, begin)
            self._notify_tap(subscription, expectation)
            self._expect(expectation)
            expectations[variable.variable_id] = expectation
        self._deliverer.add(variable.variable_id, subscription.incoming)
        self._deliverer.watch(subscription.incoming)
        self._reschedule(subscription)

    def end(self, subscription: Subscription, variable_id: int | None = None) -> None:
        """Stop expecting one identifier, or all of the subscription's."""
        with self._lock:
            self._read_paths(subscription, self._total(subscription))
            expectations = self._expectations.get(subscription, {})
            if variable_id is None and expectations:
                self._notify_tap_of_end(next(reversed(expectations.values())))
            for number in tuple(expectations) if variable_id is None else (variable_id,):
                expectation = expectations.pop(number, None)
                if expectation is None:
                    continue
                counted = expectation.tally.finish(self._deliverer.caught_up_ns)
                subscription.past += self._with_copies(expectation, counted)
                self._deliverer.remove(number, subscription.incoming)
                subscription.incoming.forget(number)
                self._stop_expecting(expectation)
            if not expectations:
                self._expectations.pop(subscription, None)
                self._deliverer.unwatch(subscription.incoming)

    def limit(self, subscription: Subscription, variable_id: int, until_ns: int) -> None:
        """Note that the variable has another identifier from that stamp on."""
        with self._lock:
            expectation = self._expectations.get(subscription, {}).get(variable_id)
            if expectation is not None:
                expectation.tally.limit(until_ns)

    def identifiers(self, subscription: Subscription) -> tuple[int, ...]:
        """Return the identifiers that a subscription expects."""
        with self._lock:
            return tuple(self._expectations.get(subscription, ()))

    def ledger(self, subscription: Subscription) -> Ledger:
        """Return the ledger of its contracts so far."""
        with self._lock:
            total = self._total(subscription)
            self._read_paths(subscription, total)
            paths = subscription.paths.ledgers()
        return total + _own(subscription, paths)

    def reports(
        self, subscriptions: Iterable[tuple[int, Subscription]]
    ) -> Iterator[tuple[LedgerEntry, ...]]:
        """Yield ledger reports for the broker, each of which fits in a frame."""
        self._reports += 1
        entries = [self.report(each, number, self._reports) for number, each in subscriptions]
        return frames_of(entry for entry in entries if entry is not None)

    def report(
        self, subscription: Subscription, subscription_id: int, round_number: int = 0
    ) -> LedgerEntry | None:
        """Return the ledger entry for the broker, or None if nothing was counted; cheaper than
        `ledger`.

        The only path of a contract adds nothing and is not read. Paths that the contract has left
        are reported when one was left since, and else in a few of the rounds.
        """
        paths = subscription.paths
        if paths.has_several:
            found = self.ledger(subscription)
            is_full = (round_number + subscription_id) % FULL_EVERY == 0
            if not (is_full or paths.has_news):
                found = replace(found, paths=tuple([path for path in found.paths if path.is_open]))
            paths.has_news = paths.has_news and found.is_blank
        else:
            with self._lock:
                found = self._total(subscription)
            found += _own(subscription)
        if found.is_blank:
            return None
        return found.entry(subscription_id, self.asked_of_edge(subscription))

    def asked_of_edge(self, subscription: Subscription) -> int:
        """Return the variable whose copies an edge must report by path, or 0."""
        variable = subscription.contract.variable
        if variable is None or variable.period is None or not subscription.paths.asks_edge:
            return 0
        return variable.variable_id

    def note_copies(self, edge: str, copies: Iterable[EdgeCopies]) -> None:
        """Note the copies that an edge has counted for some variables."""
        now_ns = self._clock.steady_ns()
        with self._lock:
            for each in copies:
                if each.variable_id in self._listeners:
                    self._edges[edge, each.variable_id] = EdgeReading(each, now_ns)

    def _follow_paths(self, subscription: Subscription) -> None:
        """Read the counts of the old paths a last time, and the starting counts of the new ones."""
        if subscription.paths.granted == subscription.contract.paths:
            return
        total = self._total(subscription)
        self._read_paths(subscription, total)
        subscription.paths.follow(subscription.contract.paths, self._clock.steady_ns())
        self._read_paths(subscription, total)

    def _total(self, subscription: Subscription) -> Ledger:
        """Return the counts of a subscription as a whole."""
        total = subscription.past
        for expectation in self._expectations.get(subscription, {}).values():
            counted = expectation.tally.ledger(self._deliverer.caught_up_ns)
            total += self._with_copies(expectation, counted)
        return total

    def _read_paths(self, subscription: Subscription, total: Ledger) -> None:
        if not subscription.paths.granted:
            return
        variable = subscription.contract.variable
        number = 0 if variable is None else variable.variable_id
        newest = self._expectations.get(subscription, {}).get(number)
        every = 0 if newest is None or newest.terms is None else newest.terms.every
        law = self._laws.get(number, _Law(0, 0))
        period = None if variable is None else variable.period
        is_asked = newest is not None and subscription.paths.asks_receiver
        counts = Counted(
            now_ns=self._clock.steady_ns(),
            delivered=total.delivered,
            lost=total.lost,
            late=total.late,
            every=every,
            variable_id=number,
            receiver=self._receiver.variable_counters(number) if is_asked else None,
            receiver_every=law.every if period is None else counted_every(period, law.every),
            receiver_count=self._begun.get(number, 0),
            is_own_deadline=newest is not None and law.deadline_ns == newest.latency_ns,
            source_indices=self.source_indices,
            edges=self._edges,
        )
        subscription.paths.read(counts)

    def _begin(self, from_ns: int) -> StartTime:
        """Return the start time: now, or the announced time, which is never before now."""
        at_ns, wall_ns = self._clock.steady_ns(), self._clock.posix_ns()
        if not from_ns:
            return StartTime(at_ns, wall_ns)
        return StartTime(at_ns + max(0, from_ns - wall_ns), from_ns, is_exact=True)

    def _renew(
        self,
        subscription: Subscription,
        expectation: _Expectation,
        terms: Terms | None,
        latency_ns: int,
    ) -> None:
        """Change the terms of an identifier; the receiver counts by them if no other subscription
        uses it.

        Else the receiver keeps counting by the first subscription's terms, and its counts by path
        may not apply.
        """
        if (terms, latency_ns) == (expectation.terms, expectation.latency_ns):
            if expectation.subscription_id != subscription.contract.subscription_id:
                self._notify_tap(subscription, expectation)
            return
        begin = self._begin(0)
        expectation.tally.renew(terms, latency_ns, begin)
        expectation.terms, expectation.latency_ns = terms, latency_ns
        self._renew_expected(expectation.variable.variable_id)
        subscription.incoming.set_terms(expectation.variable, terms, expectation.tally, begin)
        self._notify_tap(subscription, expectation)
        self._reschedule(subscription)

    def _notify_tap(self, subscription: Subscription, expectation: _Expectation) -> None:
        """Notify the tap of the contract, before its first event can come."""
        expectation.subscription_id = subscription.contract.subscription_id
        if self._tap is not None:
            self._tap.begin(
                expectation.variable, expectation.law.every, expectation.subscription_id
            )

    def _notify_tap_of_end(self, ended: _Expectation) -> None:
        """Notify the tap of the end, and of another contract for the same events if there is
        one."""
        if self._tap is None:
            return
        self._tap.end(ended.variable, ended.law.every, ended.subscription_id)
        others = [each for each in self._listeners[ended.variable.variable_id] if each is not ended]
        if others:
            self._tap.begin(others[-1].variable, others[-1].law.every, others[-1].subscription_id)

    def _reschedule(self, subscription: Subscription) -> None:
        """Reschedule the subscription, which may be due earlier now."""
        if subscription.incoming.next_due_ns is not None:
            self._deliverer.post(partial(self._deliverer.reschedule, subscription.incoming))

    def _expect(self, expectation: _Expectation) -> None:
        number = expectation.variable.variable_id
        if self._listeners.get(number):
            counted = self._receiver.variable_counters(number)
            expectation.duplicate, expectation.unread = counted["duplicate"], counted["ring_full"]
            expectation.copies = tuple(counted["copies"])
        else:
            self._expect_by(expectation)
        self._listeners.setdefault(number, []).append(expectation)

    def _expect_by(self, expectation: _Expectation) -> None:
        variable = expectation.variable
        number, law = variable.variable_id, expectation.law
        self._receiver.expect(
            number,
            variable.period,
            variable.phase_ns,
            every=law.every,
            deadline_ns=law.deadline_ns,
        )
        self._laws[number], self._begun[number] = law, next(self._count_ids)

    def _renew_expected(self, variable_id: int) -> None:
        """Expect by the terms of the only subscription left; former counts stay counted."""
        expectations = self._listeners[variable_id]
        if len(expectations) > 1 or expectations[0].law == self._laws[variable_id]:
            return
        (expectation,) = expectations
        counted = self._receiver.variable_counters(variable_id)
        copies = zip_longest(expectation.copies, counted["copies"], fillvalue=0)
        self._expect_by(expectation)
        expectation.duplicate -= counted["duplicate"]
        expectation.unread -= counted["ring_full"]
        expectation.copies = tuple(before - now for before, now in copies)

    def _stop_expecting(self, expectation: _Expectation) -> None:
        number = expectation.variable.variable_id
        self._listeners[number] = [
            each for each in self._listeners[number] if each is not expectation
        ]
        if self._listeners[number]:
            self._renew_expected(number)
            return
        del self._listeners[number], self._laws[number], self._begun[number]
        self._receiver.forget(number)
        for edge in self.source_indices:
            self._edges.pop((edge, number), None)

    def _with_copies(self, expectation: _Expectation, ledger: Ledger) -> Ledger:
        counted = self._receiver.variable_counters(expectation.variable.variable_id)
        # A slot that found the ring full is missing like any other; only aperiodic ones count.
        unread = 0 if expectation.terms is not None else counted["ring_full"] - expectation.unread
        copies = zip_longest(counted["copies"], expectation.copies, fillvalue=0)
        return ledger + Ledger(
            expected=unread,
            lost=unread,
            duplicate=counted["duplicate"] - expectation.duplicate,
            copies=tuple(now - before for now, before in copies),
        )


def _own(subscription: Subscription, paths: tuple[PathLedger, ...] = ()) -> Ledger:
    """Return what the subscription counts itself, whatever its variable's identifier."""
    extrapolated = subscription.incoming.extrapolated
    return Ledger(extrapolated=extrapolated, dropped=subscription.dropped, paths=paths)
