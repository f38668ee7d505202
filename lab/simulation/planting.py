"""A planted bug: what it is, and the functions or methods that it replaces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from types import ModuleType

Function: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Patch:
    """A method or function, and a factory that makes the wrong one from the right one."""

    owner: type | ModuleType
    name: str
    make: Callable[[Function], Function]

    def planted(self, right: Function) -> Function:
        """Return the wrong one, under the name of the right one: pickle copies it by that."""
        wrong = self.make(right)
        wrong.__name__ = self.name
        if isinstance(self.owner, type):
            wrong.__module__ = self.owner.__module__
            wrong.__qualname__ = f"{self.owner.__qualname__}.{self.name}"
        else:
            wrong.__module__, wrong.__qualname__ = self.owner.__name__, self.name
        return wrong


@dataclass(frozen=True, slots=True)
class Bug:
    """Description of one bug, and its patches."""

    description: str
    patches: tuple[Patch, ...]


def do_nothing(_: Function) -> Function:
    """Make a function that does nothing, as if its call had been forgotten."""

    def silent(*_: object, **__: object) -> None:
        """Do nothing."""

    return silent
