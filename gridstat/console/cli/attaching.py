"""Attach to a cloud from a command line: edges by name, a certificate made where possible."""

from __future__ import annotations

import signal
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from gridstat.console.terminals import take_terminal, usable_terminals
from gridstat.endpoint.connection_setup import connect
from gridstat.model.channel_security import HOP
from gridstat.model.errors import EndPointExists, Misuse
from gridstat.net.command.address import address_text
from gridstat.net.command.identity import Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gridstat.console.access import Access
    from gridstat.endpoint.connection import Connection
    from gridstat.model.channel_security import Security

EDGES_DEFAULT = 2


@contextmanager
def attached(
    access: Access, end_point: str, edges: Sequence[str] | None, security: Security = HOP
) -> Iterator[Connection]:
    """A connection as this end-point; by the first two edges of its cloud unless some are named.

    Without an end-point it is the first free terminal, of the cloud of the edges that are named or
    else of the folder's. SIGTERM ends it as Ctrl-C does, so that it always leaves the cloud in
    order.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    seen = access.beside((end_point or (edges or [""])[0]).partition("/")[0])
    places = edge_addresses(seen, edges)
    with ExitStack() as stack:
        if end_point:
            access.files_of(Role.ENDPOINT, end_point)
            path = access.certificates.path
            grid = connect(places, end_point, certificates=path, security=security)
            yield stack.enter_context(grid)
        else:
            yield _as_terminal(seen, places, stack, security)


def _as_terminal(
    access: Access, places: tuple[str, ...], stack: ExitStack, security: Security
) -> Connection:
    """A connection as the first terminal that no other process uses, here or on another host."""
    names = usable_terminals(access)
    for name in names:
        lock = take_terminal(access, name)
        if lock is None:
            continue
        try:
            path = access.certificates.path
            grid = connect(places, name, certificates=path, security=security)
        except EndPointExists:
            lock.close()
            continue  # A process on another host uses it.
        except BaseException:
            lock.close()
            raise
        stack.enter_context(lock)
        return stack.enter_context(grid)
    further = int(names[-1].rpartition("-")[2]) + 1
    issue = f"gridstat certificates terminals {access.cloud} --first {further}"
    raise EndPointExists(
        f"all {len(names)} terminals of {access.cloud} are in use",
        hint=f"end one of those commands, name another end-point with --as, or `{issue}`",
    )


def edge_addresses(access: Access, edges: Sequence[str] | None) -> tuple[str, ...]:
    """Return the named edges as `connect` takes them, or the first two of the cloud."""
    names = list(edges or access.edges_of(access.cloud)[:EDGES_DEFAULT])
    unknown = [name for name in names if name not in access.edges]
    if unknown or not names:
        known = ", ".join(access.edges) or "none"
        raise Misuse(f"no edge router {', '.join(unknown)}", hint=f"edge routers here: {known}")
    return tuple(f"{name}@{address_text(access.edges[name])}" for name in names)
