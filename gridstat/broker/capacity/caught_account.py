"""Account of what patterns catch of one publisher on one channel.

A variable counts once, with the largest rate of all contracts that catch it there: its events are
sent once however many end-points take them. So no number of strangers with wide patterns uses up
what a publisher may have caught; only the publisher's own variables do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.capacity.charges import NOTHING

if TYPE_CHECKING:
    from fractions import Fraction

    from gridstat.broker.capacity.accounts import HopAccount
    from gridstat.broker.capacity.stream_costs import StreamCost


class CaughtAccount:
    """Events a second of each caught variable: how often each rate was charged.

    `_totals` has the sum of the largest rates by a variable's number of options, and `_costs` one
    variable of each number, whose bytes on the channel are those of all.
    """

    __slots__ = ("_costs", "_rates", "_totals")

    def __init__(self) -> None:
        self._rates: dict[int, dict[Fraction, int]] = {}
        self._totals: dict[int, Fraction] = {}
        self._costs: dict[int, StreamCost] = {}

    def __bool__(self) -> bool:
        return bool(self._rates)

    def add(self, cost: StreamCost, rate: Fraction) -> None:
        """Charge one contract, with its events a second."""
        more = self.more(cost, rate)
        options = cost.variable.option_count
        self._totals[options] = self._totals.get(options, NOTHING) + more
        self._costs.setdefault(options, cost)
        rates = self._rates.setdefault(cost.variable.variable_id, {})
        rates[rate] = rates.get(rate, 0) + 1

    def remove(self, cost: StreamCost, rate: Fraction) -> None:
        """Undo `add` with the same rate."""
        number, options = cost.variable.variable_id, cost.variable.option_count
        rates = self._rates[number]
        before = max(rates)
        rates[rate] -= 1
        if not rates[rate]:
            del rates[rate]
        if not rates:
            del self._rates[number]
        left = self._totals[options] - before + max(rates, default=NOTHING)
        if left:
            self._totals[options] = left
        else:
            del self._totals[options], self._costs[options]

    def more(self, cost: StreamCost, rate: Fraction) -> Fraction:
        """Return the events a second that one more contract would add."""
        rates = self._rates.get(cost.variable.variable_id, {})
        return max(NOTHING, rate - max(rates, default=NOTHING))

    def bytes_per_s(self, hop: HopAccount) -> Fraction:
        """Return the bytes a second on the channel, with its present headers."""
        return sum(
            (
                total * hop.event_bytes(self._costs[options])
                for options, total in self._totals.items()
            ),
            NOTHING,
        )
