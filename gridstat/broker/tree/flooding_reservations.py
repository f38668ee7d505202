"""What floods the scope of a broker above clouds: durable, and charged on the channels between.

Operators of this broker ask for its own depth; what its parent asks keeps the depth of where it was
asked. Children are told, for each variable, the one thing that holds: the parent's where it has
spoken, else this broker's.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from gridstat.broker.capacity.flooding_admission import slow_refusal
from gridstat.broker.tree.tree_operations import ScopePath
from gridstat.model.flooding import everys_of
from gridstat.model.qos import LATENCY_US_MAX
from gridstat.net.command.tree_messages import FloodedVariable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gridstat.broker.capacity.admission import Obstacle
    from gridstat.broker.capacity.allocation import Refusal
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.tree.flooding_operations import FloodingHeld
    from gridstat.broker.tree.owned_channels import OwnedChannels
    from gridstat.model.flooding import FloodTerm
    from gridstat.model.status import StatusVariable

NO_CHANNEL: Final = 0
TERM_SHIFT: Final = 32
"""So many generations, as a power of two, has each term of a broker."""


class FloodingReservations:
    """Every channel of this broker carries all that floods its scope, and is charged for it."""

    def __init__(self, channels: OwnedChannels) -> None:
        self._channels = channels
        self.floods: dict[str, FloodingHeld] = {}
        self.number_last = 0

    def next_number(self, term: int) -> int:
        """A generation that no child has heard of.

        Each term has its own: the journal keeps none of what is over, or was never decided.
        """
        self.number_last = max(self.number_last + 1, term << TERM_SHIFT)
        return self.number_last

    def apply(self, held: FloodingHeld, done: Applied) -> None:
        name = held.variable.name
        before = self.floods.get(name)
        self.number_last = max(self.number_last, held.number, held.reserved_number)
        self._replace(name, before, held)
        done.undo.append(partial(self._replace, name, held, before))

    def operations(self) -> Iterator[FloodingHeld]:
        for _, held in sorted(self.floods.items()):
            yield held

    def taken(self) -> Iterator[tuple[StatusVariable, dict[int, int]]]:
        """What every channel of this broker carries by flooding."""
        for held in self.floods.values():
            for terms in (held.own, held.above, held.reserved):
                yield held.variable, everys_of(terms)

    def is_of_another(self, variable: StatusVariable) -> bool:
        """Whether what is held under its name is of another publication."""
        held = self.floods.get(variable.name)
        return held is not None and held.variable != variable

    def counts_for_another(self, variable: StatusVariable) -> bool:
        """Whether another publication of its name floods, or would if the parent had not spoken."""
        held = self.floods.get(variable.name)
        return self.is_of_another(variable) and held is not None and bool(held.own or held.above)

    def obstacles(self, after: FloodingHeld) -> list[Obstacle]:
        """What stands in its way on the channels of this broker; leaves no trace."""
        before = self.floods.get(after.variable.name)
        self._charge(after)
        if before is not None:
            self._uncharge(before)
        found = self._channels.obstacles(sorted(self._channels.accounts))
        if before is not None:
            self._charge(before)
        self._uncharge(after)
        return found if after.is_over else found + self._channels.congested()

    def slow(self) -> Refusal | None:
        """The slowest channel of this broker, if nothing may flood over it."""
        return slow_refusal(account.channel for account in self._channels.accounts.values())

    def channel_added(self, channel_id: int, done: Applied) -> None:
        """A new channel carries all that floods, like any other."""
        for held in self.floods.values():
            self._charge(held, channel_id)
            done.undo.append(partial(self._uncharge, held, channel_id))

    def channel_removed(self, channel_id: int, done: Applied) -> None:
        """The channel is about to go, and with it what flooding takes of it."""
        for held in self.floods.values():
            self._uncharge(held, channel_id)
            done.undo.append(partial(self._charge, held, channel_id))

    def _replace(self, name: str, before: FloodingHeld | None, after: FloodingHeld | None) -> None:
        if after is not None:
            self._charge(after)
        if before is not None:
            self._uncharge(before)
        if after is None or after.is_over:
            self.floods.pop(name, None)
        else:
            self.floods[name] = after

    def _charge(self, held: FloodingHeld, channel_id: int = NO_CHANNEL) -> None:
        for terms in (held.own, held.above, held.reserved):
            if terms:
                self._channels.charge(held.variable, everys_of(terms), self._ways(channel_id))

    def _uncharge(self, held: FloodingHeld, channel_id: int = NO_CHANNEL) -> None:
        for terms in (held.own, held.above, held.reserved):
            if terms:
                self._channels.uncharge(held.variable, everys_of(terms), self._ways(channel_id))

    def _ways(self, channel_id: int) -> tuple[ScopePath, ...]:
        """One channel or all of them; nobody relies on how long a flooded event takes."""
        numbers = (channel_id,) if channel_id else tuple(sorted(self._channels.accounts))
        shares = (LATENCY_US_MAX,) * len(numbers)
        return (ScopePath(NO_CHANNEL, NO_CHANNEL, numbers, shares),)


def flooded_of(held: FloodingHeld, number: int, terms: dict[int, FloodTerm]) -> FloodedVariable:
    """What children are told of it."""
    return FloodedVariable(variable=held.variable, generation=number, terms=terms)


def told_of(many: Iterable[FloodingHeld], depth: int) -> tuple[FloodedVariable, ...]:
    """All that children have committed, or are to."""
    return tuple(
        flooded_of(held, held.number, terms) for held in many if (terms := held.terms(depth))
    )
