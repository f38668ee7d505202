"""An archive of the classes that Spark loads at every start: made once, it halves the start.

`python -m gridstat.pipeline.class_archive` makes it, for this Java and this Spark, in the cache
folder. A process of its own runs a little of everything and writes what it has loaded as it ends,
so nobody who wants a session waits for it, and a session without an archive is only slower.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark

from gridstat.model.errors import ConfigurationError
from gridstat.pipeline.cache_folder import cache_folder
from gridstat.pipeline.java import java_home, java_version_text

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger(__name__)

MAKING_S_MAX: Final = 600.0
_OWN_ARCHIVE: Final = Path("lib/server/classes.jsa")
_QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr"
"""An archive that does not fit is passed over, with a warning among our own output if allowed."""


def archive_path(home: Path, cache: Path) -> Path:
    """Return the path of the archive for this Java and this Spark; it may not exist yet."""
    jars = Path(pyspark.__file__).parent / "jars"
    versions = f"{java_version_text(home)}|{pyspark.__version__}|{jars}|{jars.stat().st_mtime_ns}"
    return cache / f"classes-{hashlib.sha256(versions.encode()).hexdigest()[:16]}.jsa"


def archive_options(archive: Path) -> str:
    """Return the options that let Java start from the archive; empty if there is no archive."""
    if not archive.is_file():
        return ""
    return f"-XX:SharedArchiveFile={archive} -Xshare:auto {_QUIET}"


def make_archive(home: Path, cache: Path) -> Path:
    """Makes the archive unless it is there; of several processes that want it, one makes it."""
    if not (home / _OWN_ARCHIVE).is_file():
        raise _cannot("it has none of its own classes to begin with")
    archive = archive_path(home, cache)
    with _alone(cache):
        if archive.is_file():
            return archive
        with tempfile.TemporaryDirectory(dir=cache, prefix="making-") as folder:
            fresh = Path(folder) / archive.name
            _run_a_little_of_everything(home, Path(folder), fresh)
            fresh.replace(archive)
        for older in set(cache.glob("classes-*.jsa")) - {archive}:
            older.unlink()
    return archive


def _run_a_little_of_everything(home: Path, folder: Path, fresh: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gridstat.pipeline.class_loading", str(folder), str(fresh)],
        env={**os.environ, "JAVA_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=MAKING_S_MAX,
        check=False,
    )
    if not fresh.is_file():
        raise _cannot((done.stderr or done.stdout)[-300:].strip())


def _cannot(reason: str) -> ConfigurationError:
    return ConfigurationError(
        f"this Java makes no archive of classes: {reason}",
        hint="nothing is lost by it but some seconds at every start",
    )


@contextmanager
def _alone(cache: Path) -> Iterator[None]:
    lock = os.open(cache / "classes.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def main() -> None:
    """Makes the archive for the Java that a session would take."""
    cache = cache_folder(os.environ)
    sys.stdout.write(f"{make_archive(java_home(os.environ, cache), cache)}\n")


if __name__ == "__main__":
    main()
