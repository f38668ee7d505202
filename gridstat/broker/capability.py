"""Merging of what the capabilities of a broker register.

A broker is an ordered list of capabilities. A capability brings its messages, operations, timers,
commands and survey rows, and what it does when peers come and go, in one registration:
`leaf_capability.py` for a leaf broker, `tree/tree_capability.py` for a broker above clouds. The
broker merges the registrations here, and so knows no capability by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

KeyT = TypeVar("KeyT", bound="Hashable")
HandlerT = TypeVar("HandlerT")


def merged(tables: Iterable[Mapping[KeyT, HandlerT]]) -> dict[KeyT, HandlerT]:
    """Merge tables of handlers; two capabilities that register the same key are a bug."""
    found: dict[KeyT, HandlerT] = {}
    for table in tables:
        twice = found.keys() & table.keys()
        assert not twice, f"registered twice: {sorted(map(str, twice))}"
        found.update(table)
    return found
