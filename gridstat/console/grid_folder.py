"""The folder of a grid that runs on this machine: certificates, a file per daemon, addresses.

Each daemon finds what it would find on a host of its own, so the folder also shows how a cloud is
set up on many. A second `gridstat up` in the same folder is refused while the first one lives.
"""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from gridstat.console.access import ACCESS_FILE
from gridstat.model.errors import ConfigurationError
from gridstat.net.command.certificate_folder import CertificateFolder, write_whole
from gridstat.net.command.identity import Identity, Role

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gridstat.console.grid import Grid

CERTIFICATES: Final = "certificates"
GRID_FILE: Final = "grid.toml"
BROKER_FILE: Final = "broker.toml"
LOCK_FILE: Final = "lock"
ROUTER_LIMITS: Final = "[limits]\nvariables_max = 16384\nrings_max = 256\npool_small = 2048\n"
"""A demonstration has few variables, and eight routers share one machine."""


class GridFolder:
    """Files of one grid; `write` makes them anew, with ports that were free a moment before."""

    def __init__(self, path: Path, grid: Grid, text: str) -> None:
        self.path = path
        self._grid = grid
        self._text = text
        self._certificates = CertificateFolder(path / CERTIFICATES)
        self.metrics: dict[str, int] = {}
        """Ports of `/metrics` by daemon, once the files are written."""

    @property
    def broker_file(self) -> Path:
        return self.path / BROKER_FILE

    @property
    def grid_file(self) -> Path:
        return self.path / GRID_FILE

    def router_file(self, name: str) -> Path:
        return self.path / f"router-{name.rpartition('/')[2]}.toml"

    def write(self) -> None:
        grid = self._grid
        if not self._certificates.has_authority:
            self._certificates.create_authority()
        edges = [router.name for router in grid.topology.routers if router.role.value == "edge"]
        routers = [router.name for router in grid.topology.routers]
        wanted = 3 + len(edges) + len(routers)
        broker_port, names_port, *ports = free_ports(grid.host, wanted)
        command_ports = dict(zip(edges, ports, strict=False))
        self.metrics = dict(zip(("broker", *routers), ports[len(edges) :], strict=True))
        # Yesterday's contracts belong to yesterday's processes; a demonstration begins anew.
        for path in self.path.glob("journal.sqlite*"):
            path.unlink()
        self._issue(Role.BROKER, grid.cloud)
        self._write(BROKER_FILE, self._broker_text(broker_port, names_port))
        for router in grid.topology.routers:
            self._issue(Role.ROUTER, router.name)
            lines = [
                f'name = "{router.name}"',
                f'role = "{router.role.value}"',
                f"metrics_port = {self.metrics[router.name]}",
                "[broker]",
                f'addresses = ["{_joined(grid.host, broker_port)}"]',
                "[listen]",
                f'host = "{grid.host}"',
                "[command]",
                f"port = {command_ports.get(router.name, 0)}",
                ROUTER_LIMITS,
            ]
            self._write(self.router_file(router.name).name, "\n".join(lines))
        for name in (*(pmu.name for pmu in grid.pmus), *(one.name for one in grid.subscribers)):
            self._issue(Role.ENDPOINT, name)
        self._write(GRID_FILE, self._text)
        self._write(ACCESS_FILE, self._access_text(broker_port, names_port, command_ports))

    def _broker_text(self, port: int, names_port: int) -> str:
        """The grid's own file without its end-points, and the ports said."""
        topology = self._grid.topology
        lines = [
            f'cloud = "{topology.cloud}"',
            f'host = "{self._grid.host}"',
            f"port = {port}",
            f"name_service_port = {names_port}",
            f"metrics_port = {self.metrics['broker']}",
        ]
        for router in topology.routers:
            lines += [
                "[[router]]",
                f'name = "{router.name.rpartition("/")[2]}"',
                f'role = "{router.role.value}"',
                f"events_per_s_max = {router.events_per_s_max}",
                f"x = {router.x}",
                f"y = {router.y}",
            ]
        for channel in topology.channels:
            lines += [
                "[[channel]]",
                f'from = "{channel.from_router.rpartition("/")[2]}"',
                f'to = "{channel.to_router.rpartition("/")[2]}"',
                f"bandwidth_bytes_per_s = {channel.bandwidth_bytes_per_s}",
                f"latency_ms = {channel.latency_us / 1_000}",
                f"level = {channel.level}",
                f"mtu_bytes = {channel.mtu_bytes}",
                f"queue_events_max = {channel.queue_events_max}",
            ]
        return "\n".join(lines) + "\n"

    def _access_text(self, port: int, names_port: int, command_ports: dict[str, int]) -> str:
        host = self._grid.host
        lines = [
            f'cloud = "{self._grid.cloud}"',
            f'broker = {{ host = "{host}", port = {port} }}',
            f'name_service = {{ host = "{host}", port = {names_port} }}',
        ]
        for name, command_port in command_ports.items():
            lines += ["[[edge]]", f'name = "{name}"', f'host = "{host}"', f"port = {command_port}"]
        return "\n".join(lines) + "\n"

    def _issue(self, role: Role, name: str) -> None:
        self._certificates.ensure(Identity(role, name))

    def _write(self, name: str, text: str) -> None:
        write_whole(self.path / name, text.encode())


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """The folder for one grid at a time; the lock goes with the process that holds it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be used: {error.strerror}", hint="choose another with --folder"
        ) from error
    with os.fdopen(descriptor, "r+"):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationError(
                f"a grid runs in {path} already",
                hint="watch it with `gridstat top`, or start another with --folder",
            ) from None
        yield


def free_ports(host: str, count: int) -> list[int]:
    """Ports that nobody uses now; held together while they are found, so that all differ."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket(family)) for _ in range(count)]
        for found in sockets:
            found.bind((host, 0))
        return [int(found.getsockname()[1]) for found in sockets]


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
