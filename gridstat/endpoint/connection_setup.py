"""Entry points of the API: `connect` and `connect_async`."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

from gridstat.endpoint import exit_cleanup
from gridstat.endpoint.access_folder import open_folder
from gridstat.endpoint.awaitable_call import call_in_thread
from gridstat.endpoint.cloud_link import CloudLink, LinkSettings
from gridstat.endpoint.connection import Connection
from gridstat.endpoint.edge_address import EdgeAddress, parse_edge
from gridstat.endpoint.options import check_callback, check_wait
from gridstat.endpoint.session_events import EDGES_MAX
from gridstat.model.call_options import checked_call
from gridstat.model.cloud import check_name
from gridstat.model.errors import EndPointExists, Misuse
from gridstat.model.exact_numbers import whole_number
from gridstat.net.command.address import parse_address
from gridstat.net.command.certificate_folder import CertificateFolder
from gridstat.net.command.identity import Identity, Role
from gridstat.net.command.name_lookup import resolve
from gridstat.net.command.tls import Credentials

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from gridstat.endpoint.change import OnChange
    from gridstat.net.command.address import Address

USED_HERE: Final = "this process has a connection of that name: close it first"


class ConnectOptions(TypedDict, total=False):
    """Options of `connect`; all are optional."""

    folder: str | os.PathLike[str]
    certificates: str | os.PathLike[str]
    name_service: str | Sequence[str]
    timeout_s: float
    answer_within_s: float
    ring_events: int
    option_bytes: int
    variables_max: int
    fifo_priority: int
    on_change: OnChange


@checked_call(options=ConnectOptions)
def connect(edges: str | Sequence[str], name: str, **options: Unpack[ConnectOptions]) -> Connection:
    """Attach to one or two edge routers as the end-point `name`.

    `connect(["c1/e0@127.0.0.1:7101", "c1/e1@127.0.0.1:7102"], name="c1/north/pmu-1",
    certificates="certs/")`. With two edges, whatever fails singly loses nothing. Waits up to
    `timeout_s` (10) for the first edge; raises why it could not attach. With
    `name_service="host:port"`, the broker's, edges may be given by their names alone; of a broker
    with a stand-by name both, which are tried in turn. The same with `folder=".gridstat"`, the one
    of a cloud on this machine, which has the certificates too. The receiving thread is real-time
    where the process may be; `fifo_priority=0` keeps it ordinary. `on_change` is called on the
    delivering thread with every `Change`: an edge lost, a contract moved, lowered or broken, a
    publication policed, and so on. A program that ends without `close` leaves the cloud
    nevertheless.
    """
    given = (edges,) if isinstance(edges, str) else tuple(edges)
    if not 1 <= len(given) <= EDGES_MAX:
        raise Misuse(f"{len(given)} edge routers", hint="attach to one or two")
    credentials, addresses = _resolve_edges(given, name, options)
    if len({address.name for address in addresses}) != len(addresses):
        raise Misuse("the same edge router twice", hint="two edges must be two routers")
    check_callback("on_change", options.get("on_change"))
    timeout_s = check_wait("timeout_s", options.get("timeout_s", 10.0))
    defaults = LinkSettings()
    fifo_priority = options.get("fifo_priority", defaults.fifo_priority)
    settings = LinkSettings(
        within_s=check_wait("answer_within_s", options.get("answer_within_s", defaults.within_s)),
        ring_events=whole_number("ring_events", options.get("ring_events", defaults.ring_events)),
        option_bytes=whole_number(
            "option_bytes", options.get("option_bytes", defaults.option_bytes)
        ),
        variables_max=whole_number(
            "variables_max", options.get("variables_max", defaults.variables_max)
        ),
        fifo_priority=None
        if fifo_priority is None
        else whole_number("fifo_priority", fifo_priority),
        on_change=options.get("on_change"),
    )
    link = CloudLink(credentials, addresses, settings)
    try:
        link.open(timeout_s)
    except EndPointExists as problem:
        if exit_cleanup.is_used_here(name):
            raise EndPointExists(problem.args[0], hint=USED_HERE) from None
        raise
    connection = Connection(link)
    exit_cleanup.close_at_exit(connection, link)
    return connection


@checked_call(options=ConnectOptions)
async def connect_async(
    edges: str | Sequence[str], name: str, **options: Unpack[ConnectOptions]
) -> Connection:
    """Connect in a coroutine, as `connect`: `async with await connect_async(...) as grid: ...`.

    The connection is the same; wait for its blocking calls with `await grid.run(...)`. If the
    waiting is cancelled, a connection that comes about all the same is closed.
    """
    return await call_in_thread(lambda: connect(edges, name, **options), Connection.close)


def _resolve_edges(
    given: tuple[str, ...], name: str, options: ConnectOptions
) -> tuple[Credentials, tuple[EdgeAddress, ...]]:
    """Return the end-point's credentials, and the addresses of the edges."""
    if "folder" in options:
        if "certificates" in options or "name_service" in options:
            raise Misuse("the folder says where certificates and edges are", hint="name it alone")
        access = open_folder(options["folder"])
        addresses = tuple(parse_edge(text) if "@" in text else access.edge(text) for text in given)
        return Credentials(access.files_of(name)), addresses
    folder = CertificateFolder(Path(options.get("certificates", "certificates")))
    credentials = Credentials(folder.files(Identity(Role.ENDPOINT, name)))
    asked = options.get("name_service", ())
    services = [parse_address(text) for text in ((asked,) if isinstance(asked, str) else asked)]
    return credentials, tuple(_edge_address(text, credentials, services) for text in given)


def _edge_address(text: str, credentials: Credentials, services: Sequence[Address]) -> EdgeAddress:
    """Return the address of an edge as written, or as one of the name services resolves it."""
    if "@" in text or not services:
        return parse_edge(text)
    # In a thread of its own: the caller's may have an event loop already, as in a notebook.
    with ThreadPoolExecutor(1, "gs-lookup") as lookup:
        asked = resolve(check_name(text), credentials, services)
        host, port = lookup.submit(asyncio.run, asked).result()
    return EdgeAddress(text, host, port)
