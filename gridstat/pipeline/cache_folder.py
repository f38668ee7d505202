"""Cache folder of this user: scripts that run Java, archives of classes.

Programs are started from here, so no other user may write into it. A home that cannot be written to
(of a service, of a container) is replaced by a temporary folder.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME: Final = "gridstat"
_ONLY_MINE: Final = 0o700


def cache_folder(environment: Mapping[str, str]) -> Path:
    """The folder, made if need be; at worst a fresh one, which is lost with the machine's next."""
    places = [Path(tempfile.gettempdir()) / f"{_NAME}-{os.getuid()}"]
    if environment.get("HOME"):
        places.insert(0, Path(environment["HOME"]) / ".cache" / _NAME)
    if environment.get("XDG_CACHE_HOME"):
        places.insert(0, Path(environment["XDG_CACHE_HOME"]) / _NAME)
    for place in places:
        if _is_mine(place):
            return place
    return Path(tempfile.mkdtemp(prefix=f"{_NAME}-"))


def _is_mine(place: Path) -> bool:
    try:
        place.mkdir(mode=_ONLY_MINE, parents=True, exist_ok=True)
        found = place.lstat()
    except OSError:
        return False
    may_others_write = bool(found.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not may_others_write
    return is_own and os.access(place, os.W_OK | os.X_OK)
