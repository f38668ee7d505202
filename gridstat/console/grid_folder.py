"""The folder of a grid that runs on this machine: certificates, a file per daemon, addresses.

Each daemon finds what it would find on a host of its own, so the folder also shows how a cloud is
set up on many. A second `gridstat up` in the same folder is refused while the first one lives.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import socket
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gridstat.console.access import ACCESS_FILE
from gridstat.console.terminals import terminal_names
from gridstat.model.access_rules import toml_of
from gridstat.model.cloud import RouterRole
from gridstat.model.errors import ConfigurationError
from gridstat.net.command.address import PORT_MAX, address_text
from gridstat.net.command.certificate_folder import CertificateFolder, write_whole
from gridstat.net.command.identity import Identity, Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.console.config.cloud_file import Topology
    from gridstat.console.grid import Grid
    from gridstat.model.cloud import EventChannel, Router

CERTIFICATES: Final = "certificates"
GRID_FILE: Final = "grid.toml"
BROKER_FILE: Final = "broker.toml"
LOCK_FILE: Final = "lock"
EPHEMERAL_PORTS: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""Range of ports that the kernel assigns by itself, for IPv4 and IPv6."""
PORT_MIN: Final = 10_000
ROUTER_LIMITS: Final = "[limits]\nvariables_max = 16384\nrings_max = 256\npool_small = 2048\n"
"""A demonstration has few variables, and eight routers share one machine."""


