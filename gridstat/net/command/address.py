"""Address of a command server in text form: `host:port`, `[::1]:port`."""

from __future__ import annotations

from typing import Final, TypeAlias

from gridstat.model.errors import LayoutError

Address: TypeAlias = tuple[str, int]
PORT_MAX: Final = 65_535
PORT_DIGITS_MAX: Final = len(str(PORT_MAX))


def address_text(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(text: str) -> Address:
    """Return the address in a text; raise `LayoutError` with the right form."""
    host, colon, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not host or (":" in host and not is_bracketed):
        raise LayoutError(f"{text!r} is no address", hint="write host:port, or [address]:port")
    is_number = port.isascii() and port.isdigit() and len(port) <= PORT_DIGITS_MAX
    if not (is_number and 0 < int(port) <= PORT_MAX):
        raise LayoutError(f"{text!r} names no port", hint=f"a port is 1 to {PORT_MAX}")
    try:
        host.encode("idna")  # The name look-up encodes it alike.
    except UnicodeError as problem:
        hint = "the parts of a host's name have 1 to 63 characters"
        raise LayoutError(f"{text!r} names no host", hint=hint) from problem
    return host.strip("[]"), int(port)
