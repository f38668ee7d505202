"""Checks of the addresses at which peers receive events; a router must not have to resolve them."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

from gridstat.model.errors import LayoutError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.net.command.endpoint_messages import Attach

PORT_MAX: Final = 65_535
HOST_CHARS_MAX: Final = 64
VERSION_MAX: Final = 255
VERSIONS_MAX: Final = 16


def check_host(host: str, *, of: str) -> None:
    """Raise unless `host` is the numeric address of one machine."""
    try:
        address = ipaddress.ip_address(host[: HOST_CHARS_MAX + 1])
    except ValueError:
        address = None
    is_long = len(host) > HOST_CHARS_MAX
    if is_long or address is None or address.is_multicast or address.is_unspecified:
        raise LayoutError(
            f"{of} names {host[:HOST_CHARS_MAX]!r}, which is not the address of a machine",
            hint="give an address in numbers, such as 192.0.2.7 or 2001:db8::7",
        )


def check_ports(ports: Iterable[int], *, of: str) -> None:
    if not all(0 <= port <= PORT_MAX for port in ports):
        raise LayoutError(f"{of} names a port outside 0 to {PORT_MAX}")


def check_versions(versions: tuple[int, ...], *, of: str) -> None:
    if len(versions) > VERSIONS_MAX or not all(0 < each <= VERSION_MAX for each in versions):
        raise LayoutError(
            f"{of} names versions of the datagram outside 1 to {VERSION_MAX}, or too many of them"
        )


def check_receiver(command: Attach, *, of: str) -> None:
    """Raise unless an end-point gives a valid host and two valid ports, or none of them."""
    ports = command.data_port, command.urgent_port
    check_ports(ports, of=of)
    check_versions(command.datagram_versions, of=of)
    if any(ports) and not (all(ports) and command.host):
        raise LayoutError(
            f"{of} names only a part of where it receives",
            hint="give the host and both ports of the receiver, or none of them",
        )
    if command.host:
        check_host(command.host, of=of)
