"""Room on the channels between clouds that this broker owns: whom a split by bands would lower.

`ScopeRoom` puts the contracts over some short channels into the form of the law
(`model/band_law.py`), and returns what owners are to be asked for: this broker for its own
contracts, and those above it for segments that it holds for its parent. A plan that needs the room
is charged meanwhile, so it counts as it is. Holdings that are being released give their room soon
and count as gone.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple

from gridstat.broker.capacity.allocator import zero_clock
from gridstat.broker.capacity.band_planning import every_of
from gridstat.broker.capacity.charges import event_rate
from gridstat.broker.tree.band_changes import every_worst_of
from gridstat.broker.tree.tree_operations import Stage, body_of
from gridstat.model.band_law import BandedContract, BandPolicy, Carriage, split
from gridstat.model.paths.budget import Budget
from gridstat.model.qos import BASELINE_MODE
from gridstat.net.command.segment_messages import LowerContract

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.capacity.negotiation import Quality
    from gridstat.broker.tree.transaction import Transaction
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.broker.tree.tree_operations import Holding, HoldingBody

CONSIDERED_MAX: Final = 4_096
"""Contracts on short channels that one plan looks at; with more it waits for nobody."""
SPLIT_S: Final = 0.25
"""Time for one split, by its steps; a plan whose split takes longer waits for nobody."""


class _Member(NamedTuple):
    """Holding that may be lowered, down to `worst`."""

    holding: Holding
    body: HoldingBody
    worst: int

    @property
    def every(self) -> int:
        return every_of(self.body.granted)


class ScopeRoom:
    """Reads holdings and accounts, and changes nothing."""

    def __init__(self, context: TreeContext) -> None:
        self._context = context

    def wishes(
        self, transaction: Transaction, channel_ids: Iterable[int]
    ) -> list[LowerContract] | None:
        """Return which contracts are to be lowered for a charged plan; None if that is no help.

        An empty list means that others are giving room already.
        """
        if self._context.settings.policy is BandPolicy.FIRST_COME:
            return None
        accounts = self._context.state.channels.accounts
        short = {number for number in channel_ids if accounts[number].carriage.is_overloaded}
        found = self._members(transaction, short)
        if found is None or not short:
            return None
        members, leaving = found
        everys = self._split(short, members, leaving)
        if everys is None:
            return None
        cause, priority = transaction.key[0], _priority_of(transaction)
        wishes = []
        for at, member in enumerate(members):
            every = member.every * -(-everys[at] // member.every)
            if every > member.worst:
                return None  # No multiple of its divisor, which alone needs no room, is low enough.
            if every > member.every:
                wishes.append(
                    LowerContract(
                        term=self._context.term,
                        contract=member.holding.contract,
                        generation=member.holding.generation,
                        every=every,
                        lowered_for=cause,
                        priority=priority,
                    )
                )
        return wishes

    def _members(
        self, transaction: Transaction, short: set[int]
    ) -> tuple[list[_Member], list[HoldingBody]] | None:
        """Return who may be lowered, and what is being released; None if there are too many."""
        holdings = self._context.state.holdings
        contracts = {name for number in short for name in holdings.over_channel(number)}
        if len(contracts) > CONSIDERED_MAX:
            return None
        members, leaving = [], []
        for contract in sorted(contracts):
            for holding in holdings.of(contract):
                if short.isdisjoint(holding.channel_ids):
                    continue
                body, stage = body_of(holding), holdings.stage(holding)
                if stage is Stage.LEAVING or self._is_superseded(holding):
                    leaving.append(body)
                elif stage is Stage.COMMITTED and contract != transaction.key[0]:
                    worst = _worst_of(body, transaction)
                    if worst > every_of_any(body):
                        members.append(_Member(holding, body, worst))
        return members, leaving

    def _is_superseded(self, holding: Holding) -> bool:
        """Return whether a newer generation of a contract waits for its children to confirm."""
        current = self._context.state.holdings.current(holding.contract)
        return holding.is_owned and current is not None and current != holding

    def _split(
        self, short: set[int], members: list[_Member], leaving: list[HoldingBody]
    ) -> dict[int, int] | None:
        accounts = self._context.state.channels.accounts
        own: dict[tuple[int, int], list[int]] = {}
        """Divisors of members, and of what leaves, by channel and variable."""
        uses: list[list[tuple[int, int]]] = []
        for body in (*(member.body for member in members), *leaving):
            used = [
                (number, int(body.variable.variable_id))
                for path in body.scope_paths
                for number in path.channel_ids
                if number in short
            ]
            for key in used:
                own.setdefault(key, []).append(every_of_any(body))
            uses.append(used)
        free: dict[int | str, Fraction] = {
            number: -accounts[number].carriage.shortfall() for number in short
        }
        index: dict[tuple[int, int], int] = {}
        carriages: list[Carriage] = []
        for key, everys in own.items():
            stream = accounts[key[0]].carriage.streams[key[1]]
            fixed = list(stream.counts.every_one(BASELINE_MODE))
            for every in everys:
                if every in fixed:  # A former cost of the variable has a stream of its own.
                    fixed.remove(every)
            carried = stream.events_per_s.get(BASELINE_MODE, Fraction(0))
            free[key[0]] += carried * stream.event_bytes
            index[key] = len(carriages)
            rate = event_rate(stream.stream_cost.variable)
            charges = ((key[0], stream.event_bytes),)
            carriages.append(Carriage(rate, charges, tuple(sorted(set(fixed)))))
        contracts = [
            BandedContract(
                number=at,
                priority=member.body.granted[BASELINE_MODE].priority,
                events_per_s=event_rate(member.body.variable),
                best=member.every,
                worst=member.worst,
                present=member.every,
                carriages=tuple(index[key] for key in used),
            )
            for at, (member, used) in enumerate(zip(members, uses, strict=False))
        ]
        return split(contracts, carriages, free, Budget(zero_clock, SPLIT_S))


def every_of_any(body: HoldingBody) -> int:
    """Return the divisor of a holding with one quality, or the least of several."""
    return _fastest(body.granted)


def _fastest(quality: Quality) -> int:
    return min(qos.every for qos in quality.values())


def _worst_of(body: HoldingBody, transaction: Transaction) -> int:
    """Return how far a contract gives way: an equal to the rate of the new one at most."""
    if set(body.granted) != {BASELINE_MODE}:
        return 0
    worst = body.every_worst
    if body.qos is not None:
        worst = every_worst_of(body.qos, body.variable)
    own, theirs = body.granted[BASELINE_MODE].priority, _priority_of(transaction)
    if own < theirs:
        return 0
    if own > theirs:
        return worst
    rate = event_rate(transaction.variable) / _fastest(transaction.quality)
    return min(worst, int(event_rate(body.variable) / rate))


def _priority_of(transaction: Transaction) -> int:
    return min(qos.priority for qos in transaction.quality.values())
