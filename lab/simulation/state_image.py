"""Image of a broker's state: every field of every object, in an order that does not depend on how
the state was reached."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Set
from functools import partial
from types import BuiltinMethodType, FunctionType, MethodType
from typing import Any

from msgspec import Struct

OURS = "gridstat."


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
    if isinstance(value, partial | FunctionType | MethodType | BuiltinMethodType):
        return
    members = list(_members(value))
    if not members:
        found[path] = repr(value)
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    for name, member in members:
        if name not in without:
            _describe(f"{path}.{name}", member, without, found, seen)


def _members(value: object) -> Iterator[tuple[str, Any]]:
    match value:
        case _ if _is_value(value):
            return
        case Mapping():
            yield from sorted((repr(key), member) for key, member in value.items())
        case Set():
            yield from sorted((repr(member), "member") for member in value)
        case list() | tuple() | deque():
            yield from ((str(at), member) for at, member in enumerate(value))
        case _ if _is_ours(value):
            for name in sorted(_fields(value)):
                yield name, getattr(value, name)


def _fields(value: object) -> Iterator[str]:
    yield from getattr(value, "__dict__", ())
    for kind in type(value).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(value, name):
                yield name


def _is_ours(value: object) -> bool:
    return type(value).__module__.startswith(OURS)


def _is_value(value: object) -> bool:
    """Return whether the text of the value says everything about it."""
    parameters = getattr(type(value), "__dataclass_params__", None)
    return isinstance(value, Struct | type) or (parameters is not None and parameters.frozen)
