"""Labels of paths: their routers, and before a router the name of the channel to it, if it has one.

Two paths over channels beside each other cross the same routers, and differ in these names alone.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


def named_channels(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of a path's channels in order; empty if none of them has a name."""
    found = tuple(names)
    return found if any(found) else ()


def _pairs(routers: Sequence[str], channel_names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each router after the first, and the name of the channel to it, or an empty one."""
    return zip_longest(channel_names[: max(0, len(routers) - 1)], routers[1:], fillvalue="")


def path_steps(routers: Sequence[str], channel_names: Sequence[str] = ()) -> list[str]:
    """Return the routers of a path in order, and between them `#north` for a channel's name."""
    steps = list(routers[:1])
    for name, router in _pairs(routers, channel_names):
        steps += [f"#{name}", router] if name else [router]
    return steps


def path_label(routers: Sequence[str], channel_names: Sequence[str] = ()) -> str:
    """Return the label of a path in logs, tables and metrics: `c1/e0>c1/i0>#north>c1/e1`."""
    return ">".join(path_steps(routers, channel_names))


def path_text(routers: Sequence[str], channel_names: Sequence[str] = ()) -> str:
    """Return a path as people read it: `c1/e0 → c1/i0 →#north c1/e1`."""
    return "".join(routers[:1]) + "".join(
        f" →{name and f'#{name}'} {router}" for name, router in _pairs(routers, channel_names)
    )
