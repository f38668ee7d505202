"""Attach to a cloud from a command line: edges by name, a certificate made where possible."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gridstat.endpoint.connecting import connect
from gridstat.model.errors import Misuse
from gridstat.net.command.address import address_text
from gridstat.net.command.identity import Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gridstat.console.access import Access
    from gridstat.endpoint.connection import Connection

EDGES_DEFAULT = 2


@contextmanager
def attached(access: Access, end_point: str, edges: Sequence[str] | None) -> Iterator[Connection]:
    """A connection as this end-point; by the first two edges of its cloud unless some are named.

    SIGTERM ends it as Ctrl-C does, so that it always leaves the cloud in order.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    places = places_of(access.beside(end_point.partition("/")[0]), edges)
    access.files_of(Role.ENDPOINT, end_point)
    with connect(places, end_point, certificates=access.certificates.path) as grid:
        yield grid


def places_of(access: Access, edges: Sequence[str] | None) -> tuple[str, ...]:
    """The named edges in the words of `connect`, or the first two of the cloud."""
    names = list(edges or access.edges_of(access.cloud)[:EDGES_DEFAULT])
    unknown = [name for name in names if name not in access.edges]
    if unknown or not names:
        known = ", ".join(access.edges) or "none"
        raise Misuse(f"no edge router {', '.join(unknown)}", hint=f"edge routers here: {known}")
    return tuple(f"{name}@{address_text(access.edges[name])}" for name in names)
