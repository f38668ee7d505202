"""Floods of a broker's scope: durable, and charged on the channels between its children.

Floods of this broker's operators have its own depth as scope level; floods of the parent keep the
level that the parent sends. For each mode of a variable children get one term: that of the parent
if there is one, else that of the operators.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from gridstat.broker.floods.flooding_admission import slow_refusal
from gridstat.broker.tree.tree_operations import ScopePath
from gridstat.model.flooding import everys_of
from gridstat.model.qos import LATENCY_US_MAX
from gridstat.net.command.tree_messages import FloodedVariable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gridstat.broker.capacity.admission import Obstacle
    from gridstat.broker.capacity.allocation import Refusal
    from gridstat.broker.floods.flooding_operations import FloodingHeld
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.tree.owned_channels import OwnedChannels
    from gridstat.model.flooding import FloodTerm
    from gridstat.model.status import StatusVariable

NO_CHANNEL: Final = 0
TERM_SHIFT: Final = 32
"""Bits of a generation below the term of the broker."""


class FloodingReservations:
    """Floods by variable; every own channel carries all of them, and is charged for them."""

    def __init__(self, channels: OwnedChannels) -> None:
        self._channels = channels
        self.floods: dict[str, FloodingHeld] = {}
        self.number_last = 0

    def next_number(self, term: int) -> int:
        """Return a generation that no child has received before.

        Each term has its own range, because the journal does not keep ended or undecided floods.
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
        """Yield the load of flooding on every own channel."""
        for held in self.floods.values():
            for terms in (held.own, held.above, held.reserved):
                yield held.variable, everys_of(terms)

    def is_of_another(self, variable: StatusVariable) -> bool:
        """Return whether another publication has a flood under the name of this variable."""
        held = self.floods.get(variable.name)
        return held is not None and held.variable != variable

    def counts_for_another(self, variable: StatusVariable) -> bool:
        """Return whether that other flood counts, or would count without the parent's terms."""
        held = self.floods.get(variable.name)
        return self.is_of_another(variable) and held is not None and bool(held.own or held.above)

    def obstacles(self, after: FloodingHeld) -> list[Obstacle]:
        """Return the obstacles to a flood on the own channels, and leave the charges as before."""
        before = self.floods.get(after.variable.name)
        # Charge as `_replace` does, look for obstacles, and undo the charges.
        self._charge(after)
        if before is not None:
            self._uncharge(before)
        found = self._channels.obstacles(sorted(self._channels.accounts))
        if before is not None:
            self._charge(before)
        self._uncharge(after)
        return found if after.has_ended else found + self._channels.congested()

    def slow(self) -> Refusal | None:
        """Return a refusal if a channel of this broker is too slow for any flood."""
        return slow_refusal(account.channel for account in self._channels.accounts.values())

    def channel_added(self, channel_id: int, done: Applied) -> None:
        """Charge a new channel for every flood."""
        for held in self.floods.values():
            self._charge(held, channel_id)
            done.undo.append(partial(self._uncharge, held, channel_id))

    def channel_removed(self, channel_id: int, done: Applied) -> None:
        """Remove the charges of flooding from a channel that is about to be removed."""
        for held in self.floods.values():
            self._uncharge(held, channel_id)
            done.undo.append(partial(self._charge, held, channel_id))

    def _replace(self, name: str, before: FloodingHeld | None, after: FloodingHeld | None) -> None:
        if after is not None:
            self._charge(after)
        if before is not None:
            self._uncharge(before)
        if after is None or after.has_ended:
            self.floods.pop(name, None)
        else:
            self.floods[name] = after

    def _charge(self, held: FloodingHeld, channel_id: int = NO_CHANNEL) -> None:
        for terms in (held.own, held.above, held.reserved):
            if terms:
                self._channels.charge(held.variable, everys_of(terms), self._paths(channel_id))

    def _uncharge(self, held: FloodingHeld, channel_id: int = NO_CHANNEL) -> None:
        for terms in (held.own, held.above, held.reserved):
            if terms:
                self._channels.uncharge(held.variable, everys_of(terms), self._paths(channel_id))

    def _paths(self, channel_id: int) -> tuple[ScopePath, ...]:
        """Return one channel or all of them, without a bound: no contract covers a flood."""
        numbers = (channel_id,) if channel_id else tuple(sorted(self._channels.accounts))
        shares = (LATENCY_US_MAX,) * len(numbers)
        return (ScopePath(NO_CHANNEL, NO_CHANNEL, numbers, shares),)


def flooded_variable(
    held: FloodingHeld, number: int, terms: dict[int, FloodTerm]
) -> FloodedVariable:
    """Return the part of a message that describes a flood to children."""
    return FloodedVariable(variable=held.variable, generation=number, terms=terms)


def flooded_variables(many: Iterable[FloodingHeld], depth: int) -> tuple[FloodedVariable, ...]:
    """Return the floods that children commit, for a message."""
    return tuple(
        flooded_variable(held, held.number, terms) for held in many if (terms := held.terms(depth))
    )