class GridFolder:
    """Files of one grid; `write` makes all of them, with ports that were free a moment before.

    A cloud without a tree has `broker.toml` and `router-e0.toml`; in a tree the names of brokers
    and clouds are in the files' names too, as in `router-c1+e0.toml`: no name has a + in it.
    """

    def __init__(self, path: Path, grid: Grid, text: str) -> None:
        self.path = path
        self._grid = grid
        self._text = text
        self._certificates = CertificateFolder(path / CERTIFICATES)
        self._ports: dict[str, int] = {}
        self.metrics: dict[str, int] = {}
        """Ports of `/metrics` by daemon, once the files are written."""

    @property
    def broker_file(self) -> Path:
        """File of the first cloud's leaf broker."""
        return self.file_of_broker(self._grid.cloud)

    @property
    def grid_file(self) -> Path:
        return self.path / GRID_FILE

    def file_of_broker(self, name: str) -> Path:
        return self.path / (f"broker-{name}.toml" if self._grid.has_tree else BROKER_FILE)

    def router_file(self, name: str) -> Path:
        cloud, _, short = name.rpartition("/")
        return self.path / f"router-{f'{cloud}+' if self._grid.has_tree else ''}{short}.toml"

    def daemon_of_broker(self, name: str) -> str:
        """Return the name of the broker's process; the only broker of a grid is called `broker`."""
        return f"broker/{name}" if self._grid.has_tree else "broker"

    def write(self) -> None:
        grid = self._grid
        if not self._certificates.has_authority:
            self._certificates.create_authority()
        self._choose_ports()
        # Contracts of an earlier run belong to its processes; a demonstration starts empty.
        for path in self.path.glob("journal*.sqlite*"):
            path.unlink()
        for name in grid.tree.brokers:
            self._issue(Role.BROKER, name)
            self._write(self.file_of_broker(name).name, self._tree_text(name))
        for cloud in grid.clouds:
            self._issue(Role.BROKER, cloud.cloud)
            self._write(self.file_of_broker(cloud.cloud).name, self._cloud_text(cloud))
            for router in cloud.routers:
                self._issue(Role.ROUTER, router.name)
                self._write(self.router_file(router.name).name, self._router_text(router))
        for name in (*(pmu.name for pmu in grid.pmus), *(one.name for one in grid.subscribers)):
            self._issue(Role.ENDPOINT, name)
        # Beforehand, so that a copy of the folder without `ca.key` serves another host too.
        for cloud in grid.clouds:
            for name in terminal_names(cloud.cloud):
                self._issue(Role.ENDPOINT, name)
        self._write(GRID_FILE, self._text)
        self._write(ACCESS_FILE, self._access_text())

    def _choose_ports(self) -> None:
        """Choose all ports at once, so that they differ: brokers, name services, edges, and
        metrics."""
        grid = self._grid
        clouds = [cloud.cloud for cloud in grid.clouds]
        brokers = [*grid.tree.brokers, *clouds]
        routers = [router.name for router in grid.routers]
        daemons = [*(self.daemon_of_broker(name) for name in brokers), *routers]
        listening = [
            *(_broker_key(name) for name in brokers),
            *(_names_key(name) for name in clouds),
        ]
        listening += [router.name for router in grid.routers if router.role is RouterRole.EDGE]
        ports = free_ports(grid.host, len(listening) + len(daemons))
        self._ports = dict(zip(listening, ports, strict=False))
        self.metrics = dict(zip(daemons, ports[len(listening) :], strict=True))

    def _address(self, key: str) -> str:
        return address_text((self._grid.host, self._ports[key]))

    def _router_text(self, router: Router) -> str:
        cloud = router.name.partition("/")[0]
        lines = [
            f'name = "{router.name}"',
            f'role = "{router.role.value}"',
            f"metrics_port = {self.metrics[router.name]}",
            "[broker]",
            f'addresses = ["{self._address(_broker_key(cloud))}"]',
            "[listen]",
            f'host = "{self._grid.host}"',
            "[command]",
            f"port = {self._ports.get(router.name, 0)}",
            ROUTER_LIMITS,
        ]
        return "\n".join(lines)

    def _broker_lines(self, name: str) -> list[str]:
        """Return the lines that the files of all brokers have."""
        lines = [
            f'host = "{self._grid.host}"',
            f"port = {self._ports[_broker_key(name)]}",
            f"metrics_port = {self.metrics[self.daemon_of_broker(name)]}",
        ]
        if self._grid.has_tree:
            lines.append(f'journal = "journal-{name}.sqlite"')
        return lines

    def _parent_lines(self, name: str) -> list[str]:
        parent = self._grid.tree.parents.get(name)
        if parent is None:
            return []
        address = self._address(_broker_key(parent))
        return ["[parent]", f'name = "{parent}"', f'addresses = ["{address}"]']

    def _tree_text(self, name: str) -> str:
        tree = self._grid.tree
        lines = [f'broker = "{name}"', *self._broker_lines(name), *self._parent_lines(name)]
        for child in tree.children(name):
            lines += ["[[child]]", f'name = "{child}"']
        for channel in tree.channels.get(name, ()):
            lines += [
                "[[channel]]",
                f'from = "{channel.from_router}"',
                f'to = "{channel.to_router}"',
            ]
            lines += _channel_lines(channel)
        return "\n".join(lines) + "\n"

    def _cloud_text(self, topology: Topology) -> str:
        """Return the grid's own file without its end-points, with the ports."""
        name = topology.cloud
        lines = [f'cloud = "{name}"', *self._broker_lines(name)]
        lines.append(f"name_service_port = {self._ports[_names_key(name)]}")
        if topology.access is not None:
            lines.append(f'access = "{topology.access}"')
        lines += self._parent_lines(name)
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
                f"level = {channel.level}",
                *_channel_lines(channel),
            ]
        lines += [toml_of(rule) for rule in topology.rules]
        return "\n".join(lines) + "\n"

    def _access_text(self) -> str:
        grid, ports = self._grid, self._ports
        lines = [
            f'cloud = "{grid.cloud}"',
            f"broker = {self._place(_broker_key(grid.cloud))}",
            f"name_service = {self._place(_names_key(grid.cloud))}",
        ]
        for router in grid.routers:
            if router.name in ports:
                lines += ["[[edge]]", f'name = "{router.name}"', f'host = "{grid.host}"']
                lines.append(f"port = {ports[router.name]}")
        for name in self._tree_names():
            lines += ["[[tree]]", f'name = "{name}"', f'host = "{grid.host}"']
            lines.append(f"port = {ports[_broker_key(name)]}")
            if name in grid.tree.parents:
                lines.append(f'parent = "{grid.tree.parents[name]}"')
            if _names_key(name) in ports:
                lines.append(f"name_service_port = {ports[_names_key(name)]}")
        return "\n".join(lines) + "\n"

    def _tree_names(self) -> list[str]:
        """All brokers, parents before children; none where a cloud stands alone."""
        grid = self._grid
        clouds = [cloud.cloud for cloud in grid.clouds] if grid.has_tree else []
        return [*grid.tree.brokers, *clouds]

    def _place(self, key: str) -> str:
        return f'{{ host = "{self._grid.host}", port = {self._ports[key]} }}'

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
    """Return ports that are free now and outside the range that the kernel assigns by itself.

    The processes bind them seconds later. The first is random, so that two searches at once find
    different ones; ports of the kernel's range are used only if all others are taken.
    """
    lowest, highest = map(int, EPHEMERAL_PORTS.read_text(encoding="ascii").split())
    everything = range(PORT_MIN, PORT_MAX + 1)
    kept = [port for port in everything if not lowest <= port <= highest]
    given = [port for port in everything if lowest <= port <= highest]
    ports = (*_turned(kept), *_turned(given))
    found = list(islice((port for port in ports if _is_free(host, port)), count))
    if len(found) < count:
        raise OSError(errno.EADDRINUSE, f"only {len(found)} ports of {host} are free")
    return found


def _turned(ports: list[int]) -> list[int]:
    """The same, beginning anywhere."""
    start = random.randrange(len(ports) or 1)
    return ports[start:] + ports[:start]


def _is_free(host: str, port: int) -> bool:
    """Return whether a port is free, for streams and for datagrams."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(family, kind) as found:
                found.bind((host, port))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return False
    return True


def _broker_key(name: str) -> str:
    return f"broker of {name}"


def _names_key(cloud: str) -> str:
    return f"names of {cloud}"


def _channel_lines(channel: EventChannel) -> list[str]:
    return [
        f"bandwidth_bytes_per_s = {channel.bandwidth_bytes_per_s}",
        f"latency_ms = {channel.latency_us / 1_000}",
        f"mtu_bytes = {channel.mtu_bytes}",
        f"queue_events_max = {channel.queue_events_max}",
        f'security = "{channel.security}"',
        *([f'name = "{channel.name}"'] if channel.name else []),
        *([f"risks = {list(channel.risks)}"] if channel.risks else []),
        *([f'to_address = "{channel.to_host}"'] if channel.to_host else []),
    ]
