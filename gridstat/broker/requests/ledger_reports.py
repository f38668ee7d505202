"""Ledgers that end-points report: checked for plausibility, and merged with the last report.

End-points rarely report paths that a contract has left, so the last report of each is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from gridstat.net.command.endpoint_messages import PATHS_TOLD_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gridstat.net.command.endpoint_messages import LedgerEntry, PathEntry

COUNT_MAX: Final = 2**53
"""Largest count that JSON and Prometheus represent exactly."""


def kept_ledger(reported: LedgerEntry, before: LedgerEntry | None) -> LedgerEntry:
    """Return the ledger to keep; one implausible path is enough to drop all paths."""
    if not reported.paths:
        return reported
    if not _is_plausible(reported.paths):
        return msgspec.structs.replace(reported, paths=())
    is_full = not all(path.is_open for path in reported.paths)
    if is_full or before is None or not before.paths:
        return reported
    return msgspec.structs.replace(
        reported, paths=(*reported.paths, *_left(reported.paths, before.paths))
    )


def _left(reported: Sequence[PathEntry], before: Sequence[PathEntry]) -> list[PathEntry]:
    """Return the paths that are no longer reported, with their last figures."""
    now = {_key(path) for path in reported}
    left = [
        msgspec.structs.replace(path, is_open=False) for path in before if _key(path) not in now
    ]
    return left[: PATHS_TOLD_MAX - len(reported)]


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
