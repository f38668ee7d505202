"""Which tests meet in one of the two workers of `make test`, and in which order they go.

All that start real processes meet in one, and all that share the Spark session; any others
meet by file.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from xdist.scheduler import LoadScopeScheduling

ONE_WORKER_ROOMS = ("cluster", "spark")
FIRST_ROOMS = ("cluster", "tidy", "spark")
"""Long rooms go first, so that both workers end together. Spark's classes are archived while
the tests of the source run."""


class ByRoom(LoadScopeScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def group(nodeid: str) -> str:
    room = _room(nodeid)
    return room if room in ONE_WORKER_ROOMS else _file(nodeid)


def turn(nodeid: str) -> int:
    room = _room(nodeid)
    return FIRST_ROOMS.index(room) if room in FIRST_ROOMS else len(FIRST_ROOMS)


def _room(nodeid: str) -> str:
    """The folder under `tests/`."""
    return PurePosixPath(_file(nodeid)).parts[1]


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]
