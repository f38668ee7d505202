"""What floods, for operators, in pages that fit into a frame however many modes and names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PAGE_BYTES_MAX: Final = 1 << 20
"""Far from the size of a frame, with one flood more."""
REFUSING_MAX: Final = 100
"""Children of which it is told why they do not flood; of more only how many they are."""

Facts = dict[str, Any]


def page_of(names: Iterable[str], after: str, facts_of: Callable[[str], Facts]) -> Facts:
    """The floods after this name; `next` is the name to go on after, empty with the last page."""
    floods: list[Facts] = []
    size = 0
    for name in sorted(name for name in names if name > after):
        facts = facts_of(name)
        size += len(msgspec.msgpack.encode(facts))
        if floods and size > PAGE_BYTES_MAX:
            return {"floods": floods, "next": floods[-1]["name"]}
        floods.append(facts)
    return {"floods": floods, "next": ""}


def refusing_facts(reasons: dict[str, str]) -> dict[str, str]:
    """Why children do not flood, by child."""
    found = dict(sorted(reasons.items())[:REFUSING_MAX])
    if len(reasons) > len(found):
        found["others"] = f"{len(reasons) - len(found)} more do not flood it either"
    return found
