"""A tree of clouds in real processes, each in its own namespace, with methods that harm them.

`with TreeGrid(plan, end_points, folder) as grid: grid.start()` gives brokers that have joined and
routers that are in step. Brokers are called `broker/name`, routers and end-points by full names.
"""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from lab.daemon import Daemon
from lab.errors import LabError
from lab.grid_files import OPERATOR
from lab.ledger import LogTail
from lab.load_programs import Task
from lab.netns import Network, cut_egress, heal_egress
from lab.observer import Observer
from lab.tree_files import TreeFiles
from lab.tree_plan import cloud_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lab.netns import Namespace
    from lab.tree_plan import TreePlan

GRIDSTAT: Final = Path(sys.executable).with_name("gridstat")
POLL_S: Final = 0.05


class TreeGrid:
    """Owner of the network, the files and every process while the `with` block lasts."""

    def __init__(
        self, plan: TreePlan, end_points: Mapping[str, tuple[str, ...]], folder: Path
    ) -> None:
        self.plan = plan
        self.daemons: dict[str, Daemon] = {}
        self.namespaces: dict[str, Namespace] = {}
        self._end_points = end_points
        self._folder = folder
        self._stack = contextlib.ExitStack()
        self._observer: Observer | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._lay_out(stack.enter_context(Network()))
            hosts = {name: namespace.host for name, namespace in self.namespaces.items()}
            self.files = TreeFiles(self._folder, self.plan, self._end_points, hosts)
            self.files.write()
            for name in self.plan.brokers:
                self._add(f"broker/{name}", "broker", self.files.broker_file(name), stack)
            for name in self.routers:
                self._add(name, "router", self.files.router_file(name), stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *details: object) -> None:
        self._stack.__exit__(*details)  # type: ignore[arg-type]

    @property
    def routers(self) -> list[str]:
        return [router.name for cloud in self.plan.clouds.values() for router in cloud.routers]

    def start(self, *, within_s: float = 90.0) -> None:
        """Start the brokers, then the routers; return when the whole tree is good."""
        for names in ([f"broker/{name}" for name in self.plan.brokers], self.routers):
            for name in names:
                self.daemons[name].start()
            for name in names:
                self.daemons[name].wait_ready(within_s=within_s)
        self.wait_for(self.complaint_of_state, within_s=within_s)

    def restart(self, name: str) -> None:
        """Start a killed daemon again; return when the tree is whole."""
        self.daemons[name].start()
        self.daemons[name].wait_ready()
        self.wait_for(self.complaint_of_state)

    def cut(self, near: str, far: str) -> None:
        """Drop all frames between two routers, both ways."""
        cut_egress(self.namespaces[near], far)
        cut_egress(self.namespaces[far], near)

    def heal(self, near: str, far: str) -> None:
        heal_egress(self.namespaces[near], far)
        heal_egress(self.namespaces[far], near)

    # Surveys.

    def gridstat(self, *arguments: str) -> str:
        """Run a `gridstat` command of the operator and return its output."""
        folder = ("--folder", self.files.folder(OPERATOR))
        return self.namespaces[OPERATOR].run(GRIDSTAT, *arguments, *folder)

    def survey(self, broker: str) -> dict[str, Any]:
        if self._observer is None:
            observer = Observer(self.namespaces[OPERATOR], self.files.folder(OPERATOR))
            self._observer = self._stack.enter_context(observer)
        return self._observer.survey(broker)

    def complaint_of_state(self) -> str | None:
        """Return None if all brokers have joined, routers are in step, and channels are up."""
        for name in self.plan.brokers:
            facts = self.survey(name)
            if "refused" in facts:
                return f"{name}: {facts['refused']}"
            wrong = [
                f"{one['name']} is not in step"
                for one in facts.get("routers", ())
                if not (one["is_connected"] and one["is_up"] and one["in_step"])
            ]
            wrong += [
                f"{one['name']} has not joined"
                for one in facts.get("children", ())
                if not one["is_joined"]
            ]
            wrong += [
                f"{one.get('label', one.get('channel'))} is down"
                for one in facts["channels"]
                if not (one["is_up"] and one.get("is_open", True))
            ]
            if wrong:
                return f"{name}: {'; '.join(wrong)}"
        return None

    def wait_for(self, complaint: Callable[[], str | None], *, within_s: float = 60.0) -> None:
        """Poll until `complaint` returns None; raise with the last complaint at the deadline."""
        deadline = time.monotonic() + within_s
        while (last := complaint()) is not None:
            if time.monotonic() > deadline:
                raise LabError(last)
            time.sleep(POLL_S)

    # End-points.

    def load(
        self, name: str, verb: str, variables: Mapping[str, int], *, rate: int, redundancy: int = 2
    ) -> LogTail:
        """Start a publisher or subscriber of `load_programs.py`; return its log."""
        folder = self.files.folder(name)
        log = folder / "events.log"
        task = Task(
            end_point=name,
            folder=str(folder),
            log=str(log),
            variables=dict(variables),
            rate=rate,
            redundancy=redundancy,
            status=str(folder / "status.json"),
        )
        path = folder / "task.json"
        path.write_bytes(msgspec.json.encode(task))
        argv = [sys.executable, "-m", "lab.load_programs", verb, str(path)]
        log.unlink(missing_ok=True)
        if name not in self.daemons:
            self.daemons[name] = Daemon(name, self.namespaces[name], argv, folder)
            self._stack.callback(self.daemons[name].close)
        self.daemons[name].start()
        self.daemons[name].wait_ready()
        return LogTail(log)

    # The network.

    def _lay_out(self, network: Network) -> None:
        brokers = [f"broker/{name}" for name in self.plan.brokers]
        for name in [OPERATOR, *brokers, *self.routers, *self._end_points]:
            self.namespaces[name] = network.add(name)
        for near, far in self._wires(brokers):
            network.join(self.namespaces[near], self.namespaces[far])

    def _wires(self, brokers: list[str]) -> list[tuple[str, str]]:
        wires = [(OPERATOR, broker) for broker in brokers]
        for name, plan in self.plan.brokers.items():
            wires += [(f"broker/{name}", f"broker/{child}") for child in plan.children]
        for name in [*self.routers, *self._end_points]:
            wires.append((f"broker/{cloud_of(name)}", name))
        for name, edges in self._end_points.items():
            wires += [(edge, name) for edge in edges]
        channels = [
            channel
            for held in (self.plan.brokers, self.plan.clouds)
            for one in held.values()
            for channel in one.channels
        ]
        ends = {tuple(sorted((one.from_router, one.to_router))) for one in channels}
        return wires + [(near, far) for near, far in sorted(ends)]

    def _add(self, name: str, verb: str, file: Path, stack: contextlib.ExitStack) -> None:
        made = Daemon(name, self.namespaces[name], [GRIDSTAT, verb, file], file.parent)
        self.daemons[name] = made
        stack.callback(made.close)
