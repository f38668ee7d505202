"""Pages of the list of flooded variables for operators; each page fits into a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PAGE_BYTES_MAX: Final = 1 << 20
"""Size above which a page ends; a frame holds one flooded variable more with ease."""
REFUSING_MAX: Final = 100
"""Children whose reason is listed; the others are only counted."""

Facts = dict[str, Any]


def page_of(names: Iterable[str], after: str, facts_of: Callable[[str], Facts]) -> Facts:
    """Return the floods after a name; `next` is the last name listed, empty on the last page."""
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
    """Return the reasons of children that do not flood, by child."""
    found = dict(sorted(reasons.items())[:REFUSING_MAX])
    if len(reasons) > len(found):
        found["others"] = f"{len(reasons) - len(found)} more do not flood it either"
    return found
