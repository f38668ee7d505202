"""Rules that decide from its certificate whether a peer may open a session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gridstat.model.errors import NotAuthorised, WrongCloud
from gridstat.net.command.identity import Role

if TYPE_CHECKING:
    from collections.abc import Collection

    from gridstat.net.command.identity import Identity


class PeerAuthorization(Protocol):
    """Rule that decides which peers a session accepts."""

    def check(self, identity: Identity) -> None:
        """Raise the refusal of this peer, if there is one; the peer is sent its reason."""
        ...


@dataclass(frozen=True, slots=True)
class ServerAuthorization:
    """Accepts parties of some roles in one cloud, and brokers that are children by name.

    All other peers are refused. `children` may change during the life of the rule.
    """

    server: Identity
    allowed_roles: frozenset[Role]
    children: Collection[str] = ()

    def check(self, identity: Identity) -> None:
        if self.children and identity.role is Role.BROKER:
            self._check_child(identity)
            return
        if identity.role not in self.allowed_roles:
            roles = ", ".join(sorted(role.value for role in self.allowed_roles))
            raise NotAuthorised(
                f"{identity} may not open a session with {self.server}: allowed roles are {roles}"
            )
        if identity.cloud != self.server.cloud:
            raise WrongCloud(
                f"{identity} may not open a session with {self.server}: "
                f"only parties of cloud {self.server.cloud} may"
            )

    def _check_child(self, identity: Identity) -> None:
        if identity.name not in self.children:
            raise NotAuthorised(
                f"{identity} may not open a session with {self.server}: it is not among its "
                "children",
                hint=f"declare it in the file of {self.server.name}: [[child]] with its name",
            )


@dataclass(frozen=True, slots=True)
class ClientAuthorization:
    """Accepts exactly the peer that was dialled."""

    expected: Identity

    def check(self, identity: Identity) -> None:
        if identity != self.expected:
            raise NotAuthorised(
                f"the peer is {identity}, not {self.expected}: "
                "a session needs the party that was requested",
                hint="check the address, or the certificate of the server",
            )
