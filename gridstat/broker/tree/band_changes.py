"""Changes of an owned contract's rate within its band: lowered for another, and raised again.

The owner of a contract lowers it when a child asks for that (`LowerContract`), by another
generation with a higher divisor and everything else as it is. What was promised stays in the
holding, so the contract is tried again like one that a failure has lowered (`replanning.py`), but
not before its hold-down has passed. The hold-down doubles each time that the contract is lowered
soon after it was raised. A contract for which others were lowered in vain, as a child refused it
all the same, has that done ever more rarely.

Only contracts with one quality for all modes take part, and none that is replayed. A restart begins
all hold-downs anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from gridstat.broker.capacity.band_planning import every_of
from gridstat.broker.capacity.negotiation import band_of, differences
from gridstat.broker.tree.tree_operations import body_of
from gridstat.model.errors import IntervalNotSatisfiable
from gridstat.model.qos import BASELINE_MODE
from gridstat.model.sparse_law import carried_every

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.capacity.negotiation import Quality
    from gridstat.broker.tree.transaction import Transaction
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.broker.tree.tree_operations import Holding, HoldingBody
    from gridstat.model.qos import ModalQos
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.segment_messages import LowerContract

FLAPS_WITHIN: Final = 4
"""Hold-downs within which a contract that is lowered again counts as flapping."""


class Lowering(NamedTuple):
    """Divisor to which a contract is lowered, and the contract that needs the room."""

    every: int
    lowered_for: str
    priority: int


def every_worst_of(qos: ModalQos, variable: StatusVariable) -> int:
    """Return the worst divisor of a contract that takes part in splits of rates, or 0."""
    if set(qos.modes) != {BASELINE_MODE} or variable.is_replay:
        return 0
    try:
        band = band_of(qos, variable.period)
    except IntervalNotSatisfiable:
        return 0
    worst = carried_every(every_of(band.worst), variable.period)
    return worst if worst > every_of(band.desired) else 0


def lowering_of(body: HoldingBody, message: LowerContract) -> Lowering | None:
    """Return how a contract is lowered for a child; None if its band does not allow that."""
    if body.qos is None:
        return None
    worst = every_worst_of(body.qos, body.variable)
    if not every_of(body.granted) < message.every <= worst:
        return None
    return Lowering(message.every, message.lowered_for, message.priority)


def lower_to(transaction: Transaction, body: HoldingBody, lowering: Lowering) -> bool:
    """Restrict a transaction to one quality: the granted one at a higher divisor."""
    promised = body.promised or body.granted
    transaction.promised = promised
    transaction.qualities = [_at_every(body.granted, lowering.every)]
    transaction.room.lowered_for = lowering.lowered_for
    transaction.room.priority = lowering.priority
    return True


def raise_from(transaction: Transaction, body: HoldingBody, *, may_ask: bool) -> bool:
    """Restrict a transaction to the rates above the granted one, best first, at divisors of it.

    Such a rate carries all slots of the granted one, so the present generation needs no room of its
    own beside the next. With `may_ask`, contracts of lower priorities, and equals that have more,
    are lowered for it as for a new one.
    """
    assert body.promised is not None
    best, present = every_of(body.promised), every_of(body.granted)
    transaction.promised = body.promised
    transaction.room.lowered_for = body.lowered_for
    transaction.room.may_ask = may_ask
    transaction.qualities = [
        _at_every(body.granted, every)
        for every in range(best, present)
        if every % best == 0 and present % every == 0
    ]
    if not transaction.qualities and best < present:
        transaction.qualities = [body.promised]
    return bool(transaction.qualities)


def texts_of(done: Transaction) -> tuple[str, ...]:
    """Return texts that say where a contract is below what is desired, and why."""
    owed = done.owed()
    if not done.room.lowered_for or owed is None:
        return done.lowered()
    priority = f" with priority {done.room.priority}" if done.room.priority else ""
    return differences(owed, done.quality, f"room for {done.room.lowered_for}{priority}")


def _at_every(quality: Quality, every: int) -> Quality:
    return {mode: replace(qos, every=every) for mode, qos in quality.items()}


@dataclass(slots=True)
class _Hold:
    """Time before which a lowered contract is not raised."""

    lowered_ns: int
    hold_ns: int
    was_raised: bool = False


class BandHolds:
    """Hold-downs of the contracts that were lowered within their bands."""

    def __init__(self, context: TreeContext) -> None:
        self._context = context
        self._holds: dict[str, _Hold] = {}
        self._vain: dict[str, _Hold] = {}
        """Contracts for which others were lowered in vain."""

    def may_ask(self, contract: str) -> bool:
        """Return whether others may be lowered for a contract that is to be raised."""
        held = self._vain.get(contract)
        return held is None or self._context.now_ns >= held.lowered_ns + held.hold_ns

    def asked_in_vain(self, contract: str) -> None:
        """Note that others were lowered for a contract that was refused all the same."""
        now_ns, settings = self._context.now_ns, self._context.settings
        most_ns = FLAPS_WITHIN * settings.raise_after_ns_max
        self._vain = {
            one: held
            for one, held in self._vain.items()
            if now_ns < held.lowered_ns + FLAPS_WITHIN * most_ns
        }
        held = self._vain.get(contract)
        before_ns = settings.raise_after_ns if held is None else held.hold_ns
        self._vain[contract] = _Hold(now_ns, min(FLAPS_WITHIN * before_ns, most_ns))

    def may_rise(self, contract: str) -> bool:
        held = self._holds.get(contract)
        return held is None or self._context.now_ns >= held.lowered_ns + held.hold_ns

    def note(self, holding: Holding, generations: Iterable[Holding]) -> None:
        """Note whether a new generation lowers or raises a contract beside the one before."""
        older = [
            found
            for found in generations
            if found.is_owned and found.generation < holding.generation
        ]
        if not older:
            return
        before, after = body_of(older[-1]), body_of(holding)
        if after.lowered_for and every_of(after.granted) > every_of(before.granted):
            self._lowered(holding.contract)
        elif before.lowered_for and holding.contract in self._holds:
            self._holds[holding.contract].was_raised = True

    def _lowered(self, contract: str) -> None:
        """Begin the hold-down of a lowered contract."""
        self._forget_old()
        settings, held = self._context.settings, self._holds.get(contract)
        hold_ns = settings.raise_after_ns if held is None else held.hold_ns
        if held is not None and held.was_raised:
            hold_ns = min(2 * hold_ns, settings.raise_after_ns_max)
        self._holds[contract] = _Hold(self._context.now_ns, hold_ns)

    def _forget_old(self) -> None:
        now_ns = self._context.now_ns
        self._holds = {
            contract: held
            for contract, held in self._holds.items()
            if now_ns < held.lowered_ns + FLAPS_WITHIN * held.hold_ns
        }
