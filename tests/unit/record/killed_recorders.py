"""Recorders that are killed at random instants, one after the other, in one folder.

    python -m tests.unit.record.killed_recorders FOLDER SEED LIVES

Each life is a process of its own. It dies by SIGKILL at one of its calls to the operating system,
chosen by lot, before or in the middle of it; a write is torn then. Half of them lose their power as
well: of what was not synced, only a part stays. What a life had reported as recorded is what it
owes. The last line says how many events that were, and how many lives were killed.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gridstat.record.archive_mark import note_archived
from gridstat.record.log_settings import LogSettings, RecorderSettings
from gridstat.record.record_kinds import EVENTS
from gridstat.record.recorder import Recorder
from tests.unit.record.samples import Clock, samples, variable

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS_MAX: Final = 120
ROUNDS: Final = 40
POWER_CUTS: Final = 0.5
RELEASES: Final = 0.1
CALLS: Final = ("open", "writev", "write", "fdatasync", "fsync", "ftruncate")
SETTINGS: Final = RecorderSettings(
    events=LogSettings(segment_bytes_max=30_000, log_bytes_max=10**9),
    side=LogSettings(segment_bytes_max=4_000, log_bytes_max=10**9),
)


class Fate:
    """Counter that lets so many calls pass, and then kills the process."""

    def __init__(self, folder: Path, lot: random.Random) -> None:
        self._folder = folder
        self._lot = lot
        self._left = lot.randrange(CALLS_MAX)
        self._synced = {path.stat().st_ino: path.stat().st_size for path in self._files()}

    def wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def fateful(*words: Any, **options: Any) -> Any:
            if self._left == 0:
                self._tear(call, *words)
                if self._lot.random() < POWER_CUTS:
                    self._cut_power()
                os.kill(os.getpid(), signal.SIGKILL)
            self._left -= 1
            done = call(*words, **options)
            if call.__name__ in ("fdatasync", "fsync"):
                found = os.fstat(words[0])
                self._synced[found.st_ino] = found.st_size
            return done

        return fateful

    def _files(self) -> list[Path]:
        return [path for path in self._folder.rglob("*") if path.is_file()]

    def _tear(self, call: Callable[..., Any], *words: Any) -> None:
        """A part of what was to be written gets there, at most."""
        if call.__name__ in ("writev", "write"):
            content = b"".join(words[1]) if call.__name__ == "writev" else bytes(words[1])
            _WRITE(words[0], content[: self._lot.randrange(len(content) + 1)])

    def _cut_power(self) -> None:
        for path in self._files():
            found = path.stat()
            synced = min(self._synced.get(found.st_ino, 0), found.st_size)
            os.truncate(path, self._lot.randrange(synced, found.st_size + 1))


_WRITE: Final = os.write


def live(folder: Path, lot: random.Random, report: int) -> None:
    """Record events that count on from what is recorded, and say how far that is."""
    clock = Clock()
    fate = Fate(folder, lot)
    for name in CALLS:
        setattr(os, name, fate.wrap(getattr(os, name)))
    recorder = Recorder(folder, now_ns=clock, settings=SETTINGS)
    next_word = recorder.figures().recorded
    _tell(report, next_word)
    for number in range(ROUNDS):
        every = lot.randrange(1, 4)
        recorder.begin(variable(), every, 1)
        for _ in range(lot.randrange(1, 4)):
            count = lot.randrange(1, 300)
            recorder.take(samples(next_word, count))
            next_word += count
        clock.ns += 1_000_000_000
        _tell(report, recorder.sync())
        if number % 10 == 9:
            recorder.rotate()
        if lot.random() < RELEASES:
            note_archived(folder, EVENTS, lot.randrange(recorder.figures().recorded + 1))
            recorder.tend()
    recorder.close()


def _tell(report: int, recorded: int) -> None:
    _WRITE(report, struct.pack("<q", recorded))


def outlive(folder: Path, lot: random.Random) -> tuple[int, bool]:
    """One life; how much it has reported as recorded, and whether it was killed.

    Raises if it ended in any other way than by its fate or in peace.
    """
    told, report = os.pipe()
    process_id = os.fork()
    if process_id == 0:
        end = 1
        try:
            live(folder, lot, report)
            end = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(end)
    os.close(report)
    with os.fdopen(told, "rb") as file:
        content = file.read()
    _, status = os.waitpid(process_id, 0)
    was_killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    if status and not was_killed:
        raise AssertionError(f"a life ended by itself, with status {status:#x}")
    words = struct.unpack(f"<{len(content) // 8}q", content)
    return words[-1] if words else 0, was_killed


def warm_up(folder: Path) -> None:
    """Let Arrow load everything of its first batch once, and not in every child process."""
    recorder = Recorder(folder, now_ns=Clock(), settings=SETTINGS)
    recorder.begin(variable(), 1, 1)
    recorder.take(samples(0, 10))
    recorder.close()
    Recorder(folder, now_ns=Clock(), settings=SETTINGS).close()


def main(folder: Path, seed: int, lives: int) -> tuple[int, int]:
    """Return the most records ever reported as recorded, and the number of kills."""
    warm_up(folder.with_name(f"{folder.name}-before"))
    recorded = killed = 0
    for number in range(lives):
        told, was_killed = outlive(folder, random.Random(f"{seed}/{number}"))
        recorded = max(recorded, told)
        killed += was_killed
    return recorded, killed


if __name__ == "__main__":
    found = main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    sys.stdout.write(f"{EVENTS.name} {found[0]} {found[1]}\n")
