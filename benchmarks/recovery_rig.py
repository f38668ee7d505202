"""Cloud in namespaces that is to be harmed: grid, load, and times from the broker's log.

All processes share one machine, so the broker's log and the stamps of events use one clock.
"""

from __future__ import annotations

import re
import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from benchmarks.errors import BenchmarkError
from lab.grid import Grid
from lab.grid_plan import BROKER
from lab.load import GridLoad

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from lab.grid_plan import GridPlan
    from lab.load import LoadPlan

NS_PER_S: Final = 1_000_000_000
NS_PER_MS: Final = 1_000_000
START_S_MAX: Final = 180.0
WHOLE_S_MAX: Final = 90.0
EVENT_S_MAX: Final = 60.0
POLL_S: Final = 0.02
SETTLE_S: Final = 0.5
"""Time by which a subscriber's events are in its log."""

_LINE: Final = re.compile(r"(\S+) info \S+ (\w+) ?(.*)")
Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Mark:
    """A note in the broker's log.

    The log cuts its time to milliseconds; it counts as the last nanosecond of its own, so that
    nothing looks quicker than it was.
    """

    at_ns: int
    word: str
    facts: Mapping[str, str]

    def has(self, facts: Mapping[str, str]) -> bool:
        """Return whether the mark has these facts."""
        return facts.items() <= self.facts.items()


def marks_of(text: str) -> Iterator[Mark]:
    """Yield the notes among the lines of a daemon's log."""
    for line in text.splitlines():
        if found := _LINE.fullmatch(line):
            stamp, word, rest = found.groups()
            at_ms = round(datetime.fromisoformat(stamp).timestamp() * 1e3)
            facts = dict(part.split("=", 1) for part in rest.split() if "=" in part)
            yield Mark((at_ms + 1) * NS_PER_MS - 1, word, facts)


def survey_of(grid: Grid) -> Facts:
    """Return the broker's facts; wait for them while the broker is away or busy."""
    found: list[Facts] = []

    def complaint() -> str | None:
        facts = grid.survey()
        if "refused" in facts:
            return str(facts["refused"])
        found.append(facts)
        return None

    grid.wait_for(complaint, within_s=WHOLE_S_MAX)
    return found[0]


def complaint_of_contracts(survey: Facts) -> str | None:
    """Return None if each contract is on its wanted paths, and on no other."""
    unsettled = [
        f"contract {each['subscription_id']} is {each['state']}"
        for each in survey["subscriptions"]
        if each["state"] != "granted"
    ]
    return "; ".join(unsettled) or None


class RecoveryRig:
    """Grid and load that are whole from the start of the `with` block to its end."""

    def __init__(self, plan: GridPlan, load_plan: LoadPlan, folder: Path) -> None:
        self.grid = Grid(plan, folder)
        self._load_plan = load_plan
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.grid)
            self.grid.start(within_s=START_S_MAX)
            self.load = GridLoad(self.grid, self._load_plan)
            self.load.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *details: object) -> None:
        self._stack.__exit__(*details)  # type: ignore[arg-type]

    def full_name(self, name: str) -> str:
        return self.grid.plan.full_name(name)

    def await_whole(self) -> None:
        """Wait until the cloud is whole.

        Then every router is in step, every channel up, every stream flows, and no contract has an
        old path left.
        """
        self.await_none(
            lambda: (
                self.grid.complaint_of_state()
                or self.load.complaint()
                or complaint_of_contracts(self.survey())
            )
        )

    def await_none(self, complaint: Callable[[], str | None]) -> None:
        self.grid.wait_for(complaint, within_s=WHOLE_S_MAX)

    # Facts from the broker.

    def survey(self) -> Facts:
        return survey_of(self.grid)

    def mark(self, word: str, *, from_ns: int, **facts: str) -> Mark:
        """Return the first note of this kind since then; wait until the broker has written it."""
        found: list[Mark] = []

        def complaint() -> str | None:
            found.extend(
                mark
                for mark in marks_of(self.grid.daemons[BROKER].errors)
                if mark.word == word and mark.at_ns >= from_ns and mark.has(facts)
            )
            return None if found else f"the broker has not noted {word} {facts}"

        self.await_none(complaint)
        return found[0]

    def reports(self) -> list[Mark]:
        """Return the last report of each router to the broker's present process."""
        marks = marks_of(self.grid.daemons[BROKER].errors)
        last = {mark.facts["router"]: mark for mark in marks if mark.word == "router_reported"}
        return list(last.values())

    def subscriptions(self, subscriber: str) -> dict[str, Facts]:
        """Return a subscriber's contracts, by the names of their variables."""
        full_name = self.full_name(subscriber)
        return {
            str(each["name"]): each
            for each in self.survey()["subscriptions"]
            if each["subscriber"] == full_name
        }

    def variable_ids(self) -> dict[str, int]:
        return {
            str(each["name"]): int(each["variable_id"]) for each in self.survey()["publications"]
        }

    # Events at the subscribers.

    def first_events_ns(
        self, subscriber: str, variables: Iterable[int], *, created_from_ns: int
    ) -> list[int]:
        """Return the arrival of the first event of each variable created since; wait for them."""
        wanted = set(variables)
        found: dict[int, int] = {}
        deadline_s = time.monotonic() + EVENT_S_MAX
        while True:
            entries = self.load.delivered(subscriber)
            entries = entries[entries["created_ns"] >= created_from_ns]
            for variable in wanted - found.keys():
                at_ns = entries["at_ns"][entries["variable"] == variable]
                if at_ns.size:
                    found[variable] = int(np.min(at_ns))
            if wanted == found.keys():
                return list(found.values())
            if time.monotonic() > deadline_s:
                raise BenchmarkError(
                    f"{subscriber} got nothing new of {len(wanted - found.keys())} variables",
                    hint=f"look at the logs in {self.grid.files.root}, with --set folder=…",
                )
            time.sleep(POLL_S)

    def settle(self) -> None:
        time.sleep(SETTLE_S)
