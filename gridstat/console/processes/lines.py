"""Protocol between `gridstat up` and its two simulation processes: one JSON object a line.

Down:  {"do": "report"} {"do": "pause"}
Up:    {"is": "ready"} {"is": "report", …} {"is": "paused", …} {"is": "failed", "message": …}
Daemons run with --json and say {"state": "ready", …} and {"state": "ended", …}.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

Line = dict[str, Any]
LINE_BYTES_MAX: Final = 4 * 1024 * 1024


def encoded(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def decoded(text: bytes) -> Line:
    """Line of a simulation process, or of a daemon, in the same form."""
    try:
        line = json.loads(text)
    except ValueError:
        return {"is": "said", "text": text.decode(errors="replace").rstrip()}
    if not isinstance(line, dict):
        return {"is": "said", "text": str(line)}
    return {"is": line.get("state", "said"), **line}
