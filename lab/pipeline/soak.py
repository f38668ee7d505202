"""`python -m lab.pipeline.soak`: kills of drivers and of recorders; `make soak-pipeline`.

A recorder records, a driver ingests, finds alarms and hands them on, and both are killed again and
again at instants that a seed chooses. A second pipeline, which nobody kills, reads the same log. In
the end their tables must be the same, with every record in them once and every alarm, too, and all
of these alarms, and no others, must have been handed on. Ends with 1 if not.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gridstat.model.errors import GridStatError
from gridstat.pipeline.alarm_rules import load_rules
from gridstat.pipeline.jobs.compact import CompactSettings, compact, releasable
from gridstat.pipeline.pipeline_folder import PipelineFolder
from gridstat.pipeline.schemas import ALARMS, EVENTS, QUARANTINE
from gridstat.record.archive_mark import note_archived
from gridstat.record.record_kinds import EVENTS as RECORDED
from lab.errors import LabError
from lab.pipeline import handed_on, same
from lab.pipeline.driver import MORE
from lab.pipeline.killing import commits, driver, finish, last_output, taken
from lab.pipeline.successive_recorders import SuccessiveRecorders

if TYPE_CHECKING:
    from collections.abc import Iterator
    from subprocess import Popen

FOLDER: Final = Path("build/lab/pipeline-soak")
RULES: Final = Path(__file__).with_name("soak_rules.toml")
KILLS: Final = 200
ROWS_PER_BATCH: Final = 4_000
ROWS_AT_ONCE: Final = 200_000
"""Rows of a batch of drivers that are not killed."""
COMPACT_EVERY: Final = 25
"""Kills between compactions; in a short soak, half of all kills."""
START_S_MAX: Final = 120.0
EARLY_SHARE: Final = 0.2
"""Share of drivers that are killed while they start."""
EARLY_S_MAX: Final = 10.0
LATER_S_MAX: Final = 5.0
"""Longest time from a driver's first commit to its kill."""
POLL_S: Final = 0.05
ENDED_BY_HAND: Final = 130


def main(argv: list[str] | None = None) -> int:
    asked = _parser().parse_args(argv)
    seed = random.SystemRandom().randrange(2**32) if asked.seed is None else asked.seed
    for number in (signal.SIGINT, signal.SIGTERM):  # An interrupted soak cleans up.
        signal.signal(number, signal.default_int_handler)
    tell(f"seed {seed}, {asked.kills} kills of drivers and of recorders, files in {asked.folder}")
    began_s = time.monotonic()
    try:
        found = Soak(asked.folder.absolute(), asked.kills, random.Random(seed)).run()
    except (LabError, GridStatError) as error:
        found = [str(error)]
    except KeyboardInterrupt:
        tell(f"ended by hand after {time.monotonic() - began_s:.0f} s: seed {seed}")
        return ENDED_BY_HAND
    for complaint in found:
        tell(complaint)
    state = "FAILED" if found else "passed"
    tell(f"{state}: seed {seed}, {asked.kills} kills, {time.monotonic() - began_s:.0f} s")
    return 1 if found else 0


@dataclass(slots=True)
class Kills:
    """Kills of drivers; `in_work` counts drivers that had ingested something."""

    wanted: int
    done: int = 0
    in_work: int = 0


