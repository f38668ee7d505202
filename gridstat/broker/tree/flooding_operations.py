"""What a broker above clouds makes durable of flooding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from gridstat.model.flooding import NO_GENERATION, FloodTerm, in_force
from gridstat.model.status import StatusVariable

if TYPE_CHECKING:
    from collections.abc import Mapping


class FloodingHeld(msgspec.Struct, frozen=True, omit_defaults=True, tag=True, kw_only=True):
    """How one variable floods this scope from now on, all of it; with nothing, it does not.

    `number` and `reserved_number` are the generations that children know it by; `generation` and
    `reserved_generation` are the parent's. What is reserved is reserved below too.
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
    def is_over(self) -> bool:
        return not (self.own or self.above or self.reserved)

    @property
    def modes(self) -> set[int]:
        """The modes in which anybody has asked for it."""
        return {*self.own, *self.above, *self.reserved}

    def has_committed(self, generation: int, terms: Mapping[int, FloodTerm]) -> bool:
        """Whether this is what the parent has committed: a number alone may be another's."""
        return self.generation == generation and self.above == terms

    def has_reserved(self, generation: int, terms: Mapping[int, FloodTerm]) -> bool:
        """Whether room is held for this word of the parent, or for more."""
        return (
            self.reserved_generation == generation != NO_GENERATION
            and terms.items() <= self.reserved.items()
        )

    def released(self) -> FloodingHeld:
        """The same without what is reserved for the parent."""
        return structs.replace(self, reserved={}, reserved_generation=0, reserved_number=0)

    def terms(self, depth: int) -> dict[int, FloodTerm]:
        """What children have committed, or are to."""
        return in_force(self._own_at(depth), self.above)

    def reserved_terms(self, depth: int) -> dict[int, FloodTerm]:
        """What children have reserved, or are to."""
        return in_force(self._own_at(depth), self.reserved)

    def _own_at(self, depth: int) -> dict[int, FloodTerm]:
        return {mode: FloodTerm(depth, term.every) for mode, term in self.own.items()}
