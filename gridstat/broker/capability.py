"""Merging and checks of what the capabilities of a broker register.

A broker is an ordered list of capabilities. A capability brings its messages, operations, timers,
commands and survey rows, and what it does when peers come and go, in one registration:
`leaf_capability.py` for a leaf broker, `tree/tree_capability.py` for a broker above clouds. The
broker merges the registrations here, and so knows no capability by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

KeyT = TypeVar("KeyT", bound="Hashable")
HandlerT = TypeVar("HandlerT")


class Registration(Protocol):
    """Fields that the registrations of both kinds of brokers have."""

    @property
    def name(self) -> str: ...
    @property
    def commands(self) -> Collection[type[Any]]: ...
    @property
    def objections(self) -> Mapping[type[Any], Any]: ...
    @property
    def asks_about(self) -> frozenset[type[Any]]: ...
    @property
    def timers(self) -> Mapping[str, Any]: ...
    @property
    def named_timers(self) -> Mapping[str, Any]: ...


def merged(tables: Iterable[tuple[str, Mapping[KeyT, HandlerT]]]) -> dict[KeyT, HandlerT]:
    """Merge tables of handlers, each with the name of its capability; a common key is a bug."""
    found: dict[KeyT, HandlerT] = {}
    owners: dict[KeyT, str] = {}
    for name, table in tables:
        for key, handler in table.items():
            assert key not in owners, f"{owners[key]} and {name} both register {key}"
            owners[key], found[key] = name, handler
    return found


def check_common(registrations: Sequence[Registration]) -> None:
    """Assert that no command, objection or timer is registered that would never be used."""
    names = [each.name for each in registrations]
    asked = frozenset[type]().union(*(each.asks_about for each in registrations))
    for each in registrations:
        name = each.name
        assert names.count(name) == 1, f"two capabilities have the name {name}"
        foreign = listed(each.asks_about - set(each.commands))
        assert not foreign, f"{name} asks about {foreign}, which is not its own"
        unasked = listed(each.objections.keys() - asked)
        assert not unasked, f"nobody asks {name} about {unasked}"
        for timer in each.timers:  # A plain timer with a slash would hide a prefix.
            assert "/" not in timer, f"timer {timer!r} of {name} contains a slash"
        for prefix in each.named_timers:
            assert prefix.endswith("/"), f"prefix {prefix!r} of {name} does not end in a slash"


def listed(types: Iterable[type]) -> str:
    """Return the names of types for an assertion."""
    return ", ".join(sorted(found.__name__ for found in types))
