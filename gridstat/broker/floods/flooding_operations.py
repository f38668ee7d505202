"""Journal operation of flooding at a broker above clouds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from gridstat.broker.tree.tree_operations import TreeOperation
from gridstat.model.flooding import NO_GENERATION, FloodTerm, in_force
from gridstat.model.status import StatusVariable

if TYPE_CHECKING:
    from collections.abc import Mapping


class FloodingHeld(TreeOperation, frozen=True):
    """Flooding of one variable in this scope; without any terms the variable does not flood.

    `own` are the terms of this broker's operators, `above` those that the parent has committed,
    `reserved` those that the parent has reserved; every child has reserved the latter too.
    `number` and `reserved_number` are the generations in messages to children; `generation` and
    `reserved_generation` are those of the parent.
    """

    variable: StatusVariable
    number: int
    own: dict[int, FloodTerm] = msgspec.field(default_factory=dict)
    above: dict[int, FloodTerm] = msgspec.field(default_factory=dict)
    generation: int = 0
    reserved: dict[int, FloodTerm] = msgspec.field(default_factory=dict)
    reserved_generation: int = 0
    reserved_number: int = 0

    @property
    def has_ended(self) -> bool:
        return not (self.own or self.above or self.reserved)

    @property
    def modes(self) -> set[int]:
        """Modes in which an operator or the parent has requested the flood."""
        return {*self.own, *self.above, *self.reserved}

    def has_committed(self, generation: int, terms: Mapping[int, FloodTerm]) -> bool:
        """Return whether the parent has committed these terms; a generation alone is ambiguous."""
        return self.generation == generation and self.above == terms

    def has_reserved(self, generation: int, terms: Mapping[int, FloodTerm]) -> bool:
        """Return whether these terms of the parent, or more, are reserved."""
        return (
            self.reserved_generation == generation != NO_GENERATION
            and terms.items() <= self.reserved.items()
        )

    def released(self) -> FloodingHeld:
        """Return the operation without the terms that are reserved for the parent."""
        return structs.replace(self, reserved={}, reserved_generation=0, reserved_number=0)

    def terms(self, depth: int) -> dict[int, FloodTerm]:
        """Return the terms that children commit."""
        return in_force(self._own_at(depth), self.above)

    def reserved_terms(self, depth: int) -> dict[int, FloodTerm]:
        """Return the terms that children reserve."""
        return in_force(self._own_at(depth), self.reserved)

    def _own_at(self, depth: int) -> dict[int, FloodTerm]:
        return {mode: FloodTerm(depth, term.every) for mode, term in self.own.items()}
