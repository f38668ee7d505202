"""Operations of flooding in a leaf broker's journal, and the state that they build."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from gridstat.broker.records.operation import Durable
from gridstat.model.flooding import NO_GENERATION, FloodTerm
from gridstat.model.status import StatusVariable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class FloodingSet(Durable, frozen=True):
    """Complete flooding of a variable in this cloud; without terms the variable does not flood.

    `own` was requested by operators of this cloud, `above` is committed and `reserved` is reserved
    by the parent; `generation` and `reserved_generation` are the parent's.
    """

    variable: StatusVariable
    own: dict[int, FloodTerm] = msgspec.field(default_factory=dict)
    above: dict[int, FloodTerm] = msgspec.field(default_factory=dict)
    generation: int = 0
    reserved: dict[int, FloodTerm] = msgspec.field(default_factory=dict)
    reserved_generation: int = 0

    @property
    def is_over(self) -> bool:
        """True if no terms are left, and only the generations are remembered."""
        return not (self.own or self.above or self.reserved)

    @property
    def modes(self) -> set[int]:
        """Modes of all terms."""
        return {*self.own, *self.above, *self.reserved}

    def is_within(self, other: FloodingSet) -> bool:
        """Return whether each requester's terms are contained in those of `other`."""
        return self.variable == other.variable and all(
            mine.items() <= known.items()
            for mine, known in (
                (self.own, other.own),
                (self.above, other.above),
                (self.reserved, other.reserved),
            )
        )

    def released(self) -> FloodingSet:
        """Return the flooding without the terms that are only reserved."""
        return msgspec.structs.replace(self, reserved={}, reserved_generation=0)

    def has_committed(self, generation: int, terms: Mapping[int, FloodTerm]) -> bool:
        """Return whether the parent has committed these terms; the number alone could be a reused
        one."""
        return self.generation == generation and self.above == terms

    def has_reserved(self, generation: int, terms: Mapping[int, FloodTerm]) -> bool:
        """Return whether capacity is reserved for these terms of the parent, or for more."""
        return (
            self.reserved_generation == generation != NO_GENERATION
            and terms.items() <= self.reserved.items()
        )


class FloodListenerSet(Durable, frozen=True, tag="FloodedHeard"):
    """An end-point receives all floods of its edges by these channels; without channels, none.

    Another process of the end-point has other ports.
    """

    endpoint: str
    incarnation: str
    data_port: int
    urgent_port: int
    channels: dict[str, int] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FloodRecords:
    """Durable state of flooding in a cloud, which only the effects of operations change."""

    variables: dict[str, FloodingSet] = field(default_factory=dict)
    """Flooding of variables of this cloud and of others, by name."""
    listeners: dict[str, FloodListenerSet] = field(default_factory=dict)
    """End-points that receive all floods of their edges, by name."""

    def snapshot(self) -> Iterator[Durable]:
        for _, flooding in sorted(self.variables.items()):
            yield flooding
        for _, listener in sorted(self.listeners.items()):
            yield listener
