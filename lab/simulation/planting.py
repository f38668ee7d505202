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


@dataclass(frozen=True, slots=True)
class Bug:
    """Description of one bug, and its patches."""

    description: str
    patches: tuple[Patch, ...]


def do_nothing(right: Function) -> Function:
    """Make a function that does nothing, as if its call had been forgotten."""

    def silent(*_: object, **__: object) -> None:
        """Do nothing."""

    silent.__name__ = right.__name__  # Pickle copies a stored function by its name.
    return silent
