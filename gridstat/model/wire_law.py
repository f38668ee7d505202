"""The law of bytes on the line: what a datagram takes of a channel's bandwidth.

IP counts a fragment's payload in units of eight bytes. Only fragments of IPv6 have a header of
their own for that; IPv4 has the fields in every header. The pacing in C is a faster copy
(`gs_wire_bytes` in `core/egress.c`).
"""

from __future__ import annotations

from typing import Final

UDP_BYTES: Final = 8
IPV4_BYTES: Final = 20
IPV6_BYTES: Final = 40
IPV6_FRAGMENT_BYTES: Final = 8
_FRAGMENT_UNIT_BYTES: Final = 8


def wire_bytes(datagram_bytes: int, mtu_bytes: int, *, is_ipv6: bool) -> int:
    """Return the bytes of a datagram with the headers of UDP and of all its IP fragments."""
    ip_payload_bytes = datagram_bytes + UDP_BYTES
    header_bytes = IPV6_BYTES if is_ipv6 else IPV4_BYTES
    if datagram_bytes <= mtu_bytes:
        return ip_payload_bytes + header_bytes
    if is_ipv6:
        header_bytes += IPV6_FRAGMENT_BYTES
    fragment_bytes = (mtu_bytes + UDP_BYTES) // _FRAGMENT_UNIT_BYTES * _FRAGMENT_UNIT_BYTES
    return ip_payload_bytes + -(-ip_payload_bytes // fragment_bytes) * header_bytes


def is_ipv6_address(host: str) -> bool:
    """Return whether an address in numbers is one of IPv6."""
    return ":" in host
