"""Rows into the core, all of them or, where it refuses some, all but those.

One row that the core cannot hold must not keep every other one of its table from being forwarded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from gridstat.model.errors import GridStatError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gridstat.core.rows import Row

REFUSALS_MAX: Final = 64
"""Refused commits after which what is left is refused together; nobody may keep a router busy."""


class RowCore(Protocol):
    """A core that takes a delta whole or, with an error, not at all."""

    def commit(self, upserts: Sequence[Row] = (), removals: Sequence[int] = ()) -> None: ...


def commit_most(
    core: RowCore, upserts: Sequence[Row], removals: Sequence[int]
) -> dict[int, GridStatError]:
    """Commit all but the rows that the core refuses; why, by variable. The core holds what it held
    of those before."""
    try:
        core.commit(upserts, removals)
    except GridStatError as error:
        if not upserts:
            raise
        last = error
    else:
        return {}
    if removals:  # They make room, and no row is at fault there.
        core.commit((), removals)
    refused: dict[int, GridStatError] = {}
    refusals = 0
    waiting: list[Sequence[Row]] = [upserts]
    while waiting:
        rows = waiting.pop()
        try:
            if refusals >= REFUSALS_MAX:
                raise last
            core.commit(rows, ())
        except GridStatError as error:
            last = error
            refusals += 1
            if len(rows) == 1 or refusals > REFUSALS_MAX:
                refused |= {row.variable_id: error for row in rows}
            else:
                waiting += [rows[len(rows) // 2 :], rows[: len(rows) // 2]]
    return refused
