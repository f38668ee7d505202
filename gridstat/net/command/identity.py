"""Identity of a peer: a role and a full name, as stated by the URI in its certificate.

`gridstat://router/c1/e0` is the router `c1/e0`; protocol code calls it `router/c1/e0`. The role is
the URI's host, the name its path, and the first part of the name is the cloud.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final
from urllib.parse import quote, unquote

from gridstat.model.cloud import check_name
from gridstat.model.errors import LayoutError

SCHEME: Final = "gridstat://"


class Role(Enum):
    """Role that a certificate grants; the role decides which messages a peer may send."""

    BROKER = "broker"
    ROUTER = "router"
    ENDPOINT = "endpoint"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Identity:
    """A role and a well-formed name; equal identities are the same party."""

    role: Role
    name: str

    def __post_init__(self) -> None:
        check_name(self.name)

    def __str__(self) -> str:
        return self.peer

    @property
    def peer(self) -> str:
        """Name of the peer in protocol code: `role/name`."""
        return f"{self.role.value}/{self.name}"

    @property
    def cloud(self) -> str:
        return self.name.partition("/")[0]

    @property
    def uri(self) -> str:
        """URI form in a certificate; characters outside the URI set are percent-encoded."""
        return f"{SCHEME}{self.role.value}/{quote(self.name)}"

    @property
    def file_stem(self) -> str:
        return f"{self.role.value}-{self.name.replace('/', '__')}"


def parse_peer(peer: str) -> Identity:
    """Parse `role/name`."""
    role, _, name = peer.partition("/")
    return Identity(_role(role, of=peer), name)


def parse_uri(uri: str) -> Identity:
    """Parse the URI of a certificate."""
    if not uri.startswith(SCHEME):
        raise LayoutError(f"{uri[:80]!r} is no identity", hint=f"it begins with {SCHEME}")
    role, _, name = uri.removeprefix(SCHEME).partition("/")
    try:
        return Identity(_role(role, of=uri), unquote(name, errors="strict"))
    except UnicodeDecodeError as error:
        raise LayoutError(f"{uri[:80]!r} is no identity: {error.reason}") from error


def _role(word: str, *, of: str) -> Role:
    try:
        return Role(word)
    except ValueError:
        roles = ", ".join(role.value for role in Role)
        raise LayoutError(
            f"{of[:80]!r} names no role", hint=f"write role/name; the roles are {roles}"
        ) from None
