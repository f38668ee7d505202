"""Address of an edge router, as people write it: `c1/e0@192.0.2.7:7101`."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from gridstat.model.cloud import check_name
from gridstat.model.errors import LayoutError, LinkDown, Misuse
from gridstat.net.command.address import parse_address
from gridstat.net.command.identity import Identity, Role


@dataclass(frozen=True, slots=True)
class EdgeAddress:
    """An edge router's full name, and the host and port of its command server."""

    name: str
    host: str
    port: int

    @property
    def identity(self) -> Identity:
        """Identity that the router must prove."""
        return Identity(Role.ROUTER, self.name)


def parse_edge(text: str) -> EdgeAddress:
    """Parse `name@host:port`; an IPv6 address stands in brackets: `c1/e0@[::1]:7101`."""
    name, at, address = text.partition("@")
    try:
        if not at:
            raise LayoutError(f"{text!r} has no address")
        host, port = parse_address(address)
        return EdgeAddress(check_name(name), host, port)
    except LayoutError as problem:
        raise Misuse(
            f"{text!r} is not the address of an edge router: {problem.args[0]}",
            hint="write name@host:port, such as c1/e0@127.0.0.1:7101 or c1/e0@[::1]:7101",
        ) from problem


def local_host_toward(edge: EdgeAddress) -> str:
    """Return the address of this machine from which that edge is reached; nothing is sent."""
    try:
        found = socket.getaddrinfo(edge.host, edge.port, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as problem:
        raise LinkDown(
            f"there is no route to {edge.name} at {edge.host}: {problem.strerror or problem}",
            hint="check the address and this machine's routes",
        ) from problem
