"""A small cloud in namespaces with two ways between its edges, and an end-point at each of them.

north/pmu ── e0 ─┬─ i0 ─┬─ e1 ── centre/view
                 └─ i1 ─┘
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

from lab.grid import Grid
from lab.grid_plan import BROKER, EndPointPlan, GridPlan, LinkPlan, RouterPlan
from lab.netns import cut_egress, heal_egress
from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from pathlib import Path

PMU, VIEW = "north/pmu", "centre/view"
PLAN = GridPlan(
    routers=(
        RouterPlan("e0", is_edge=True),
        RouterPlan("e1", is_edge=True),
        RouterPlan("i0"),
        RouterPlan("i1"),
    ),
    links=(
        LinkPlan("e0", "i0"),
        LinkPlan("i0", "e1"),
        LinkPlan("e0", "i1"),
        LinkPlan("i1", "e1"),
    ),
    end_points=(EndPointPlan(PMU, ("e0",)), EndPointPlan(VIEW, ("e1",))),
)
ENDING_S_MAX = 20.0
SILENT_MS_MAX = 500
"""Limit for a busy machine, where a router may be silent for the usual 100 ms, and contracts would
move that must stay.
"""
Facts = dict[str, Any]


class EndPointProcess:
    """Process of a remote end-point, until `kill` or `close`."""

    def __init__(self, grid: Grid, name: str) -> None:
        folder = grid.files.folder(name)
        self._log = folder / "log"
        arguments = [
            "-m",
            "tests.cluster.recovery.remote_end_point",
            str(folder),
            grid.plan.full_name(name),
        ]
        with self._log.open("wb") as log:
            self._process = grid.namespaces[name].start(
                [sys.executable, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self.answer()

    def order(self, do: str, **words: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **words}).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self) -> Facts:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the end-point has ended: {self.log[-1_000:]}"
        answer: Facts = json.loads(line)
        return answer

    def tell(self, do: str, **words: Any) -> Facts:
        """Send a command and wait until it is done; a refusal fails the test."""
        self.order(do, **words)
        answer = self.answer()
        assert "refused" not in answer, answer
        return answer

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    @property
    def codes(self) -> list[int]:
        """Return the code of each answer to an attachment."""
        return [int(line.rpartition("=")[2]) for line in self.log.splitlines() if "code=" in line]

    def subscribed(self, name: str) -> Facts:
        facts: Facts = self.tell("facts")["subscribed"][name]
        return facts

    def complaint_until_new(self, name: str, *, since_ns: int) -> str | None:
        """Return a complaint for `eventually` while no event of a variable is younger than that."""
        newest_ns = self.subscribed(name)["created_ns"]
        return None if newest_ns > since_ns else f"nothing new of {name} has come"

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the process by SIGKILL, so that it cannot send anything more."""
        self._process.kill()
        self.close()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait(ENDING_S_MAX)
        self._process.stdin.close()
        self._process.stdout.close()


class Square:
    """Cloud that runs while the `with` block lasts; tests break and repair it."""

    def __init__(self, folder: Path) -> None:
        self.grid = Grid(PLAN, folder, timing={"silent_ms_max": SILENT_MS_MAX})
        self._ends: dict[str, EndPointProcess] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.grid)
            stack.callback(self._close_ends)
            self.grid.start()
            for name in (PMU, VIEW):
                self.start_end(name)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *details: object) -> None:
        self._stack.__exit__(*details)  # type: ignore[arg-type]

    @property
    def pmu(self) -> EndPointProcess:
        return self._ends[PMU]

    @property
    def view(self) -> EndPointProcess:
        return self._ends[VIEW]

    def start_end(self, name: str) -> EndPointProcess:
        """A new process of an end-point, whose last one is dead."""
        self._ends[name] = EndPointProcess(self.grid, name)
        return self._ends[name]

    def stream(self, quantity: str, **wishes: Any) -> str:
        """A variable of the pmu at 60 events a second, to which the view has subscribed."""
        name: str = self.pmu.tell("publish", name=quantity)["name"]

        def refusal() -> str | None:
            """Subscribe and return the refusal; a channel may be silent on a busy machine."""
            self.view.order("subscribe", name=name, **wishes)
            refused: str | None = self.view.answer().get("refused")
            return refused

        eventually(refusal)
        self.await_event(name)
        return name

    def await_event(self, name: str) -> None:
        """Wait until an event that is sent from now on arrives."""
        since_ns = self.view.subscribed(name)["created_ns"]
        eventually(lambda: self.view.complaint_until_new(name, since_ns=since_ns))

    def await_whole(self) -> None:
        eventually(self.grid.complaint_of_state)

    # What the broker knows.

    def router(self, name: str) -> Facts:
        full_name = PLAN.full_name(name)
        found: Facts = next(
            each for each in self.grid.survey()["routers"] if each["name"] == full_name
        )
        return found

    def down(self) -> set[str]:
        """The channels that are down, such as `e0→i0`."""
        return {
            channel["label"].replace(f"{PLAN.cloud}/", "")
            for channel in self.grid.survey()["channels"]
            if not channel["is_up"]
        }

    def paths(self, name: str) -> list[list[str]]:
        """Return the routers, by short names, of each path of the view's contract."""
        view = PLAN.full_name(VIEW)
        (found,) = [
            each
            for each in self.grid.survey()["subscriptions"]
            if (each["name"], each["subscriber"]) == (name, view)
        ]
        return [[router.partition("/")[2] for router in path] for path in found["paths"]]

    def channels(self, name: str) -> list[str]:
        """The channels of the first path, such as `e0→i0`."""
        return [f"{near}→{far}" for near, far in pairwise(self.paths(name)[0])]

    @property
    def broker_log(self) -> str:
        return self.grid.daemons[BROKER].errors

    # Management.

    def cut_broker_from(self, router: str) -> None:
        """The link between the broker and one router, both ways; no event goes over it."""
        for near, far in ((BROKER, router), (router, BROKER)):
            cut_egress(self.grid.namespaces[near], far)

    def heal_broker_to(self, router: str) -> None:
        for near, far in ((BROKER, router), (router, BROKER)):
            heal_egress(self.grid.namespaces[near], far)

    def _close_ends(self) -> None:
        for end in self._ends.values():
            end.close()


def becomes(question: Callable[[], object], expected: object) -> None:
    """Waits until the question is answered as expected."""

    def complaint() -> str | None:
        found = question()
        return None if found == expected else f"{found}, not {expected}"

    eventually(complaint)
