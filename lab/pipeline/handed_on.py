"""Alarms that a driver has handed on: a file with a line for each alarm, in place of a grid.

A line holds all fields of an alarm, including its identity, and is on the disk before the driver
continues. A driver that is killed meanwhile leaves a torn line, which no reader counts.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

FILE: Final = "handed-on"
IDENTITY: Final = ("rule", "variable", "onset_ns", "sequence")
CONTENT: Final = ("kind", "stream", "value", "limit", "severity", "text")


class HandedOn:
    """File of handed-on alarms; a follower of alarms calls `publish`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    def publish(self, alarms: pa.Table) -> None:
        with self._path.open("ab") as file:
            # A line begins with the end of the line before, which may be torn.
            file.write("".join(f"\n{line}" for line in lines_of(alarms)).encode())
            file.flush()
            os.fsync(file.fileno())


def lines_of(alarms: pa.Table) -> list[str]:
    """Return a line for each alarm; equal alarms have equal lines."""
    rows = alarms.select([*IDENTITY, *CONTENT]).to_pylist()
    return [json.dumps(list(row.values())) for row in rows]


def handed_on(folder: Path) -> list[str]:
    """Return the whole lines, in the order in which they were handed on."""
    path = folder / FILE
    lines = path.read_text().split("\n") if path.exists() else []
    return [line for line in lines if _is_whole(line)]


def handed_again(folder: Path) -> int:
    """Return how often an alarm was handed on again."""
    lines = handed_on(folder)
    return len(lines) - len(set(lines))


def complaints(folder: Path, alarms: pa.Table) -> Iterator[str]:
    """Yield the differences between the handed-on alarms and those of the table."""
    kept, lines = lines_of(alarms), set(handed_on(folder))
    for name, found in (("in the table", kept), ("handed on", lines)):
        often = Counter(_identity(line) for line in found)
        twice = [identity for identity, count in often.items() if count > 1]
        if twice:
            yield f"{folder}: {len(twice)} alarms twice {name}, such as {twice[0]}"
    if missed := sorted(set(kept) - lines):
        yield f"{folder}: {len(missed)} alarms never handed on, such as {missed[0]}"
    if made_up := sorted(lines - set(kept)):
        yield f"{folder}: {len(made_up)} handed on and not kept, such as {made_up[0]}"


def _is_whole(line: str) -> bool:
    try:
        return isinstance(json.loads(line), list)
    except ValueError:
        return False


def _identity(line: str) -> tuple[object, ...]:
    return tuple(json.loads(line)[: len(IDENTITY)])
