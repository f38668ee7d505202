"""Entry points of the API: `connect` and `connect_async`."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Final, TypedDict, TypeVar, Unpack

from gridstat.core.end_settings import (
    OPTION_BYTES_MAX,
    RING_EVENTS_MAX,
    VARIABLES_MAX,
    bounded,
)
from gridstat.endpoint import exit_cleanup
from gridstat.endpoint.access_folder import open_folder
from gridstat.endpoint.awaitable_call import call_in_thread
from gridstat.endpoint.cloud_link import CloudLink, LinkSettings
from gridstat.endpoint.connection import Connection
from gridstat.endpoint.edge_address import EdgeAddress, local_host_toward, parse_edge
from gridstat.endpoint.options import (
    check_callback,
    check_flag,
    check_path,
    check_text,
    check_texts,
    check_time_left,
)
from gridstat.endpoint.session_events import EDGES_MAX
from gridstat.model.call_options import checked_call
from gridstat.model.channel_security import check_security
from gridstat.model.cloud import check_name
from gridstat.model.errors import DeadlinePassed, EndPointExists, LayoutError, Misuse
from gridstat.model.exact_numbers import whole_number
from gridstat.net.command.address import parse_address
from gridstat.net.command.certificate_folder import CertificateFolder
from gridstat.net.command.identity import Identity, Role
from gridstat.net.command.name_lookup import resolve
from gridstat.net.command.tls import Credentials

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from gridstat.endpoint.change import OnChange
    from gridstat.model.channel_security import Security
    from gridstat.net.command.address import Address

Result = TypeVar("Result")
TIMEOUT_S: Final = 10.0
LOOK_UP_GRACE_S: Final = 0.25
"""Time for a look-up whose own deadline has passed to say what went wrong."""
FIFO_PRIORITY_MAX: Final = 99
"""Highest real-time priority of Linux."""
EDGES_HINT: Final = 'edges=["c1/e0@127.0.0.1:7101", "c1/e1@127.0.0.1:7102"], or one of them'
SERVICE_HINT: Final = 'name_service="host:port", or leave it out'
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
    security: Security
    core_dumps: bool


@checked_call(options=ConnectOptions)
def connect(edges: str | Sequence[str], name: str, **options: Unpack[ConnectOptions]) -> Connection:
    """Attach to one or two edge routers as the end-point `name`.

    `connect(["c1/e0@127.0.0.1:7101", "c1/e1@127.0.0.1:7102"], name="c1/north/pmu-1",
    certificates="certs/")`. With two edges, whatever fails singly loses nothing. Waits up to
    `timeout_s` (10) for the first edge, with the look-up of names; raises why it could not attach.
    With `name_service="host:port"`, the broker's, edges may be given by their names alone; of a
    broker with a stand-by name both, which are tried in turn. The same with `folder=".gridstat"`,
    the one of a cloud on this machine, which has the certificates too. The receiving thread is
    real-time where the process may be; `fifo_priority=0` keeps it ordinary. `on_change` is called
    on the delivering thread with every `Change`: an edge lost, a contract moved, lowered or broken,
    a publication policed, and so on. Events are sealed to and from the edges; `security="none"` is
    for edges whose file says `endpoint_security = "none"`. As its memory holds keys, the process
    leaves no core dumps and cannot be debugged by others of its user, unless `core_dumps=True`. A
    program that ends without `close` leaves the cloud nevertheless.
    """
    given = check_texts("edges", edges, EDGES_HINT)
    check_text("name", name, 'name="c1/north/pmu-1", as in the certificate')
    if not 1 <= len(given) <= EDGES_MAX:
        raise Misuse(f"{len(given)} edge routers", hint="attach to one or two")
    settings = _link_settings(options)
    timeout_s = check_time_left("timeout_s", options.get("timeout_s", TIMEOUT_S))
    deadline_s = time.monotonic() + timeout_s
    credentials, addresses = _resolve_edges(given, name, options, deadline_s)
    if len({address.name for address in addresses}) != len(addresses):
        raise Misuse("the same edge router twice", hint="two edges must be two routers")
    hosts = _in_time(
        lambda: tuple(local_host_toward(address) for address in addresses),
        deadline_s,
        f"the route to {' and '.join(address.name for address in addresses)}",
    )
    link = CloudLink(credentials, addresses, hosts, settings)
    try:
        link.open(_left_s(deadline_s))
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


def _link_settings(options: ConnectOptions) -> LinkSettings:
    """Return the settings of a link; raise if an option makes no sense."""
    check_callback("on_change", options.get("on_change"))
    defaults = LinkSettings()
    fifo_priority = options.get("fifo_priority")
    if fifo_priority is not None:
        fifo_priority = _bounded("fifo_priority", fifo_priority, 0, FIFO_PRIORITY_MAX)
    ring_events = options.get("ring_events", defaults.ring_events)
    option_bytes = options.get("option_bytes", defaults.option_bytes)
    variables_max = options.get("variables_max", defaults.variables_max)
    within_s = options.get("answer_within_s", defaults.within_s)
    return LinkSettings(
        within_s=check_time_left("answer_within_s", within_s),
        ring_events=_bounded("ring_events", ring_events, 1, RING_EVENTS_MAX),
        option_bytes=_bounded("option_bytes", option_bytes, 0, OPTION_BYTES_MAX),
        variables_max=_bounded("variables_max", variables_max, 1, VARIABLES_MAX),
        fifo_priority=fifo_priority,
        on_change=options.get("on_change"),
        security=_security(options.get("security", defaults.security)),
        core_dumps=check_flag("core_dumps", options.get("core_dumps", defaults.core_dumps)),
    )


def _security(given: object) -> Security:
    try:
        return check_security(given, of="connect")
    except LayoutError as error:
        raise Misuse(str(error.args[0]), hint=error.hint) from None


def _bounded(name: str, given: object, low: int, high: int) -> int:
    return bounded(name, whole_number(name, given), low, high)


def _resolve_edges(
    given: tuple[str, ...], name: str, options: ConnectOptions, deadline_s: float
) -> tuple[Credentials, tuple[EdgeAddress, ...]]:
    """Return the end-point's credentials, and the addresses of the edges."""
    if "folder" in options:
        if "certificates" in options or "name_service" in options:
            raise Misuse("the folder says where certificates and edges are", hint="name it alone")
        access = open_folder(check_path("folder", options["folder"]))
        addresses = tuple(parse_edge(text) if "@" in text else access.edge(text) for text in given)
        return Credentials(access.files_of(name)), addresses
    folder = CertificateFolder(
        check_path("certificates", options.get("certificates", "certificates"))
    )
    asked = check_texts("name_service", options.get("name_service", ()), SERVICE_HINT)
    services = [parse_address(text) for text in asked]
    credentials = Credentials(folder.files(Identity(Role.ENDPOINT, name)))
    names = [check_name(text) for text in given if "@" not in text] if services else []
    found = _looked_up(names, credentials, services, deadline_s) if names else {}
    return credentials, tuple(found.get(text) or parse_edge(text) for text in given)


