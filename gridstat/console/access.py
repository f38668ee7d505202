"""Access to a running cloud: the folder that `gridstat up` made, or one made by hand.

A folder holds `access.toml` (addresses) and `certificates/`. Commands look into `--folder`, else
into GRIDSTAT_FOLDER, else into `.gridstat` here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import Field

from gridstat.console.config.cloud_file import Host, Name, Port
from gridstat.console.config.config_errors import complaint
from gridstat.console.config.toml_file import Section, load_settings
from gridstat.model.errors import ConfigurationError, Misuse, UnknownName
from gridstat.net.command.certificate_folder import CertificateFiles, CertificateFolder
from gridstat.net.command.identity import Identity, Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FOLDER_VARIABLE: Final = "GRIDSTAT_FOLDER"
FOLDER_DEFAULT: Final = ".gridstat"
ACCESS_FILE: Final = "access.toml"
HINT: Final = (
    "start a cloud with `gridstat up` in this folder, or name the folder of one: --folder, "
    f"or {FOLDER_VARIABLE} in the environment"
)


class AddressSection(Section):
    """Address at which a part listens."""

    host: Host
    port: Port


class EdgeSection(AddressSection):
    """One `[[edge]]`: an edge router that end-points may attach to."""

    name: str


class BrokerSection(AddressSection):
    """One `[[tree]]`: a broker of the tree; only a leaf broker has a name service."""

    name: Name
    parent: Name | None = None
    name_service_port: Port | None = None


class StandBySection(AddressSection):
    """One `[[stand_by]]`: where another process of a broker listens when it is in charge."""

    name: Name


class AccessSettings(Section):
    """The whole of `access.toml`."""

    cloud: Name
    certificates: str = "certificates"
    broker: AddressSection
    name_service: AddressSection
    edge: list[EdgeSection] = Field(default=[], max_length=10_000)
    tree: list[BrokerSection] = Field(default=[], max_length=10_000)
    stand_by: list[StandBySection] = Field(default=[], max_length=10_000)


@dataclass(frozen=True, slots=True)
class KnownBroker:
    """Broker of the tree: its address, and the name of its parent; the root has none."""

    address: tuple[str, int]
    parent: str = ""
    name_service: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """A cloud that can be reached, and the certificates for it.

    `tree` has all brokers in the folder, parents before children; it is empty for a cloud without a
    parent.
    """

    folder: Path
    cloud: str
    broker: tuple[str, int]
    name_service: tuple[str, int]
    edges: dict[str, tuple[str, int]]
    certificates: CertificateFolder
    tree: dict[str, KnownBroker] = field(default_factory=dict)
    stand_bys: tuple[tuple[str, tuple[str, int]], ...] = ()

    @property
    def brokers(self) -> list[tuple[str, int]]:
        """Addresses of the broker and its stand-by, to be tried in turn."""
        return [self.broker, *(place for name, place in self.stand_bys if name == self.cloud)]

    @property
    def clouds(self) -> list[str]:
        """Names of the leaf brokers in the tree, as far as the folder has them."""
        return [name for name, known in self.tree.items() if known.name_service is not None]

    @property
    def known_clouds(self) -> list[str]:
        """The folder's own cloud, those of its tree, and those of its edge routers."""
        of_edges = (name.partition("/")[0] for name in self.edges)
        return list(dict.fromkeys((self.cloud, *self.clouds, *of_edges)))

    def edges_of(self, cloud: str) -> list[str]:
        return [name for name in self.edges if name.partition("/")[0] == cloud]

    def beside(self, cloud: str) -> Access:
        """The same folder, seen from another broker of its tree; as it is if there is none."""
        known = self.tree.get(cloud)
        if known is None or cloud == self.cloud:
            return self
        service = known.name_service or self.name_service
        return replace(self, cloud=cloud, broker=known.address, name_service=service)

    def at(self, broker: str) -> Access:
        """Return the same folder, seen from the broker of this name; raise an error if it is
        unknown."""
        if broker != self.cloud and broker not in self.tree:
            known = ", ".join(sorted({self.cloud, *self.tree}))
            raise UnknownName(f"there is no broker {broker}", hint=f"this folder knows {known}")
        return self.beside(broker)

    def above_clouds(self, broker: str) -> Access:
        """The same of a broker that has children; the leaf broker of a cloud has none."""
        seen = self.at(broker)
        if self.is_cloud(broker):
            others = [name for name in self.tree if not self.is_cloud(name)]
            raise Misuse(
                f"{broker} is the broker of a cloud, and has no children",
                hint=f"brokers above clouds: {', '.join(others) or 'this folder has none'}",
            )
        return seen

    def is_cloud(self, broker: str) -> bool:
        """Return whether the folder has this broker as a leaf: its own broker, or one that serves
        names."""
        return broker == self.cloud or broker in self.clouds

    def files_of(self, role: Role, name: str) -> CertificateFiles:
        """The party's certificate; made on the spot where the authority's key is at hand."""
        identity = Identity(role, name)
        if self.certificates.has_authority:
            return self.certificates.ensure(identity)
        return self.certificates.present(identity)

    def owner_of(self, *routers: str) -> Access:
        """Return access to the lowest broker above these routers, which decides on channels between
        them."""
        lines = [self._line(router.partition("/")[0]) for router in routers]
        common = [name for name in lines[0] if all(name in line for line in lines)]
        if not common:
            known = ", ".join(self.tree) or self.cloud
            raise Misuse(
                f"the folder has no broker above both {' and '.join(routers)}",
                hint=f"brokers in the folder: {known}; list the others as [[tree]]",
            )
        return self.at(common[0])

    def _line(self, name: str) -> list[str]:
        """Return the broker and all brokers above it that the folder has."""
        line = [name]
        while (known := self.tree.get(line[-1])) and known.parent and known.parent not in line:
            line.append(known.parent)
        return line


