"""Declared parts of a cloud: routers and event channels, and their names.

Capacity that is promised to contracts is in `broker/capacity/resources.py`. Names are full paths
(`c1/e0` is router e0 of cloud c1), so they are unique across clouds.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from gridstat.model.channel_security import HOP, Security, check_security
from gridstat.model.errors import LayoutError
from gridstat.model.identifiers import ChannelId
from gridstat.model.invisible_letters import INVISIBLE

NAME_BYTES_MAX: Final = 255
NAME_PARTS_MAX: Final = 16
_PLAIN: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-:/")
_HINT: Final = (
    "write cloud/substation/device/quantity: letters of any script, digits, _ . - and : in each "
    "part, no blank, no empty part, none that is . or .."
)
_CHANNEL_BOUNDS: Final = (
    ("bandwidth_bytes_per_s", 0, 2**40),
    ("latency_us", 0, 60_000_000),
    ("level", 0, 255),
    ("mtu_bytes", 64, 9_000),
    ("queue_events_max", 1, 2**20),
)
"""Bounds of a channel's attributes, as a core can store them."""
WORD: Final = r"[A-Za-z0-9][A-Za-z0-9._-]*"
"""Names within a file: of a channel beside another one, and of a risk."""
WORD_CHARS_MAX: Final = 64
RISKS_MAX: Final = 16
Way: TypeAlias = tuple[str, str, str]
"""Where a channel begins and ends, and its name among the channels between the two."""


class RouterRole(Enum):
    """Position of a router; only an edge router has end-points attached to it."""

    EDGE = "edge"
    INNER = "inner"
    BORDER = "border"


@dataclass(frozen=True, slots=True)
class Router:
    """A status router as its broker knows it; capacity counts events in and out together."""

    name: str
    role: RouterRole = RouterRole.INNER
    events_per_s_max: int = 1_000_000
    x: float = 0.0
    y: float = 0.0

    def __post_init__(self) -> None:
        check_stored_name(self.name)  # A journal may hold it; `check_name` is for new routers.
        if self.events_per_s_max < 1:
            raise LayoutError(f"router {self.name}: events_per_s_max must be at least 1")


@dataclass(frozen=True, slots=True)
class EventChannel:
    """A one-way connection of two routers; bandwidth 0 means undeclared: unpaced and unbounded.

    Channels from one router to the same other one differ in `name`. The channel of the same name in
    the opposite direction is the other direction of the same link. What can fail together shares a
    name in `risks`; the two directions of a link always share a risk. `to_host` is the address at
    which the receiver is reached by this channel, if it is another one than it reports.
    """

    channel_id: ChannelId
    from_router: str
    to_router: str
    bandwidth_bytes_per_s: int = 0
    latency_us: int = 0
    level: int = 1
    mtu_bytes: int = 1_232
    queue_events_max: int = 1_024
    security: Security = HOP
    name: str = ""
    risks: tuple[str, ...] = ()
    to_host: str = ""

    def __post_init__(self) -> None:
        if self.name:
            check_word(self.name, "channel name")
        if self.to_host:
            check_host(self.to_host, of=f"channel {self.label}")
        check_risks(self.risks, of=f"channel {self.label}")
        check_security(self.security, of=f"channel {self.label}")
        if self.from_router == self.to_router:
            raise LayoutError(f"a channel from {self.from_router} to itself leads nowhere")
        if self.bandwidth_bytes_per_s < 0 or self.latency_us < 0:
            raise LayoutError(f"channel {self.label}: bandwidth and latency cannot be negative")
        for what, least, most in _CHANNEL_BOUNDS:
            value = getattr(self, what)
            if not least <= value <= most:
                raise LayoutError(
                    f"channel {self.label}: {what} {value} is not {least} to {most}",
                    hint=f"give {what} as a whole number from {least} to {most}",
                )

    @property
    def is_sealed(self) -> bool:
        """True if datagrams of the channel are encrypted and authenticated."""
        return self.security == HOP

    @property
    def label(self) -> str:
        """Readable name: `c1/e0→c1/i0`, and `c1/e0→c1/i0#north` for one with a name."""
        return label_of_way(self.way)

    @property
    def way(self) -> Way:
        return self.from_router, self.to_router, self.name

    @property
    def back_way(self) -> Way:
        """The way of the opposite direction of the same link."""
        return self.to_router, self.from_router, self.name

    def host_at(self, reported: str) -> str:
        """Return the receiver's address on this channel, given the one that it reports."""
        return self.to_host or reported

    @property
    def link(self) -> str:
        """Readable name of the link, the same for both directions: `c1/e0↔c1/i0#north`."""
        one, other = sorted((self.from_router, self.to_router))
        return f"{one}↔{other}#{self.name}" if self.name else f"{one}↔{other}"

    @property
    def risk_groups(self) -> tuple[str, ...]:
        """All risks of the channel: its link, which no risk of a file can be called, and those
        named."""
        return (self.link, *self.risks)


