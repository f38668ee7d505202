"""Admission of new connections: which may begin a handshake now, and which gives way to another.

Nobody knows who is at the other end of a connection before the handshake has ended, so only its
source address and its age count. A connection is *pending* from `arrive` until `leave`: until it is
an open session, or closed.

  Limit of a source reached      its oldest pending connection gives way, if it is old enough;
                                 otherwise the new connection is refused
  Limit of all sources reached   the oldest of the source with the most pending connections gives
                                 way: whoever takes most loses first, and a newcomer has a chance
  Rate of a source exceeded      the new connection is refused

Rejected: to refuse newcomers while all places are taken, since 256 silent connections would lock
everybody out until their deadline; to let a random one give way, as sshd does, since a source with
one connection would pay for a source with many.

The class is pure: it knows no socket and reads no clock.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from gridstat.net.command.identity import Role

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

NS_PER_S: Final = 1_000_000_000
PENDING_MAX: Final = 256
SOURCE_PENDING_MAX: Final = 16
SOURCE_PER_S_MAX: Final = 50
SOURCES_MAX: Final = 4_096
"""Sources whose rate is remembered; beyond, those that have been quiet longest are forgotten."""
IPV6_SOURCE_BITS: Final = 64
"""Bits of an IPv6 address that count as its source: one host may use all addresses below them."""


class Refusal(Enum):
    """Cause for which a connection is closed before anything is read from it."""

    SOURCE_RATE = "source_rate"
    SOURCE_PENDING = "source_pending"


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """Limits of one listener; a pending connection may be replaced by another of its source after
    `replaced_after_ns`."""

    pending_max: int = PENDING_MAX
    source_pending_max: int = SOURCE_PENDING_MAX
    source_per_s_max: int = SOURCE_PER_S_MAX
    replaced_after_ns: int = NS_PER_S


@dataclass(frozen=True, slots=True)
class Admitted:
    """A connection may begin; the one with the ticket `replaces`, if any, must be closed."""

    ticket: int
    replaces: int | None = None


@dataclass(slots=True)
class _Source:
    """Pending connections of one source, oldest first, and the rest of its rate."""

    credit_ns: int
    seen_ns: int
    since_ns: dict[int, int] = field(default_factory=dict)


class ConnectionAdmission:
    """Holds at most `pending_max` pending connections, and `source_pending_max` of one source."""

    def __init__(self, limits: AdmissionLimits) -> None:
        self.limits = limits
        self._sources: dict[str, _Source] = {}
        self._source_by_ticket: dict[int, str] = {}
        """Source of each pending connection, oldest connection first."""
        self._next_ticket = 1
        # Credit is counted in nanoseconds: each connection costs the interval of the rate.
        self._cost_ns = NS_PER_S // limits.source_per_s_max

    @property
    def pending(self) -> int:
        return len(self._source_by_ticket)

    @property
    def known_sources(self) -> int:
        return len(self._sources)

    def arrive(self, host: str, now_ns: int) -> Admitted | Refusal:
        """Decide about a new connection from this address."""
        name = source_of(host)
        source = self._seen(name, now_ns)
        if source.credit_ns < self._cost_ns:
            return Refusal.SOURCE_RATE
        replaces = None
        if len(source.since_ns) >= self.limits.source_pending_max:
            oldest, since_ns = next(iter(source.since_ns.items()))
            if now_ns - since_ns < self.limits.replaced_after_ns:
                return Refusal.SOURCE_PENDING
            replaces = oldest
        elif self.pending >= self.limits.pending_max:
            replaces = self._oldest_of_the_heaviest(source)
        if replaces is not None:
            self.leave(replaces)
        source.credit_ns -= self._cost_ns
        ticket, self._next_ticket = self._next_ticket, self._next_ticket + 1
        source.since_ns[ticket] = now_ns
        self._source_by_ticket[ticket] = name
        return Admitted(ticket, replaces)

    def leave(self, ticket: int) -> None:
        """Free the place of a connection that is open, closed or has given way."""
        name = self._source_by_ticket.pop(ticket, None)
        if name is not None:
            del self._sources[name].since_ns[ticket]

    def _seen(self, name: str, now_ns: int) -> _Source:
        """Return the source with its credit of now, as the one that was seen last."""
        source = self._sources.pop(name, None)
        if source is None:
            source = _Source(credit_ns=NS_PER_S, seen_ns=now_ns)
            self._forget_quiet_sources()
        source.credit_ns = min(NS_PER_S, source.credit_ns + now_ns - source.seen_ns)
        source.seen_ns = now_ns
        self._sources[name] = source
        return source

    def _forget_quiet_sources(self) -> None:
        if len(self._sources) < SOURCES_MAX:
            return
        quiet = [name for name, source in self._sources.items() if not source.since_ns]
        for name in quiet[: SOURCES_MAX // 2]:  # Many at once, so that each search pays.
            del self._sources[name]

    def _oldest_of_the_heaviest(self, newcomer: _Source) -> int:
        busy = {name: self._sources[name] for name in self._source_by_ticket.values()}
        # Of equally heavy sources the first has the oldest connection.
        heaviest = max(busy.values(), key=lambda source: len(source.since_ns))
        if len(newcomer.since_ns) >= len(heaviest.since_ns):
            heaviest = newcomer
        return next(iter(heaviest.since_ns))


def source_of(host: str) -> str:
    """Return the source that an address counts for: itself, or the network of an IPv6 address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    kept = int(address) >> IPV6_SOURCE_BITS << IPV6_SOURCE_BITS
    return f"{ipaddress.IPv6Address(kept)}/{IPV6_SOURCE_BITS}"


SHARES: Final = {Role.ENDPOINT: Fraction(3, 4), Role.OPERATOR: Fraction(1, 8)}
"""Share of all sessions that the parties of a role may hold; the rest is kept for the others.

End-points are many, and one operator may have many sessions. Routers and brokers are few, and each
of them has one session, so nothing is kept from them.
"""


@dataclass(frozen=True, slots=True)
class SessionPlaces:
    """Places of a listener's sessions, of which some are kept for routers, brokers and operators.

    End-points that are served alone may have all places.
    """

    sessions_max: int
    served: Collection[Role]

    def places(self, role: Role) -> int:
        """Return how many sessions the parties of a role may have together."""
        share = SHARES.get(role)
        if share is None or set(self.served) == {Role.ENDPOINT}:
            return self.sessions_max
        return max(1, int(self.sessions_max * share))

    def has_place(self, role: Role, open_by_role: Mapping[Role, int]) -> bool:
        is_full = sum(open_by_role.values()) >= self.sessions_max
        return not is_full and open_by_role.get(role, 0) < self.places(role)
