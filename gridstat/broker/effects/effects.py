"""Application of operations, each by the capability that owns it.

An operation changes the registry and the reservations at once. The changes of the routers' tables
are collected in `Applied.tables` and run when the operation is durable. Every change of the
registry adds its reverse to `Applied.undo`, which runs if the journal cannot store the operation.

A live decision and the replay at a start use the same code, so a restarted broker has the same
state as before. An operation that is applied twice has no further effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.records.operation import Applied, decoder_of
from gridstat.broker.records.operations import read

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.leaf_capability import LeafCapabilities
    from gridstat.broker.records.operations import Operation


class Effects:
    """Sole writer of the broker's durable state."""

    def __init__(self, capabilities: LeafCapabilities) -> None:
        self._capabilities = capabilities
        self.unwritten: list[Applied] = []
        """Changes of the present unit of work that are visible, but not in the journal yet."""

    def decode(self, written: Iterable[bytes]) -> list[Operation]:
        """Decode operations of the journal; raise for one that no capability knows."""
        decoder = decoder_of(tuple(self._capabilities.operations))
        return [read(decoder, data) for data in written]

    def replay(self, operation: Operation) -> None:
        """Apply an operation from the journal, with its changes of tables at once."""
        done = Applied()
        self.apply(operation, done)
        self.unwritten.clear()
        for step in done.tables:
            step()

    def apply(self, operation: Operation, done: Applied) -> None:
        if not self.unwritten or self.unwritten[-1] is not done:
            self._begin(done)
        self._capabilities.operations[type(operation)](operation, done)

    def _begin(self, done: Applied) -> None:
        if not any(found is done for found in self.unwritten):
            self.unwritten.append(done)
