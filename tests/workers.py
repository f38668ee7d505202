"""Groups of tests that share one worker of `make test`, and the order of their work.

Tests of real clouds mostly wait, so there are more workers than processors, and the clouds are
divided between two of them. All that share the Spark session run in one worker, and so do the
attacks, which share a grid; any other tests are divided by file.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from xdist.scheduler import LoadScopeScheduling

NAMESPACED = frozenset(
    {
        "lab_grid",
        "lab_namespaces",
        "lab_relay",
        "lab_trials",
        "many_clouds",
        "recovery",
        "rolling_upgrade",
    }
)
"""Folders of `tests/cluster` whose clouds run in network namespaces of their own.

No port of theirs can be taken by another cloud. All others find free ports of the loopback
interface and bind them seconds later, so only one worker may start those.
"""

FIRST_ROOMS = ("cluster", "tidy", "spark")
"""Long rooms go first, so that all workers end together. Spark's classes are archived while
the tests of the source run."""


class ByRoom(LoadScopeScheduling):  # type: ignore[misc]
    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def group(nodeid: str) -> str:
    room, folder = _folders(nodeid)
    if room == "cluster":
        return "cluster in namespaces" if folder in NAMESPACED else "cluster on loopback"
    return room if room in {"attacks", "spark"} else _file(nodeid)


def turn(nodeid: str) -> int:
    room, _ = _folders(nodeid)
    return FIRST_ROOMS.index(room) if room in FIRST_ROOMS else len(FIRST_ROOMS)


def _folders(nodeid: str) -> tuple[str, str]:
    """The folder under `tests/`, and the folder or file that comes next."""
    _, room, folder, *_ = PurePosixPath(_file(nodeid)).parts
    return room, folder


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]
