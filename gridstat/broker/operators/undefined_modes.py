"""Contracts, patterns and other requests in undefined modes, from an older release's journal.

They stay as they are. Their part in an undefined mode is charged and never active, so operators see
it: in a warning at the start, in the totals of a survey, and in the explanation of a variable.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from gridstat.model.qos import undefined_modes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gridstat.broker.context import BrokerContext


class UndefinedModes:
    """Finds them once, at the start; later requests for undefined modes are refused."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._numbers: set[int] = set()
        """Subscriptions and patterns that named undefined modes at the start."""

    def look(self) -> None:
        """Find all of them, and log a warning."""
        registry = self._context.registry
        subscriptions = {
            number: found for number, asked in self._subscriptions() if (found := self._of(asked))
        }
        patterns = {
            number: found
            for number, held in registry.patterns.items()
            if (found := self._of(held.qos.modes))
        }
        others = {
            name: [found for modes in named if (found := self._of(modes))]
            for name, named in self._context.capabilities.modes_named().items()
        }
        self._numbers = {*subscriptions, *patterns}
        modes = set(chain(*subscriptions.values(), *patterns.values(), *chain(*others.values())))
        if modes:
            self._context.warn(
                "modes_not_defined",
                modes=",".join(map(str, sorted(modes))),
                subscriptions=len(subscriptions),
                patterns=len(patterns),
                **{name: len(found) for name, found in others.items()},
            )

    def count(self) -> int:
        """Return the number of requests of all kinds that name undefined modes now."""
        registry = self._context.registry
        held = 0
        for number in self._numbers:
            if (pattern := registry.patterns.get(number)) is not None:
                held += bool(self._of(pattern.qos.modes))
            elif (asked := registry.tree.asked.get(number)) is not None:
                held += bool(self._of(asked.record.qos.modes))
            elif (record := registry.contract(number)) is not None:
                held += bool(self._of(record.qos.modes))
        others = chain(*self._context.capabilities.modes_named().values())
        return held + sum(bool(self._of(modes)) for modes in others)

    def remarks(self, modes: Iterable[int]) -> list[str]:
        """Return the remarks of `gridstat explain` on a contract."""
        return [
            f"mode {mode} is not defined: what was granted for it never counts"
            for mode in self._of(modes)
        ]

    def _of(self, modes: Iterable[int]) -> list[int]:
        return undefined_modes(modes, self._context.settings.modes_defined)

    def _subscriptions(self) -> Iterator[tuple[int, Iterable[int]]]:
        """Yield the numbers and modes of all contracts and segments."""
        registry = self._context.registry
        for number, found in registry.subscriptions.items():
            yield number, found.record.qos.modes
        for number, record in registry.unplaced.items():
            yield number, record.qos.modes
        for number, asked in registry.tree.asked.items():
            yield number, asked.record.qos.modes
