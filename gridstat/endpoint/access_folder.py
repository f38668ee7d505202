"""The folder of a running cloud, as `gridstat up` makes it: addresses of edges, and certificates.

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
"""Errors of the TOML library: its own (the first), and those of too large numbers and too deep
nesting."""
HINT: Final = "start a cloud with `gridstat up` and name its folder, .gridstat where it was started"


@dataclass(frozen=True, slots=True)
class AccessFolder:
    """The edges by name, and the certificates."""

    edges: dict[str, EdgeAddress]
    certificates: CertificateFolder

    def edge(self, name: str) -> EdgeAddress:
        """Return the address of an edge router."""
        try:
            return self.edges[name]
        except KeyError:
            known = ", ".join(sorted(self.edges)) or "none"
            raise Misuse(
                f"there is no edge router {name}", hint=f"there are these: {known}"
            ) from None

    def files_of(self, name: str) -> CertificateFiles:
        """Return an end-point's certificate; create it if the authority's key is in the folder."""
        identity = Identity(Role.ENDPOINT, name)
        folder = self.certificates
        return folder.ensure(identity) if folder.has_authority else folder.files(identity)


def open_folder(path: str | os.PathLike[str]) -> AccessFolder:
    """Read the folder: `open_folder(".gridstat")`."""
    file = Path(path) / ACCESS_FILE
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
        edges = {
            str(edge["name"]): EdgeAddress(str(edge["name"]), str(edge["host"]), int(edge["port"]))
            for edge in content.get("edge", [])
        }
        certificates = Path(path) / str(content.get("certificates", "certificates"))
    except OSError as problem:
        raise ConfigurationError(f"{file}: {problem.strerror or problem}", hint=HINT) from problem
    except (*UNREADABLE, KeyError, TypeError, AttributeError) as problem:
        raise ConfigurationError(f"{file} cannot be read: {problem}", hint=HINT) from problem
    return AccessFolder(edges, CertificateFolder(certificates))
