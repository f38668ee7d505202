"""Which variables the receiver expects, for which subscriptions, and what it counted for them.

While a publication changes its period a subscription listens to two identifiers; several
subscriptions of one end-point may listen to the same one.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gridstat.endpoint.contract import terms_in
from gridstat.endpoint.ledger import Ledger, Tally, ledger_of

if TYPE_CHECKING:
    from gridstat.core.samples import VariableCounters
    from gridstat.endpoint.deliverer import Deliverer
    from gridstat.endpoint.subscriber import Subscription
    from gridstat.endpoint.violation import Terms
    from gridstat.model.rate_law import Period
    from gridstat.model.status import StatusVariable
    from gridstat.net.clock import Clock


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
        """Take this variable, the first copy of each event."""
        ...

    def forget(self, variable_id: int) -> None:
        """Take it no longer."""
        ...

    def variable_counters(self, variable_id: int) -> VariableCounters:
        """What was counted since its terms last changed."""
        ...


@dataclass(slots=True)
class _Ear:
    """A subscription's interest in one identifier; with a tally it counts for itself.

    Nothing stamped `until_ns` or later is expected under it any more.
    """

    variable: StatusVariable
    terms: Terms | None
    tally: Tally | None
    latency_ns: int
    until_ns: int | None = None


class Listening:
    """An identifier is expected as long as somebody listens to it, and no longer."""

    def __init__(self, receiver: Expecting, deliverer: Deliverer, clock: Clock) -> None:
        self._receiver = receiver
        self._deliverer = deliverer
        self._clock = clock
        self._ears: dict[Subscription, dict[int, _Ear]] = {}
        self._listeners: dict[int, int] = {}
        self._lock = threading.RLock()

    def begin(self, subscription: Subscription, modes: int) -> None:
        """Listen to the variable of its contract; raises if it cannot be delivered as wished."""
        variable = subscription.contract.variable
        if variable is None:
            return
        terms = terms_in(subscription.contract, modes)
        latency_ns = _latency_ns(subscription)
        with self._lock:
            ears = self._ears.setdefault(subscription, {})
            if variable.variable_id in ears:
                self._renew(subscription, ears[variable.variable_id], terms, latency_ns)
                return
            is_first = not self._listeners.get(variable.variable_id)
            tally = None if is_first else Tally()
            ear = _Ear(variable, terms, tally, latency_ns)
            subscription.incoming.tally = tally
            subscription.incoming.obey(variable, terms)
            if is_first:
                self._expect(ear)
            ears[variable.variable_id] = ear
            self._listeners[variable.variable_id] = self._listeners.get(variable.variable_id, 0) + 1
        self._deliverer.add(variable.variable_id, subscription.incoming)
        self._deliverer.watch(subscription.incoming)

    def end(self, subscription: Subscription, variable_id: int | None = None) -> None:
        """Listen no longer: to one identifier, or to all of the subscription's."""
        with self._lock:
            ears = self._ears.get(subscription, {})
            for number in tuple(ears) if variable_id is None else (variable_id,):
                ear = ears.pop(number, None)
                if ear is None:
                    continue
                subscription.past += self._counted(ear)
                self._deliverer.remove(number, subscription.incoming)
                subscription.incoming.forget(number)
                self._listeners[number] -= 1
                if not self._listeners[number]:
                    del self._listeners[number]
                    self._receiver.forget(number)
            if not ears:
                self._ears.pop(subscription, None)
                self._deliverer.unwatch(subscription.incoming)

    def limit(self, subscription: Subscription, variable_id: int, until_ns: int) -> None:
        """From that stamp on the variable bears another identifier."""
        with self._lock:
            ear = self._ears.get(subscription, {}).get(variable_id)
            if ear is not None:
                ear.until_ns = until_ns

    def identifiers(self, subscription: Subscription) -> tuple[int, ...]:
        """What it listens to."""
        with self._lock:
            return tuple(self._ears.get(subscription, ()))

    def ledger(self, subscription: Subscription) -> Ledger:
        """What came of its contracts so far."""
        with self._lock:
            total = subscription.past
            for ear in self._ears.get(subscription, {}).values():
                total += self._counted(ear)
        return total + Ledger(extrapolated=subscription.incoming.extrapolated)

    def _renew(
        self, subscription: Subscription, ear: _Ear, terms: Terms | None, latency_ns: int
    ) -> None:
        """Other terms for the same identifier: what was counted belongs to the old ones."""
        if (terms, latency_ns) == (ear.terms, ear.latency_ns):
            return
        subscription.past += self._counted(ear)
        ear.terms, ear.latency_ns = terms, latency_ns
        if ear.tally is None:
            self._expect(ear)  # The receiver keeps its window, and counts anew.
        else:
            ear.tally = subscription.incoming.tally = Tally()
        subscription.incoming.obey(ear.variable, terms)

    def _expect(self, ear: _Ear) -> None:
        variable = ear.variable
        self._receiver.expect(
            variable.variable_id,
            variable.period,
            variable.phase_ns,
            every=1 if ear.terms is None else ear.terms.every,
            deadline_ns=ear.latency_ns,
        )

    def _counted(self, ear: _Ear) -> Ledger:
        if ear.tally is not None:
            counters = ear.tally.counters(ear.terms)
        else:
            counters = self._receiver.variable_counters(ear.variable.variable_id)
        now_ns = self._clock.posix_ns()
        if ear.until_ns is not None and ear.terms is not None:
            now_ns = min(now_ns, ear.until_ns + ear.terms.latency_ns - 1)
        return ledger_of(counters, ear.terms, now_ns)


def _latency_ns(subscription: Subscription) -> int:
    """The strictest latency that is promised in any mode."""
    granted = subscription.contract.granted.values()
    return min((qos.latency_us for qos in granted), default=0) * 1_000
