"""What `gridstat up` and its processes say to each other: one JSON object a line.

Down:  {"do": "begin", …} {"do": "connect", …} {"do": "publish"} {"do": "pause"} {"do": "report"}
Up:    {"is": "ready", …} {"is": "connected"} {"is": "publishing"} {"is": "paused"}
       {"is": "report", …} {"is": "failed", "message": …, "hint": …, "code": …}
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Line = dict[str, Any]
Address = tuple[str, int, int]
LINE_BYTES_MAX = 4 * 1024 * 1024


def encoded(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def decoded(text: bytes) -> Line:
    line = json.loads(text)
    assert isinstance(line, dict), "both ends are ours, and say objects only"
    return line


def addresses_of(line: Mapping[str, Any]) -> dict[str, Address]:
    """The addresses in a line, by name; JSON has lists where we have tuples."""
    found: Mapping[str, Any] = line.get("addresses", {})
    return {name: (host, data, urgent) for name, (host, data, urgent) in found.items()}


class LineBuffer:
    """Bytes in, whole lines out."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, received: bytes) -> Iterator[Line]:
        *whole, self._held = (self._held + received).split(b"\n")
        assert len(self._held) <= LINE_BYTES_MAX, "a line without an end"
        return (decoded(text) for text in whole if text)
