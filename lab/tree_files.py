"""The files of a planned tree of clouds: a folder for each party, with settings and certificate.

Like `grid_files.py`, for many clouds and the brokers above them; the operator knows all brokers.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gridstat.net.command.certificate_folder import CertificateFolder
from gridstat.net.command.identity import Identity, Role
from lab.grid_files import (
    BROKER_PORT,
    CERTIFICATES,
    COMMAND_PORT,
    DATA_PORT,
    NAME_SERVICE_PORT,
    OPERATOR,
    ROUTER_LIMITS,
    URGENT_PORT,
)
from lab.open_access import OPEN_TOML
from lab.tree_plan import cloud_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from gridstat.model.cloud import EventChannel
    from lab.tree_plan import TreePlan

TIMING: Final = "[timing]\nsilent_ms_max = 500\n"
"""Timing for a busy machine, where a router may be silent for the usual 100 ms."""


@dataclass(frozen=True, slots=True)
class TreeFiles:
    """Paths of all files of a tree; `hosts` has each party's address, brokers as `broker/name`.

    `end_points` are full names with their edges.
    """

    root: Path
    plan: TreePlan
    end_points: Mapping[str, tuple[str, ...]]
    hosts: Mapping[str, str]

    def folder(self, party: str) -> Path:
        return self.root / party.replace("/", "__")

    def broker_file(self, name: str) -> Path:
        return self.folder(f"broker/{name}") / "broker.toml"

    def router_file(self, name: str) -> Path:
        return self.folder(name) / "router.toml"

    def write(self) -> None:
        """Write all files again, with a new authority for the whole tree."""
        authority = CertificateFolder(self.folder(OPERATOR) / CERTIFICATES)
        authority.create_authority(replace=True)
        for name in self.plan.brokers:
            self._hand_over(authority, Identity(Role.BROKER, name), f"broker/{name}")
            lines = self._cloud_lines(name) if name in self.plan.clouds else self._tree_lines(name)
            self.broker_file(name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        for cloud in self.plan.clouds.values():
            for router in cloud.routers:
                self._hand_over(authority, Identity(Role.ROUTER, router.name), router.name)
                text = self._router_text(router.name, router.role.value)
                self.router_file(router.name).write_text(text, encoding="utf-8")
        for name, edges in self.end_points.items():
            self._hand_over(authority, Identity(Role.ENDPOINT, name), name)
            self._write_access(name, cloud_of(name), edges)
        first = next(iter(self.plan.clouds))
        every = [edge for cloud in self.plan.clouds.values() for edge in cloud.edges]
        self._write_access(OPERATOR, first, every)

    def _head(self, name: str) -> list[str]:
        return [f'host = "{self.hosts[f"broker/{name}"]}"', f"port = {BROKER_PORT}"]

    def _parent_lines(self, name: str) -> list[str]:
        parent = self.plan.brokers[name].parent
        if not parent:
            return []
        address = f"{self.hosts[f'broker/{parent}']}:{BROKER_PORT}"
        return ["[parent]", f'name = "{parent}"', f'addresses = ["{address}"]']

    def _tree_lines(self, name: str) -> list[str]:
        broker = self.plan.brokers[name]
        lines = [f'broker = "{name}"', *self._head(name), *self._parent_lines(name)]
        for child in broker.children:
            lines += ["[[child]]", f'name = "{child}"']
        return lines + _channel_lines(broker.channels, is_short=False)

    def _cloud_lines(self, name: str) -> list[str]:
        cloud = self.plan.clouds[name]
        lines = [f'cloud = "{name}"', *self._head(name), f"name_service_port = {NAME_SERVICE_PORT}"]
        lines += [*self._parent_lines(name), TIMING]
        for router in cloud.routers:
            lines += ["[[router]]", f'name = "{_short(router.name)}"']
            lines.append(f'role = "{router.role.value}"')
        return [*lines, *_channel_lines(cloud.channels, is_short=True), OPEN_TOML]

    def _router_text(self, name: str, role: str) -> str:
        broker = self.hosts[f"broker/{cloud_of(name)}"]
        lines = [
            f'name = "{name}"',
            f'role = "{role}"',
            "[broker]",
            f'addresses = ["{broker}:{BROKER_PORT}"]',
            "[listen]",
            f'host = "{self.hosts[name]}"',
            f"data_port = {DATA_PORT}",
            f"urgent_port = {URGENT_PORT}",
            "[command]",
            f"port = {COMMAND_PORT}",
            ROUTER_LIMITS,
        ]
        return "\n".join(lines)

    def _write_access(self, party: str, cloud: str, edges: Iterable[str]) -> None:
        broker = self.hosts[f"broker/{cloud}"]
        lines = [
            f'cloud = "{cloud}"',
            f'broker = {{ host = "{broker}", port = {BROKER_PORT} }}',
            f'name_service = {{ host = "{broker}", port = {NAME_SERVICE_PORT} }}',
        ]
        for edge in edges:
            lines += ["[[edge]]", f'name = "{edge}"', f'host = "{self.hosts[edge]}"']
            lines.append(f"port = {COMMAND_PORT}")
        for name, plan in self.plan.brokers.items() if party == OPERATOR else ():
            lines += ["[[tree]]", f'name = "{name}"', f'host = "{self.hosts[f"broker/{name}"]}"']
            lines.append(f"port = {BROKER_PORT}")
            lines += [f'parent = "{plan.parent}"'] if plan.parent else []
            if name in self.plan.clouds:
                lines.append(f"name_service_port = {NAME_SERVICE_PORT}")
        path = self.folder(party) / "access.toml"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _hand_over(self, authority: CertificateFolder, identity: Identity, party: str) -> None:
        """Copy a party's key and certificate and the authority's certificate to its folder."""
        issued = authority.issue(identity, replace=True)
        target = self.folder(party) / CERTIFICATES
        target.mkdir(parents=True, exist_ok=True)
        for path in (issued.authority, issued.certificate, issued.key):
            shutil.copy(path, target / path.name)


def _channel_lines(channels: Iterable[EventChannel], *, is_short: bool) -> list[str]:
    lines: list[str] = []
    for channel in channels:
        ends = (channel.from_router, channel.to_router)
        near, far = map(_short, ends) if is_short else ends
        lines += ["[[channel]]", f'from = "{near}"', f'to = "{far}"']
        lines.append(f"latency_ms = {channel.latency_us / 1_000}")
        lines.append(f"bandwidth_bytes_per_s = {channel.bandwidth_bytes_per_s}")
        lines += [f'name = "{channel.name}"'] if channel.name else []
        lines += [f"risks = {list(channel.risks)}"] if channel.risks else []
    return lines


def _short(name: str) -> str:
    return name.partition("/")[2]
