"""Paths in a pipeline's folder: the log, the tables, the checkpoints."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gridstat.model.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class PipelineFolder:
    """One folder holds all that a pipeline keeps; the log may lie elsewhere."""

    path: Path
    elsewhere: Path | None = None
    """The recorder's folder, if it is not `log` in here."""

    @property
    def log(self) -> Path:
        return self.path / "log" if self.elsewhere is None else self.elsewhere

    @property
    def tables(self) -> Path:
        return self.path / "tables"

    @property
    def aside(self) -> Path:
        """Folder of files that tasks have written and that are not in a table yet."""
        return self.path / "aside"

    def checkpoint(self, job: str) -> Path:
        return self.path / "checkpoints" / job

    @contextmanager
    def lock(self, job: str) -> Iterator[None]:
        """Keeps a second driver of the same job away."""
        place = self.path / "checkpoints"
        try:
            place.mkdir(parents=True, exist_ok=True)
            lock = os.open(place / f"{job}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageFailed(
                f"{place}: {error.strerror}", hint="make room, or give the pipeline another folder"
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise StorageFailed(
                f"another pipeline runs {job} in {self.path}", hint="stop it first"
            ) from error
        try:
            yield
        finally:
            os.close(lock)

    def is_running(self, job: str) -> bool:
        """Return whether a driver of the job is alive, whatever its last progress says."""
        try:
            lock = os.open(self.path / "checkpoints" / f"{job}.lock", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False
