"""Successive recorders of one log, killed and started again at instants that a seed chooses."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final, Self

from gridstat.record.log_reader import LogReader
from gridstat.record.record_kinds import EVENTS
from lab.errors import LabError
from lab.pipeline.killing import kill
from lab.pipeline.recorder import reported_records

if TYPE_CHECKING:
    import random
    from pathlib import Path

RUN_S_MAX: Final = 10.0
"""Longest run of a recorder; some are killed while they start."""
DOWN_S_MAX: Final = 1.5
START_S_MAX: Final = 60.0
POLL_S: Final = 0.05


class SuccessiveRecorders:
    """Recorders of one log, at most one at a time; a late call of `tend` lets one live longer."""

    def __init__(self, folder: Path, log: Path, chance: random.Random) -> None:
        self.kills = 0
        self.felt = 0
        """Kills of recorders that had recorded something."""
        self.complaints: list[str] = []
        self._log = log
        self._reported = folder / "recorder.reported"
        self._printed = folder / "recorder.log"
        self._chance = chance
        self._process: subprocess.Popen[bytes] | None = None
        self._due_s = 0.0
        self._reported_before = 0

    def __enter__(self) -> Self:
        """Start the first recorder and wait until it has recorded something."""
        self._start()
        deadline_s = time.monotonic() + START_S_MAX
        try:
            while not reported_records(self._reported):
                if time.monotonic() > deadline_s:
                    raise LabError(f"nothing is recorded: {self._last_output()}")
                self._check()
                time.sleep(POLL_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            kill(self._process)

    @property
    def recorded(self) -> int:
        return int(LogReader(self._log, EVENTS).ends()[1])

    def tend(self) -> None:
        """Kill the recorder, or start the next one, if that is due."""
        self._check()
        if time.monotonic() < self._due_s:
            return
        if self._process is None:
            self._start()
        else:
            self.end_one()

    def end_one(self) -> None:
        """Kill the recorder, if any, and check that the log has all records that it reported."""
        process, self._process = self._process, None
        self._due_s = time.monotonic() + self._chance.random() * DOWN_S_MAX
        if process is None:
            return
        kill(process)
        self.kills += 1
        reported, recorded = reported_records(self._reported), self.recorded
        self.felt += reported > self._reported_before
        if recorded < reported:
            self.complaints.append(
                f"a recorder reported {reported} records, the log has {recorded}"
            )
        self._reported_before = reported

    def _start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "lab.pipeline.recorder",
            str(self._log),
            str(self._reported),
        ]
        with self._printed.open("ab") as printed:
            self._process = subprocess.Popen(
                command, stdout=printed, stderr=printed, start_new_session=True
            )
        self._due_s = time.monotonic() + self._chance.random() * RUN_S_MAX

    def _check(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            raise LabError(f"a recorder ended by itself: {self._last_output()}")

    def _last_output(self) -> str:
        return self._printed.read_text(errors="replace")[-2_000:]
