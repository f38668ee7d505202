"""Base of all operations that a broker makes durable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, reduce
from operator import or_
from typing import Any, TypeAlias

import msgspec


class Durable(msgspec.Struct, frozen=True, omit_defaults=True, tag=True, kw_only=True):
    """An operation: a MessagePack map with the class name as its `type`."""


@cache
def decoder_of(kinds: tuple[type[msgspec.Struct], ...]) -> msgspec.msgpack.Decoder[Any]:
    """Return the decoder of these operations; brokers with the same operations share it."""
    return msgspec.msgpack.Decoder(reduce(or_, kinds))


# Steps that remain after an operation was applied to the registry.

Step: TypeAlias = Callable[[], object]


@dataclass(slots=True)
class Applied:
    """Steps that follow the application of an operation to the registry.

    `undo` runs in reverse order if the operation cannot be made durable, `tables` when it is
    durable.
    """

    undo: list[Step] = field(default_factory=list)
    tables: list[Step] = field(default_factory=list)

    def roll_back(self) -> None:
        for step in reversed(self.undo):
            step()

    def mark(self) -> tuple[int, int]:
        """Return what `roll_back_to` wants in order to undo the operations from now on."""
        return len(self.undo), len(self.tables)

    def roll_back_to(self, mark: tuple[int, int]) -> None:
        """Undo the operations that were applied since this mark, newest first."""
        undone, tables = mark
        while len(self.undo) > undone:
            self.undo.pop()()
        del self.tables[tables:]
