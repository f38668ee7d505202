"""Identity of a peer: a role and a full name, as stated by the URI in its certificate.

`gridstat://router/c1/e0` is the router `c1/e0`; protocol code calls it `router/c1/e0`. The role is
the URI's host, the name its path, and the first part of the name is the cloud.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from enum import Enum
from typing import Final
from urllib.parse import quote, unquote

from gridstat.model.cloud import check_name
from gridstat.model.errors import LayoutError

SCHEME: Final = "gridstat://"
READABLE_CHARS_MAX: Final = 80
DIGEST_CHARS: Final = 32
_PLAIN: Final = re.compile(r"[a-z0-9.-]+(?:[_/][a-z0-9.-]+)*")
"""Names in which no two underscores, and no underscore and slash, are neighbours."""


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
        """Name of the party's files without an ending; no two identities have the same.

        The name is readable where it can be: in small letters, with `__` for each slash. Any other
        name might be that of another party on a file system that ignores case, or be too long: its
        digest is added behind a `~`, which no name has.
        """
        is_plain = _PLAIN.fullmatch(self.name) and len(self.name) <= READABLE_CHARS_MAX
        return self.old_file_stem if is_plain else self.unique_file_stem

    @property
    def unique_file_stem(self) -> str:
        """Name of the files with the digest of the name, whatever the name is."""
        readable = re.sub(r"[^a-z0-9.-]", "_", self.name.lower())[-READABLE_CHARS_MAX:]
        digest = hashlib.sha256(self.name.encode()).hexdigest()[:DIGEST_CHARS]
        return f"{self.role.value}-{readable}~{digest}"

    @property
    def old_file_stem(self) -> str:
        """Name of the files as earlier releases wrote it; two identities may have the same."""
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
