"""The base of all operations that a broker makes durable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec


class Durable(msgspec.Struct, frozen=True, omit_defaults=True, tag=True, kw_only=True):
    """A MessagePack map with the class name as its `type`."""


# What remains to be done about an operation once the registry shows it.

Step: TypeAlias = Callable[[], object]


@dataclass(slots=True)
class Applied:
    """`undo` runs in reverse if the operation cannot be made durable, `tables` when it is."""

    undo: list[Step] = field(default_factory=list)
    tables: list[Step] = field(default_factory=list)

    def roll_back(self) -> None:
        for step in reversed(self.undo):
            step()
