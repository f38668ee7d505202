"""What an end-point reports of its paths: taken if it can be true, and added to what it said.

Paths that a contract has left are told seldom, so the last word on each is kept here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from gridstat.net.command.endpoint_messages import LEDGER_PATHS_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gridstat.net.command.endpoint_messages import LedgerEntry, PathEntry

COUNT_MAX: Final = 2**53
"""Above it neither JSON nor Prometheus tells a number from the next."""


def kept_ledger(told: LedgerEntry, before: LedgerEntry | None) -> LedgerEntry:
    """A ledger as it is kept: paths that cannot be true are left out, all of them."""
    if not told.paths:
        return told
    if not _is_plausible(told.paths):
        return msgspec.structs.replace(told, paths=())
    is_full = not all(path.is_open for path in told.paths)
    if is_full or before is None or not before.paths:
        return told
    return msgspec.structs.replace(told, paths=(*told.paths, *_left(told.paths, before.paths)))


def _left(told: Sequence[PathEntry], before: Sequence[PathEntry]) -> list[PathEntry]:
    """Those that are not told any more, as they were told last."""
    now = {_key(path) for path in told}
    left = [
        msgspec.structs.replace(path, is_open=False) for path in before if _key(path) not in now
    ]
    return left[: LEDGER_PATHS_MAX - len(told)]


def _is_plausible(paths: Sequence[PathEntry]) -> bool:
    is_distinct = len({_key(path) for path in paths}) == len(paths)
    return is_distinct and all(_adds_up(path) for path in paths)


def _adds_up(path: PathEntry) -> bool:
    parts = path.first, path.late or 0
    return (
        path.expected == path.delivered + path.lost
        and max(parts) <= path.delivered
        and max(path.expected, path.one_in) <= COUNT_MAX
    )


def _key(path: PathEntry) -> tuple[str, ...]:
    return path.routers or (path.name,)
