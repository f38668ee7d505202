"""What a leaf broker holds in modes that are not defined: the journal of an older release has it.

Such contracts, patterns and floods stay as they are. Their part in an undefined mode is charged and
never active, so operators are told: by a warning at the start, in the totals of a survey, and where
a variable is explained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.model.qos import undefined_modes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gridstat.broker.context import BrokerContext


class UndefinedModes:
    """Looks for them once, at the start: from then on nothing new is granted in such modes."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._numbers: set[int] = set()
        """Subscriptions and patterns that named undefined modes at the start."""

    def look(self) -> None:
        """Find all of them, and warn of them."""
        registry = self._context.registry
        modes: set[int] = set()

        def unknown(asked: Iterable[int]) -> bool:
            found = self._of(asked)
            modes.update(found)
            return bool(found)

        subscriptions = {number for number, asked in self._subscriptions() if unknown(asked)}
        patterns = {number for number, held in registry.patterns.items() if unknown(held.qos.modes)}
        floods = sum(unknown(held.modes) for held in registry.floods.values())
        self._numbers = subscriptions | patterns
        if modes:
            self._context.warn(
                "modes_not_defined",
                modes=",".join(map(str, sorted(modes))),
                subscriptions=len(subscriptions),
                patterns=len(patterns),
                floods=floods,
            )

    def count(self) -> int:
        """How many subscriptions, patterns and floods name undefined modes now."""
        registry = self._context.registry
        held = 0
        for number in self._numbers:
            if (pattern := registry.patterns.get(number)) is not None:
                held += bool(self._of(pattern.qos.modes))
            elif (asked := registry.tree.asked.get(number)) is not None:
                held += bool(self._of(asked.record.qos.modes))
            elif (record := registry.contract(number)) is not None:
                held += bool(self._of(record.qos.modes))
        return held + sum(bool(self._of(one.modes)) for one in registry.floods.values())

    def words(self, modes: Iterable[int]) -> list[str]:
        """What `gridstat explain` says of a contract."""
        return [
            f"mode {mode} is not defined: what was granted for it never counts"
            for mode in self._of(modes)
        ]

    def _of(self, modes: Iterable[int]) -> list[int]:
        return undefined_modes(modes, self._context.settings.modes_defined)

    def _subscriptions(self) -> Iterator[tuple[int, Iterable[int]]]:
        """All contracts by their numbers, with their modes; segments are among them."""
        registry = self._context.registry
        for number, found in registry.subscriptions.items():
            yield number, found.record.qos.modes
        for number, record in registry.homeless.items():
            yield number, record.qos.modes
        for number, asked in registry.tree.asked.items():
            yield number, asked.record.qos.modes
