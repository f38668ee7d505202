"""A load on a grid: publishers and subscribers in their namespaces, and their logs joined.

Every end-point of the plan that begins with `north/` publishes, every other one subscribes to all
of it; the programs are in `load_programs.py`.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from lab.ledger import Entries, LogTail, Verdict, Window, judge
from lab.load_programs import LOOK_BACK_S, Status, Task

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gridstat.model.channel_security import Security
    from lab.daemon import Daemon
    from lab.grid import Grid

PUBLISHERS: Final = "north/"
NS_PER_S: Final = 1_000_000_000
STATUS_AGE_NS_MAX: Final = NS_PER_S
VARIABLES_MAX: Final = 1_000
"""Variables of one publisher; a number in the logs is publisher * VARIABLES_MAX + variable."""


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Amount and quality of the load; every subscriber subscribes to every variable.

    `redundancy_of` names the subscribers that ask for another redundancy than the others; the
    end-points in `idle` have no program. With `counts_unsent` an event that no edge took is lost;
    with `keep` the cloud keeps what an end-point has when its program ends.
    """

    variables: int = 4
    rate: int = 60
    redundancy: int = 2
    latency_ms: float = 2_000.0
    redundancy_of: Mapping[str, int] = field(default_factory=dict)
    idle: tuple[str, ...] = ()
    counts_unsent: bool = False
    keep: bool = False

    def redundancy_for(self, subscriber: str) -> int:
        return self.redundancy_of.get(subscriber, self.redundancy)


class GridLoad:
    """Load that runs from `start` to the end of the grid; its logs are judged window by window."""

    def __init__(self, grid: Grid, plan: LoadPlan | None = None) -> None:
        self._grid = grid
        self._plan = plan or LoadPlan()
        points = [point.name for point in grid.plan.end_points]
        names = [name for name in points if name not in self._plan.idle]
        self._publishers = [name for name in names if name.startswith(PUBLISHERS)]
        self._subscribers = [name for name in names if not name.startswith(PUBLISHERS)]
        self._sent = [LogTail(self._log(name)) for name in self._publishers]
        self._got = {name: LogTail(self._log(name)) for name in self._subscribers}

    def start(self) -> None:
        """Start publishers, then subscribers; return when every subscription gets all copies."""
        for names, verb in ((self._publishers, "publish"), (self._subscribers, "subscribe")):
            programs = [self._program(name, verb) for name in names]
            for program in programs:
                program.start()
            for program in programs:
                program.wait_ready()
        self._grid.wait_for(self.complaint)

    def begin(self, name: str, *, security: Security | None = None) -> None:
        """Start the program of one end-point, in the place of one that has ended; return when it
        publishes or has subscribed. Its log goes on. The security is the plan's unless given."""
        verb = "publish" if name.startswith(PUBLISHERS) else "subscribe"
        if verb == "subscribe" and name not in self._got:
            self._subscribers.append(name)
            self._got[name] = LogTail(self._log(name))
        program = self._program(name, verb, security=security, is_new=False)
        program.start()
        program.wait_ready()

    def end(self, name: str) -> None:
        """End the program of one end-point; nobody waits for its status."""
        assert self._grid.daemons[name].stop() == 0, self._grid.daemons[name].errors
        self._status(name).unlink(missing_ok=True)

    def complaint(self, *, of: Sequence[str] = ()) -> str | None:
        """Return None if enough copies of every variable came over every way lately;
        `of` names subscribers, all of them if it is empty."""
        copies_min = int(self._plan.rate * LOOK_BACK_S / 2)
        for name in of or self._subscribers:
            path = self._status(name)
            if not path.exists():
                return f"{name} has written no status yet"
            status = msgspec.json.decode(path.read_bytes(), type=Status)
            if time.time_ns() - status.at_ns > STATUS_AGE_NS_MAX:
                return f"{name} has written no status for a second"
            for variable, copies in status.copies.items():
                ways = sum(count >= copies_min for count in copies)
                if ways < self._plan.redundancy_for(name):
                    return f"{name} gets {variable} over {ways} ways: {copies}"
        return None

    def judge(self, window: Window) -> Verdict:
        """Judge all subscribers together."""
        return sum((self.judge_one(name, window) for name in self._subscribers), Verdict())

    def judge_together(self, window: Window) -> Verdict:
        """Judge what all subscribers have received as if one had, once each: nothing is lost if
        one of them has it."""
        published = _joined([tail.entries() for tail in self._sent])
        delivered = _joined([self.delivered(name) for name in self._subscribers])
        _, at = np.unique(delivered[["created_ns", "variable", "value"]], return_index=True)
        return judge(published, delivered[at], window)

    def judge_one(self, subscriber: str, window: Window) -> Verdict:
        published = _joined([tail.entries() for tail in self._sent])
        latency_ns_max = round(self._plan.latency_ms * 1e6)
        return judge(published, self.delivered(subscriber), window, latency_ns_max=latency_ns_max)

    def delivered(self, subscriber: str) -> Entries:
        """Return the logged entries of a subscriber that are not dropped yet."""
        return self._got[subscriber].entries()

    def forget_before(self, created_ns: int) -> None:
        for tail in (*self._sent, *self._got.values()):
            tail.forget_before(created_ns)

    def variables_of(self, publisher: str) -> dict[str, int]:
        """Return the full names of a publisher's variables with their numbers in the logs."""
        first = self._publishers.index(publisher) * VARIABLES_MAX
        full_name = self._grid.plan.full_name(publisher)
        return {f"{full_name}/v{at}": first + at for at in range(self._plan.variables)}

    def _program(
        self, name: str, verb: str, *, security: Security | None = None, is_new: bool = True
    ) -> Daemon:
        everything = {
            variable: number
            for publisher in self._publishers
            for variable, number in self.variables_of(publisher).items()
        }
        folder = self._grid.files.folder(name)
        task = Task(
            end_point=self._grid.plan.full_name(name),
            folder=str(folder),
            log=str(self._log(name)),
            variables=self.variables_of(name) if verb == "publish" else everything,
            rate=self._plan.rate,
            redundancy=self._plan.redundancy_for(name),
            latency_ms=self._plan.latency_ms,
            status=str(self._status(name)),
            security=security or self._grid.plan.security,
            keep=self._plan.keep,
            logs_unsent=self._plan.counts_unsent,
        )
        path = folder / "task.json"
        path.write_bytes(msgspec.json.encode(task))
        if is_new:
            self._log(name).unlink(missing_ok=True)
        self._status(name).unlink(missing_ok=True)
        return self._grid.program(
            name, [sys.executable, "-m", "lab.load_programs", verb, str(path)]
        )

    def _log(self, name: str) -> Path:
        return self._grid.files.folder(name) / "events.log"

    def _status(self, name: str) -> Path:
        return self._grid.files.folder(name) / "status.json"


def _joined(parts: list[Entries]) -> Entries:
    return np.concatenate(parts)
