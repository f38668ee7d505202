"""How commands find a running cloud: the folder that `gridstat up` made, or one made by hand.

A folder holds `access.toml` (addresses) and `certificates/`. Commands look into `--folder`, else
into GRIDSTAT_FOLDER, else into `.gridstat` here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import Field

from gridstat.console.config.cloud_file import Host, Name, Port
from gridstat.console.config.toml_file import Section, load_settings
from gridstat.model.errors import ConfigurationError
from gridstat.net.command.certificate_folder import CertificateFiles, CertificateFolder
from gridstat.net.command.identity import Identity, Role

FOLDER_VARIABLE: Final = "GRIDSTAT_FOLDER"
FOLDER_DEFAULT: Final = ".gridstat"
ACCESS_FILE: Final = "access.toml"
HINT: Final = (
    "start a cloud with `gridstat up` in this folder, or name the folder of one: --folder, "
    f"or {FOLDER_VARIABLE} in the environment"
)


class PlaceSection(Section):
    """Where something listens."""

    host: Host
    port: Port


class EdgeSection(PlaceSection):
    """One `[[edge]]`: an edge router that end-points may attach to."""

    name: str


class AccessSettings(Section):
    """The whole of `access.toml`."""

    cloud: Name
    certificates: str = "certificates"
    broker: PlaceSection
    name_service: PlaceSection
    edge: list[EdgeSection] = Field(default=[], max_length=10_000)


@dataclass(frozen=True, slots=True)
class Access:
    """A cloud that can be reached, and the certificates to reach it with."""

    folder: Path
    cloud: str
    broker: tuple[str, int]
    name_service: tuple[str, int]
    edges: dict[str, tuple[str, int]]
    certificates: CertificateFolder

    def files_of(self, role: Role, name: str) -> CertificateFiles:
        """The party's certificate; made on the spot where the authority's key is at hand."""
        identity = Identity(role, name)
        if self.certificates.has_authority:
            return self.certificates.ensure(identity)
        files = self.certificates.files(identity)
        if not files.certificate.exists():
            raise ConfigurationError(
                f"{files.certificate} is missing",
                hint=f"have it issued: `gridstat certificates issue {role.value}/{name}`",
            )
        return files


def folder_from(option: Path | None) -> Path:
    return option or Path(os.environ.get(FOLDER_VARIABLE) or FOLDER_DEFAULT)


def load_access(option: Path | None) -> Access:
    """What the folder says; raises `ConfigurationError` where there is no cloud."""
    folder = folder_from(option)
    settings = load_settings(folder / ACCESS_FILE, AccessSettings, hint=HINT)
    return Access(
        folder=folder,
        cloud=settings.cloud,
        broker=(settings.broker.host, settings.broker.port),
        name_service=(settings.name_service.host, settings.name_service.port),
        edges={edge.name: (edge.host, edge.port) for edge in settings.edge},
        certificates=CertificateFolder(folder / settings.certificates),
    )