def _looked_up(
    names: Sequence[str],
    credentials: Credentials,
    services: Sequence[Address],
    deadline_s: float,
) -> dict[str, EdgeAddress]:
    """Return the addresses of edges by name; the name services are asked for all at once."""

    async def ask_all() -> list[Address]:
        within_s = _left_s(deadline_s)
        return await asyncio.gather(
            *(resolve(name, credentials, services, within_s=within_s) for name in names)
        )

    addresses = _in_time(
        lambda: asyncio.run(ask_all()), deadline_s, f"the address of {' and '.join(names)}"
    )
    return {
        name: EdgeAddress(name, host, port)
        for name, (host, port) in zip(names, addresses, strict=True)
    }


def _in_time(work: Callable[[], Result], deadline_s: float, sought: str) -> Result:
    """Return the result of a call on a thread of its own; raise if it is not there in time.

    The caller's thread may have an event loop already, as in a notebook. The resolver of the
    system cannot be interrupted: its thread is left alone, and does not keep a program from ending.
    """
    found: Future[Result] = Future()

    def run() -> None:
        try:
            found.set_result(work())
        except BaseException as error:  # Raised on the caller's thread.
            found.set_exception(error)

    threading.Thread(target=run, name="gs-lookup", daemon=True).start()
    if not wait([found], _left_s(deadline_s) + LOOK_UP_GRACE_S).done:
        raise DeadlinePassed(
            f"{sought} was not found in time",
            hint="give addresses instead of the names of hosts, or a longer timeout_s",
        )
    return found.result()


def _left_s(deadline_s: float) -> float:
    return max(0.0, deadline_s - time.monotonic())
