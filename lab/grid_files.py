"""The files of a planned grid: a folder for each party, with only its settings and certificate.

So every process finds the files that it would find on a host of its own. The key of the authority
stays with the operator. Ports are fixed, since each party has its own address.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gridstat.net.command.certificate_folder import CertificateFolder
from gridstat.net.command.identity import Identity, Role
from lab.grid_plan import BROKER, GridPlan
from lab.open_access import OPEN_TOML

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

BROKER_PORT: Final = 7_100
NAME_SERVICE_PORT: Final = 7_101
DATA_PORT: Final = 7_000
URGENT_PORT: Final = 7_001
COMMAND_PORT: Final = 7_002
OPERATOR: Final = "operator"
CERTIFICATES: Final = "certificates"
ROUTER_LIMITS: Final = "[limits]\nvariables_max = 16384\nrings_max = 256\npool_small = 2048\n"


@dataclass(frozen=True, slots=True)
class GridFiles:
    """Paths of all files of a grid; `hosts` has the address of each party."""

    root: Path
    plan: GridPlan
    hosts: Mapping[str, str]
    timing: Mapping[str, float] = field(default_factory=dict)
    keys: Mapping[str, float] = field(default_factory=dict)
    """Times of the keys of sealed channels, as in the section of that name."""
    rules: str = OPEN_TOML
    """Access rules, as in the broker's file."""
    metrics_port: int | None = None
    """Port of every router's metrics, where each router has a loopback device of its own."""

    def folder(self, name: str) -> Path:
        return self.root / name.replace("/", "__")

    @property
    def broker_file(self) -> Path:
        return self.folder(BROKER) / "broker.toml"

    def router_file(self, name: str) -> Path:
        return self.folder(name) / "router.toml"

    def write(self) -> None:
        """Write all files again, with certificates of a new authority."""
        authority = CertificateFolder(self.folder(OPERATOR) / CERTIFICATES)
        authority.create_authority(replace=True)
        self._write_broker(authority)
        for router in self.plan.routers:
            self._write_router(router.name, authority, is_edge=router.is_edge)
        for point in self.plan.end_points:
            identity = Identity(Role.ENDPOINT, self.plan.full_name(point.name))
            self._hand_over(authority, identity, self.folder(point.name))
            self._write_access(point.name, point.edges)
        edges = tuple(router.name for router in self.plan.routers if router.is_edge)
        self._write_access(OPERATOR, edges)

    def _write_broker(self, authority: CertificateFolder) -> None:
        plan = self.plan
        self._hand_over(authority, Identity(Role.BROKER, plan.cloud), self.folder(BROKER))
        lines = [
            f'cloud = "{plan.cloud}"',
            f'host = "{self.hosts[BROKER]}"',
            f"port = {BROKER_PORT}",
            f"name_service_port = {NAME_SERVICE_PORT}",
            "[timing]",
            *(f"{key} = {value}" for key, value in self.timing.items()),
            *(["[keys]"] if self.keys else []),
            *(f"{key} = {value}" for key, value in self.keys.items()),
        ]
        for router in plan.routers:
            role = "edge" if router.is_edge else "inner"
            lines += ["[[router]]", f'name = "{router.name}"', f'role = "{role}"']
        for link in plan.links:
            lines += [
                "[[channel]]",
                f'from = "{link.near}"',
                f'to = "{link.far}"',
                "both_ways = true",
                f"latency_ms = {link.latency_ms}",
                f"bandwidth_bytes_per_s = {link.bandwidth_bytes_per_s}",
                f'security = "{plan.security}"',
            ]
        lines.append(self.rules)
        self.broker_file.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _write_router(self, name: str, authority: CertificateFolder, *, is_edge: bool) -> None:
        full_name = self.plan.full_name(name)
        self._hand_over(authority, Identity(Role.ROUTER, full_name), self.folder(name))
        lines = [
            f'name = "{full_name}"',
            f'role = "{"edge" if is_edge else "inner"}"',
            *([] if self.metrics_port is None else [f"metrics_port = {self.metrics_port}"]),
            *([f'endpoint_security = "{self.plan.security}"'] if is_edge else []),
            "[broker]",
            f'addresses = ["{self.hosts[BROKER]}:{BROKER_PORT}"]',
            "[listen]",
            f'host = "{self.hosts[name]}"',
            f"data_port = {DATA_PORT}",
            f"urgent_port = {URGENT_PORT}",
            "[command]",
            f"port = {COMMAND_PORT}",
            ROUTER_LIMITS,
        ]
        self.router_file(name).write_text("\n".join(lines), encoding="utf-8")

    def _write_access(self, name: str, edges: tuple[str, ...]) -> None:
        broker = self.hosts[BROKER]
        lines = [
            f'cloud = "{self.plan.cloud}"',
            f'broker = {{ host = "{broker}", port = {BROKER_PORT} }}',
            f'name_service = {{ host = "{broker}", port = {NAME_SERVICE_PORT} }}',
        ]
        for edge in edges:
            lines += [
                "[[edge]]",
                f'name = "{self.plan.full_name(edge)}"',
                f'host = "{self.hosts[edge]}"',
                f"port = {COMMAND_PORT}",
            ]
        path = self.folder(name) / "access.toml"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _hand_over(self, authority: CertificateFolder, identity: Identity, folder: Path) -> None:
        """Copy a party's key and certificate and the authority's certificate to its folder."""
        issued = authority.issue(identity, replace=True)
        target = folder / CERTIFICATES
        target.mkdir(parents=True, exist_ok=True)
        for path in (issued.authority, issued.certificate, issued.key):
            shutil.copy(path, target / path.name)