def label_of_way(way: Way) -> str:
    from_router, to_router, name = way
    return f"{from_router}→{to_router}#{name}" if name else f"{from_router}→{to_router}"


def check_word(word: str, what: str) -> str:
    """Return a channel's name or a risk if it is well formed; raise `LayoutError` otherwise."""
    if len(word) > WORD_CHARS_MAX or not re.fullmatch(WORD, word):
        raise LayoutError(
            f"{what} {_printable(word)} is not letters, digits, `.`, `_` and `-`, at most "
            f"{WORD_CHARS_MAX}",
            hint='write it as in "duct-7"',
        )
    return word


def check_host(host: str, *, of: str) -> str:
    """Return an address if it is an IP address in digits; raise `LayoutError` otherwise."""
    try:
        is_any = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        is_any = True
    if is_any or "%" in host:
        raise LayoutError(
            f"{of}: {_printable(host)} is not the IP address of a router",
            hint="write it in digits, as in 192.0.2.7 or 2001:db8::7",
        )
    return host


def check_risks(risks: tuple[str, ...], *, of: str) -> tuple[str, ...]:
    """Return the risks of a channel if they are well formed, few enough, and all different."""
    if len(risks) > RISKS_MAX:
        raise LayoutError(
            f"{of} has {len(risks)} risks, and {RISKS_MAX} are the most",
            hint="give one name to what always fails together",
        )
    for at, risk in enumerate(risks):
        check_word(risk, "risk")
        if risk in risks[:at]:
            raise LayoutError(f"{of} has risk {_printable(risk)} twice", hint="name it once")
    return risks


def check_name(name: str) -> str:
    """Return the name if it is legal: parts of letters, digits and `_ . - :`, and slashes.

    Letters may be of any script, with their combining marks, in Unicode's normal form NFC: two
    names that look alike as composed and as separate characters would otherwise be two names.
    """
    check_stored_name(name)
    if not _PLAIN.issuperset(name) and not _has_only_letters(name):
        raise _not_hierarchical(name)
    if not {".", ".."}.isdisjoint(name.split("/")):
        raise _not_hierarchical(name)
    return name


def check_pattern(pattern: str) -> str:
    """Return the pattern if each part is a name or a single `*`, or a last `**` for all below."""
    check_name(_without_stars(pattern))
    return pattern


def check_stored_name(name: str) -> str:
    """Return the name if an earlier release could have registered it.

    Journals and archives hold such names. They are read and shown; a new one must be legal by
    `check_name`.
    """
    parts = name.split("/")
    if (
        not all(parts)
        or len(parts) > NAME_PARTS_MAX
        or name.split() != [name]
        or not name.isprintable()
        or "*" in name
        or len(name.encode()) > NAME_BYTES_MAX  # Last: only printable text can be encoded.
    ):
        raise _not_hierarchical(name)
    return name


def check_stored_pattern(pattern: str) -> str:
    """Return the pattern if it could match a stored name; `check_pattern` is for new ones."""
    check_stored_name(_without_stars(pattern))
    return pattern


def is_legal(name: str) -> bool:
    """Return whether `check_name` accepts a name."""
    try:
        check_name(name)
    except LayoutError:
        return False
    return True


def _has_only_letters(name: str) -> bool:
    """Return whether all other characters are letters with a shape, and marks behind letters."""
    before = ""
    for each in name:
        kind = unicodedata.category(each)[0]
        is_mark_of_letter = kind == "M" and before in {"L", "M"}
        if each in INVISIBLE or not (each in _PLAIN or kind == "L" or is_mark_of_letter):
            return False
        before = kind
    return unicodedata.is_normalized("NFC", name)


def _without_stars(pattern: str) -> str:
    """Return a name of the pattern's form; raise if its stars are not whole parts."""
    parts = pattern.split("/")
    if "**" in parts[:-1] or any("*" in part and part not in {"*", "**"} for part in parts):
        raise LayoutError(
            f"pattern {_printable(pattern)} is not understood",
            hint="* stands for one whole part, ** at the end for everything below",
        )
    return "/".join("any" if "*" in part else part for part in parts)


def _not_hierarchical(name: str) -> LayoutError:
    return LayoutError(f"name {_printable(name)} is not hierarchical", hint=_HINT)


def _printable(name: str) -> str:
    return repr(name[:80])  # Without lone surrogates, which no terminal or message could take.


def is_pattern(name: str) -> bool:
    return "*" in name


def matches(pattern: str, name: str) -> bool:
    """Return whether a name matches the pattern."""
    wanted, given = pattern.split("/"), name.split("/")
    if wanted[-1] == "**":
        wanted.pop()
        if len(given) <= len(wanted):
            return False
        given = given[: len(wanted)]
    return len(wanted) == len(given) and all(
        part in {"*", found} for part, found in zip(wanted, given, strict=True)
    )