def folder_from(option: Path | None) -> Path:
    return option or Path(os.environ.get(FOLDER_VARIABLE) or FOLDER_DEFAULT)


def load_access(option: Path | None) -> Access:
    """Return what the folder has; raise `ConfigurationError` if there is no cloud."""
    folder = folder_from(option)
    file = folder / ACCESS_FILE
    settings = load_settings(file, AccessSettings, hint=HINT)
    for problem in _complaints(settings, file=str(file)):
        raise problem
    return Access(
        folder=folder,
        cloud=settings.cloud,
        broker=(settings.broker.host, settings.broker.port),
        name_service=(settings.name_service.host, settings.name_service.port),
        edges={edge.name: (edge.host, edge.port) for edge in settings.edge},
        certificates=CertificateFolder(folder / settings.certificates),
        tree={one.name: _known(one) for one in settings.tree},
        stand_bys=tuple((one.name, (one.host, one.port)) for one in settings.stand_by),
    )


def _complaints(settings: AccessSettings, *, file: str) -> Iterator[ConfigurationError]:
    """Names that stand for two things or for none, and trees that are not one."""
    brokers = [one.name for one in settings.tree]
    for word, names in (("tree", brokers), ("edge", [one.name for one in settings.edge])):
        users: dict[str, int] = {}
        for index, name in enumerate(names):
            before = users.setdefault(name, index)
            if before != index:
                problem = f'"{name}" is already {word}[{before}]'
                yield complaint(file, f"{word}[{index}].name", problem, hint="list each once")
    known = f"brokers of this file: {', '.join(dict.fromkeys([settings.cloud, *brokers]))}"
    for index, one in enumerate(settings.tree):
        if one.parent is not None and one.parent not in brokers:
            problem = f'there is no broker "{one.parent}"'
            yield complaint(file, f'tree[{index}].parent ("{one.name}")', problem, hint=known)
    for index, other in enumerate(settings.stand_by):
        if other.name not in {settings.cloud, *brokers}:
            problem = f'there is no broker "{other.name}"'
            yield complaint(file, f"stand_by[{index}].name", problem, hint=known)
    yield from _cycle_complaints(settings.tree, file=file)


def _cycle_complaints(tree: Sequence[BrokerSection], *, file: str) -> Iterator[ConfigurationError]:
    parents = {one.name: one.parent for one in tree}
    for index, one in enumerate(tree):
        seen = {one.name}
        above = one.parent
        while above is not None and above not in seen:
            seen.add(above)
            above = parents.get(above)
        if above == one.name:
            key = f'tree[{index}].parent ("{one.name}")'
            yield complaint(file, key, "stands above itself", hint="parents lead up to the root")


def _known(section: BrokerSection) -> KnownBroker:
    port = section.name_service_port
    return KnownBroker(
        address=(section.host, section.port),
        parent=section.parent or "",
        name_service=None if port is None else (section.host, port),
    )
