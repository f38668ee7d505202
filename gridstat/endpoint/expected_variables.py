"""Which variables the receiver expects, for which subscriptions, and what it counted for them.

While a publication changes its period a subscription listens to two identifiers; several
subscriptions of one end-point may listen to the same one.
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
from gridstat.endpoint.slot_clock import Begin
from gridstat.endpoint.tally import Tally

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
"""In one of so many reports are paths that were left before, should the cloud have forgotten."""


class Expecting(Protocol):
    """The part of a receiver that is needed here."""

    def expect(
        self,
        variable_id: int,
        period: Period | None,
        phase_ns: int = 0,
        *,
        every: int = 1,
        deadline_ns: int = 0,
    ) -> None:
        """Take this variable, the first copy of each event; copies may be late."""
        ...

    def forget(self, variable_id: int) -> None:
        """Take it no longer."""
        ...

    def variable_counters(self, variable_id: int) -> VariableCounters:
        """What was counted since it was first expected."""
        ...


@dataclass(slots=True)
class _Expectation:
    """A subscription's interest in one identifier, and what came of it.

    Copies are counted by the receiver for all who listen to it; `duplicate`, `unread` and `copies`
    are what it had counted before this one began.
    """

    variable: StatusVariable
    terms: Terms | None
    tally: Tally
    latency_ns: int
    subscription_id: int = 0
    """Under which the tap knows it."""
    duplicate: int = 0
    unread: int = 0
    copies: tuple[int, ...] = ()

    @property
    def law(self) -> _Law:
        return _Law(1 if self.terms is None else self.terms.every, self.latency_ns)


class _Law(NamedTuple):
    """By which slots and which deadline the receiver counts a variable."""

    every: int
    deadline_ns: int


class ExpectedVariables:
    """An identifier is expected as long as somebody listens to it, and no longer."""

    def __init__(self, receiver: Expecting, deliverer: Deliverer, clock: Clock) -> None:
        self.places: dict[str, int] = {}
        """Which of the receiver's sources each edge is."""
        self.tap: Tap | None = None
        self._receiver = receiver
        self._deliverer = deliverer
        self._clock = clock
        self._ears: dict[Subscription, dict[int, _Expectation]] = {}
        self._listeners: dict[int, list[_Expectation]] = {}
        self._laws: dict[int, _Law] = {}
        self._begun: dict[int, int] = {}
        """Which of all counts of the receiver its count of a variable is."""
        self._count_ids = count(1)
        self._reports = 0
        self._edges: dict[tuple[str, int], EdgeReading] = {}
        self._lock = threading.RLock()

    def begin(self, subscription: Subscription, modes: int, from_ns: int = 0) -> None:
        """Listen to the variable of its contract; raises if it cannot be delivered as wished.

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
            ears = self._ears.setdefault(subscription, {})
            if variable.variable_id in ears:
                self._renew(subscription, ears[variable.variable_id], terms, latency_ns)
                return
            ear = _Expectation(variable, terms, Tally(terms, latency_ns, begin), latency_ns)
            subscription.incoming.obey(variable, terms, ear.tally, begin)
            self._tell_tap(subscription, ear)
            self._expect(ear)
            ears[variable.variable_id] = ear
        self._deliverer.add(variable.variable_id, subscription.incoming)
        self._deliverer.watch(subscription.incoming)
        self._stir(subscription)

    def end(self, subscription: Subscription, variable_id: int | None = None) -> None:
        """Listen no longer: to one identifier, or to all of the subscription's."""
        with self._lock:
            self._read_paths(subscription, self._total(subscription))
            ears = self._ears.get(subscription, {})
            if variable_id is None and ears:
                self._tell_tap_of_end(next(reversed(ears.values())))
            for number in tuple(ears) if variable_id is None else (variable_id,):
                ear = ears.pop(number, None)
                if ear is None:
                    continue
                counted = ear.tally.finish(self._deliverer.caught_up_ns)
                subscription.past += self._with_copies(ear, counted)
                self._deliverer.remove(number, subscription.incoming)
                subscription.incoming.forget(number)
                self._expect_no_longer(ear)
            if not ears:
                self._ears.pop(subscription, None)
                self._deliverer.unwatch(subscription.incoming)

    def limit(self, subscription: Subscription, variable_id: int, until_ns: int) -> None:
        """From that stamp on the variable bears another identifier."""
        with self._lock:
            ear = self._ears.get(subscription, {}).get(variable_id)
            if ear is not None:
                ear.tally.limit(until_ns)

    def identifiers(self, subscription: Subscription) -> tuple[int, ...]:
        """What it listens to."""
        with self._lock:
            return tuple(self._ears.get(subscription, ()))

    def ledger(self, subscription: Subscription) -> Ledger:
        """What came of its contracts so far."""
        with self._lock:
            total = self._total(subscription)
            self._read_paths(subscription, total)
            paths = subscription.paths.told()
        return total + _own(subscription, paths)

    def reports(
        self, subscriptions: Iterable[tuple[int, Subscription]]
    ) -> Iterator[tuple[LedgerEntry, ...]]:
        """What the broker is told of all that got anything, by reports that fit in a frame."""
        self._reports += 1
        entries = [self.report(each, number, self._reports) for number, each in subscriptions]
        return frames_of(entry for entry in entries if entry is not None)

    def report(
        self, subscription: Subscription, subscription_id: int, turn: int = 0
    ) -> LedgerEntry | None:
        """The ledger as the broker is told of it, if there is one; cheaper than the ledger.

        The only path of a contract has nothing to add, and need not be looked at to count. Paths
        that it has left are told when one was left since, and else in a few of the turns.
        """
        paths = subscription.paths
        if paths.has_several:
            found = self.ledger(subscription)
            is_full = (turn + subscription_id) % FULL_EVERY == 0
            if not (is_full or paths.has_news):
                found = replace(found, paths=tuple([way for way in found.paths if way.is_open]))
            paths.has_news = paths.has_news and found.is_blank
        else:
            with self._lock:
                found = self._total(subscription)
            found += _own(subscription)
        if found.is_blank:
            return None
        return found.entry(subscription_id, self.asked_of_edge(subscription))

    def asked_of_edge(self, subscription: Subscription) -> int:
        """The variable of which an edge must say by which paths it came, or 0."""
        variable = subscription.contract.variable
        if variable is None or variable.period is None or not subscription.paths.asks_edge:
            return 0
        return variable.variable_id

    def note_copies(self, edge: str, copies: Iterable[EdgeCopies]) -> None:
        """What an edge has counted of some variables."""
        now_ns = self._clock.steady_ns()
        with self._lock:
            for each in copies:
                if each.variable_id in self._listeners:
                    self._edges[edge, each.variable_id] = EdgeReading(each, now_ns)

    def _follow_paths(self, subscription: Subscription) -> None:
        """What the old paths have counted is read once more, and what the new ones begin with."""
        if subscription.paths.granted == subscription.contract.paths:
            return
        total = self._total(subscription)
        self._read_paths(subscription, total)
        subscription.paths.follow(subscription.contract.paths, self._clock.steady_ns())
        self._read_paths(subscription, total)

    def _total(self, subscription: Subscription) -> Ledger:
        """All that was counted of a subscription as a whole."""
        total = subscription.past
        for ear in self._ears.get(subscription, {}).values():
            counted = ear.tally.ledger(self._deliverer.caught_up_ns)
            total += self._with_copies(ear, counted)
        return total

    def _read_paths(self, subscription: Subscription, total: Ledger) -> None:
        if not subscription.paths.granted:
            return
        variable = subscription.contract.variable
        number = 0 if variable is None else variable.variable_id
        newest = self._ears.get(subscription, {}).get(number)
        every = 0 if newest is None or newest.terms is None else newest.terms.every
        law = self._laws.get(number, _Law(0, 0))
        is_asked = newest is not None and subscription.paths.asks_receiver
        counts = Counted(
            now_ns=self._clock.steady_ns(),
            delivered=total.delivered,
            lost=total.lost,
            late=total.late,
            every=every,
            variable_id=number,
            receiver=self._receiver.variable_counters(number) if is_asked else None,
            receiver_every=law.every,
            receiver_count=self._begun.get(number, 0),
            is_own_deadline=newest is not None and law.deadline_ns == newest.latency_ns,
            places=self.places,
            edges=self._edges,
        )
        subscription.paths.read(counts)

    def _begin(self, from_ns: int) -> Begin:
        """Now, or the announced instant; by no clock of ours does that lie in the past."""
        at_ns, wall_ns = self._clock.steady_ns(), self._clock.posix_ns()
        if not from_ns:
            return Begin(at_ns, wall_ns)
        return Begin(at_ns + max(0, from_ns - wall_ns), from_ns, is_exact=True)

    def _renew(
        self, subscription: Subscription, ear: _Expectation, terms: Terms | None, latency_ns: int
    ) -> None:
        """Other terms for the same identifier; the receiver counts by them if it is for us alone.

        Else it goes on by those of the first one, and what it counts by path may be of no use.
        """
        if (terms, latency_ns) == (ear.terms, ear.latency_ns):
            if ear.subscription_id != subscription.contract.subscription_id:
                self._tell_tap(subscription, ear)
            return
        begin = self._begin(0)
        ear.tally.renew(terms, latency_ns, begin)
        ear.terms, ear.latency_ns = terms, latency_ns
        self._expect_anew(ear.variable.variable_id)
        subscription.incoming.obey(ear.variable, terms, ear.tally, begin)
        self._tell_tap(subscription, ear)
        self._stir(subscription)

    def _tell_tap(self, subscription: Subscription, ear: _Expectation) -> None:
        """Before its first event can come."""
        ear.subscription_id = subscription.contract.subscription_id
        if self.tap is not None:
            self.tap.begin(ear.variable, ear.law.every, ear.subscription_id)

    def _tell_tap_of_end(self, ended: _Expectation) -> None:
        """And under whose contract its events go on to come, if somebody else has one."""
        if self.tap is None:
            return
        self.tap.end(ended.variable, ended.law.every, ended.subscription_id)
        others = [each for each in self._listeners[ended.variable.variable_id] if each is not ended]
        if others:
            self.tap.begin(others[-1].variable, others[-1].law.every, others[-1].subscription_id)

    def _stir(self, subscription: Subscription) -> None:
        """It may be watched from now on, or more closely."""
        if subscription.incoming.next_due_ns is not None:
            self._deliverer.post(partial(self._deliverer.stir, subscription.incoming))

    def _expect(self, ear: _Expectation) -> None:
        number = ear.variable.variable_id
        if self._listeners.get(number):
            counted = self._receiver.variable_counters(number)
            ear.duplicate, ear.unread = counted["duplicate"], counted["ring_full"]
            ear.copies = tuple(counted["copies"])
        else:
            self._expect_by(ear)
        self._listeners.setdefault(number, []).append(ear)

    def _expect_by(self, ear: _Expectation) -> None:
        variable = ear.variable
        number, law = variable.variable_id, ear.law
        self._receiver.expect(
            number,
            variable.period,
            variable.phase_ns,
            every=law.every,
            deadline_ns=law.deadline_ns,
        )
        self._laws[number], self._begun[number] = law, next(self._count_ids)

    def _expect_anew(self, variable_id: int) -> None:
        """By the terms of the only one who listens; what was counted before stays counted."""
        ears = self._listeners[variable_id]
        if len(ears) > 1 or ears[0].law == self._laws[variable_id]:
            return
        (ear,) = ears
        counted = self._receiver.variable_counters(variable_id)
        copies = zip_longest(ear.copies, counted["copies"], fillvalue=0)
        self._expect_by(ear)
        ear.duplicate -= counted["duplicate"]
        ear.unread -= counted["ring_full"]
        ear.copies = tuple(before - now for before, now in copies)

    def _expect_no_longer(self, ear: _Expectation) -> None:
        number = ear.variable.variable_id
        self._listeners[number] = [each for each in self._listeners[number] if each is not ear]
        if self._listeners[number]:
            self._expect_anew(number)
            return
        del self._listeners[number], self._laws[number], self._begun[number]
        self._receiver.forget(number)
        for edge in self.places:
            self._edges.pop((edge, number), None)

    def _with_copies(self, ear: _Expectation, ledger: Ledger) -> Ledger:
        counted = self._receiver.variable_counters(ear.variable.variable_id)
        # A slot that found no room in the ring is missed like any other; without slots, by this.
        unread = 0 if ear.terms is not None else counted["ring_full"] - ear.unread
        copies = zip_longest(counted["copies"], ear.copies, fillvalue=0)
        return ledger + Ledger(
            expected=unread,
            lost=unread,
            duplicate=counted["duplicate"] - ear.duplicate,
            copies=tuple(now - before for now, before in copies),
        )


def _own(subscription: Subscription, paths: tuple[PathLedger, ...] = ()) -> Ledger:
    """What the subscription counts itself, whatever its variable's identifier."""
    extrapolated = subscription.incoming.extrapolated
    return Ledger(extrapolated=extrapolated, dropped=subscription.dropped, paths=paths)
