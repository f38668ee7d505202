"""The folder of a running cloud, as `gridstat up` makes it: where its edges are, and who may come.

`gridstat/console/access.py` reads the same file for commands; end-points need only this much.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gridstat.endpoint.edge_address import EdgeAddress
from gridstat.model.errors import ConfigurationError, Misuse
from gridstat.net.command.certificate_folder import CertificateFolder
from gridstat.net.command.identity import Identity, Role

if TYPE_CHECKING:
    import os

    from gridstat.net.command.certificate_folder import CertificateFiles

ACCESS_FILE: Final = "access.toml"
UNREADABLE: Final = (ValueError, OverflowError, RecursionError)
"""Beside its own error, which is the first, the TOML library lets pass those of numbers and
nesting without end."""
HINT: Final = "start a cloud with `gridstat up` and name its folder, .gridstat where it was started"


@dataclass(frozen=True, slots=True)
class AccessFolder:
    """The edges by name, and the certificates."""

    edges: dict[str, EdgeAddress]
    certificates: CertificateFolder

    def edge(self, name: str) -> EdgeAddress:
        """Where an edge router listens."""
        try:
            return self.edges[name]
        except KeyError:
            known = ", ".join(sorted(self.edges)) or "none"
            raise Misuse(
                f"there is no edge router {name}", hint=f"there are these: {known}"
            ) from None

    def files_of(self, name: str) -> CertificateFiles:
        """An end-point's certificate; made on the spot where the authority's key is at hand."""
        identity = Identity(Role.ENDPOINT, name)
        folder = self.certificates
        return folder.ensure(identity) if folder.has_authority else folder.files(identity)


def open_folder(place: str | os.PathLike[str]) -> AccessFolder:
    """What the folder says: `open_folder(".gridstat")`."""
    file = Path(place) / ACCESS_FILE
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
        edges = {
            str(edge["name"]): EdgeAddress(str(edge["name"]), str(edge["host"]), int(edge["port"]))
            for edge in content.get("edge", [])
        }
        certificates = Path(place) / str(content.get("certificates", "certificates"))
    except OSError as problem:
        raise ConfigurationError(f"{file}: {problem.strerror or problem}", hint=HINT) from problem
    except (*UNREADABLE, KeyError, TypeError, AttributeError) as problem:
        raise ConfigurationError(f"{file} cannot be read: {problem}", hint=HINT) from problem
    return AccessFolder(edges, CertificateFolder(certificates))
