"""Image of a broker's state: every field of every object, in an order that does not depend on how
the state was reached."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Set
from enum import IntEnum, auto
from functools import lru_cache, partial
from operator import itemgetter
from types import BuiltinMethodType, FunctionType, MethodType
from typing import Any

from msgspec import Struct

OURS = "gridstat."


class Kind(IntEnum):
    """What an object of some type is to an image."""

    NOTHING = auto()
    VALUE = auto()
    MAPPING = auto()
    SET = auto()
    SEQUENCE = auto()
    OBJECT = auto()


def image(root: object, *, without: Set[str]) -> dict[str, str]:
    """Return the text of each field by its path, without the fields of these names.

    An object that is reached twice is described where it is reached first.
    """
    found: dict[str, str] = {}
    _describe("", root, without, found, set())
    return found


def differences(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    keys = sorted(one.keys() | other.keys())
    return [
        f"{key}: {one.get(key)} {other.get(key)}" for key in keys if one.get(key) != other.get(key)
    ]


def _describe(
    path: str, value: object, without: Set[str], found: dict[str, str], seen: set[int]
) -> None:
    # mypy takes the hash of a class for the one of its instances.
    kind = _kind_of(type(value))  # type: ignore[arg-type]
    if kind is Kind.VALUE:
        found[path] = repr(value)
        return
    if kind is Kind.NOTHING:
        return
    members = _members(kind, value)
    if not members:
        found[path] = repr(value)
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    for name, member in members:
        if name not in without:
            _describe(f"{path}.{name}", member, without, found, seen)


@lru_cache(maxsize=4_096)
def _kind_of(kind: type) -> Kind:
    """Return how the objects of a type are described: by their text if that says everything."""
    parameters = getattr(kind, "__dataclass_params__", None)
    if issubclass(kind, partial | FunctionType | MethodType | BuiltinMethodType):
        return Kind.NOTHING
    if issubclass(kind, Struct | type) or (parameters is not None and parameters.frozen):
        return Kind.VALUE
    if issubclass(kind, Mapping):
        return Kind.MAPPING
    if issubclass(kind, Set):
        return Kind.SET
    if issubclass(kind, list | tuple | deque):
        return Kind.SEQUENCE
    return Kind.OBJECT if kind.__module__.startswith(OURS) else Kind.VALUE


def _members(kind: Kind, value: Any) -> list[tuple[str, Any]]:  # noqa: ANN401 — any object.
    if kind is Kind.MAPPING:
        return sorted([(repr(key), member) for key, member in value.items()], key=itemgetter(0))
    if kind is Kind.SET:
        return sorted([(repr(member), "member") for member in value])
    if kind is Kind.SEQUENCE:
        return [(str(at), member) for at, member in enumerate(value)]
    return [(name, getattr(value, name)) for name in sorted(_fields(value))]


def _fields(value: object) -> list[str]:
    slots = _slots_of(type(value))  # type: ignore[arg-type]
    return [*getattr(value, "__dict__", ()), *(name for name in slots if hasattr(value, name))]


@lru_cache(maxsize=4_096)
def _slots_of(kind: type) -> tuple[str, ...]:
    return tuple(name for each in kind.__mro__ for name in getattr(each, "__slots__", ()))
