"""Security of a channel: sealed hop by hop, or plain; and the datagram version that follows.

Both ends of a channel are ordered the same security, and nothing is negotiated down: a channel that
is to be sealed stays closed while one of its ends cannot seal.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from gridstat.model.errors import LayoutError

Security: TypeAlias = Literal["hop", "none"]
HOP: Final = "hop"
NONE: Final = "none"
SECURITIES: Final = (HOP, NONE)
SEALED_VERSION: Final = 3
"""Version of sealed datagrams; versions below are plain."""
TAG_BYTES: Final = 16
"""Bytes that sealing adds to each datagram."""


def check_security(security: object, *, of: str) -> Security:
    """Return the security if there is such a one; raise `LayoutError` otherwise."""
    if security == HOP:
        return HOP
    if security == NONE:
        return NONE
    raise LayoutError(
        f"{of}: security {str(security)[:40]!r} is not known",
        hint='write "hop" (sealed, the default) or "none" (plain)',
    )


def agreed_version(security: str, some: tuple[int, ...], others: tuple[int, ...]) -> int:
    """Return the version of datagrams on a channel between two ends, or 0 if they share none."""
    common = set(some) & set(others)
    if security == HOP:
        return SEALED_VERSION if SEALED_VERSION in common else 0
    return max((version for version in common if version < SEALED_VERSION), default=0)


def unsealed_reason(label: str, ends: dict[str, tuple[int, ...]]) -> str:
    """Return why a channel that is to be sealed stays closed: the versions of its ends by name."""
    old = [name for name, versions in ends.items() if SEALED_VERSION not in versions]
    return (
        f"channel {label} is to be sealed, and {' and '.join(old)} cannot seal datagrams: upgrade "
        f'it, or mark the channel security = "none"'
    )