class Soak:
    """Two pipelines of one log in a folder: one is killed, the other continues undisturbed."""

    def __init__(self, folder: Path, kills: int, chance: random.Random) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        self._killed = PipelineFolder(folder / "killed", folder / "log")
        self._undisturbed = PipelineFolder(folder / "undisturbed", folder / "log")
        for each in (self._killed, self._undisturbed):
            each.path.mkdir(parents=True)
        self._chance = chance
        self._kills = Kills(kills)
        self._compact_every = max(1, min(COMPACT_EVERY, kills // 2))
        # A separate seed, since the number of checks on a recorder depends on time.
        self._recorders = SuccessiveRecorders(
            folder, folder / "log", random.Random(chance.random())
        )
        self._began_s = time.monotonic()

    def run(self) -> list[str]:
        """Run all kills; return the complaints about the result, none if it is correct."""
        kills = self._kills
        with self._recorders as recorders:
            while kills.done < kills.wanted:
                kills.in_work += self._trial()
                kills.done += 1
                if kills.done % self._compact_every == 0:
                    self._compact()
                self._tell_progress()
            while recorders.kills < kills.wanted:
                recorders.tend()
                time.sleep(POLL_S)
            recorders.end_one()
        tell("the last drivers bring in the rest")
        for each in (self._killed, self._undisturbed):
            finish(each, ROWS_AT_ONCE, rules=RULES)
        self._tell_figures()
        return [*recorders.complaints, *self._complaints()]

    def _trial(self) -> bool:
        """Start a driver and kill it; return whether it had ingested something."""
        folder, chance = self._killed, self._chance
        before = taken(folder)
        (folder.path / MORE).touch()
        is_early, early_s = chance.random() < EARLY_SHARE, chance.random() * EARLY_S_MAX
        later_s = chance.random() * LATER_S_MAX
        with driver(folder, ROWS_PER_BATCH, rules=RULES) as process:
            if is_early:
                self._live(process, early_s)
            else:
                self._await_commit(process)
                self._live(process, later_s)
        return taken(folder) > before

    def _await_commit(self, process: Popen[bytes]) -> None:
        seen, before = commits(self._killed), taken(self._killed)
        deadline_s = time.monotonic() + START_S_MAX
        while commits(self._killed) == seen or taken(self._killed) <= before:
            if time.monotonic() > deadline_s:
                raise LabError(f"a driver brought nothing in: {last_output(self._killed)}")
            self._live(process, POLL_S)

    def _live(self, process: Popen[bytes], seconds: float) -> None:
        """Wait while recorders are killed and started again."""
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0:
            self._recorders.tend()
            if process.poll() is not None:
                raise LabError(f"a driver ended by itself: {last_output(self._killed)}")
            time.sleep(min(left_s, POLL_S))

    def _compact(self) -> None:
        """Compact the tables, and let the recorder release the records that no pipeline needs."""
        finish(self._undisturbed, ROWS_AT_ONCE, rules=RULES, is_once=True)
        unneeded = []
        for each in (self._killed, self._undisturbed):
            compact(each, CompactSettings(releases_log=False))
            unneeded.append(releasable(each))
        note_archived(self._killed.log, RECORDED, min(unneeded))

    def _complaints(self) -> Iterator[str]:
        one, other = self._killed, self._undisturbed
        yield from same.complaints(one, other)
        yield from same.unlawful(same.rows_of(one, EVENTS), same.rows_of(one, QUARANTINE))
        for each in (one, other):
            yield from handed_on.complaints(each.path, same.rows_of(each, ALARMS))
        if again := handed_on.handed_again(other.path):
            yield f"undisturbed, and yet {again} alarms were handed on again"
        raised = set(same.rows_of(one, ALARMS).column("rule").to_pylist())
        for rule in load_rules(RULES):
            if rule.name not in raised:
                yield f"no alarm of the rule {rule.name}, so nothing is shown of it"
        if self._kills.wanted and not self._kills.in_work:
            yield "no driver was killed at work"

    def _tell_progress(self) -> None:
        kills, recorders = self._kills, self._recorders
        took_s = time.monotonic() - self._began_s
        left_min = took_s / kills.done * (kills.wanted - kills.done) / 60
        tell(
            f"{kills.done}/{kills.wanted} drivers killed, {kills.in_work} in work; "
            f"{recorders.kills} recorders, {recorders.felt} in work; "
            f"{recorders.recorded} recorded, {taken(self._killed)} taken; {left_min:.0f} min left"
        )

    def _tell_figures(self) -> None:
        kills, recorders, one = self._kills, self._recorders, self._killed
        alarms = same.rows_of(one, ALARMS).num_rows
        tell(
            f"{kills.done} drivers killed, {kills.in_work} in work; "
            f"{recorders.kills} recorders, {recorders.felt} in work; "
            f"{recorders.recorded} recorded; {alarms} alarms, "
            f"handed on again {handed_on.handed_again(one.path)} times"
        )


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.pipeline.soak", description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS, help="of drivers, and of recorders")
    parser.add_argument("--seed", type=int, help="of an earlier run; else a new one")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for files and logs")
    return parser


if __name__ == "__main__":
    sys.exit(main())
