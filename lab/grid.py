"""A whole cloud of real processes, each in its own namespace, with methods that harm them.

`with Grid(plan, folder) as grid: grid.start()` gives a leaf broker and routers that are in step.
"""

from __future__ import annotations

import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from lab.daemon import Daemon
from lab.errors import LabError
from lab.grid_files import OPERATOR, GridFiles
from lab.grid_network import GridNetwork
from lab.grid_plan import BROKER, GridPlan
from lab.observer import Observer
from lab.open_access import OPEN_TOML

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lab.netns import Namespace

GRIDSTAT = Path(sys.executable).with_name("gridstat")
POLL_S = 0.05


class Grid:
    """Owns the network, the files and every process while the `with` block lasts.

    Daemons are named as in the plan, the broker `broker`. `network` cuts and impairs wires.
    """

    def __init__(
        self,
        plan: GridPlan,
        folder: Path,
        *,
        is_relayed: bool = True,
        as_user: bool | None = None,
        timing: Mapping[str, float] | None = None,
        keys: Mapping[str, float] | None = None,
        rules: str = OPEN_TOML,
        metrics_port: int | None = None,
    ) -> None:
        self.plan = plan
        self.network = GridNetwork(plan, is_relayed=is_relayed, as_user=as_user)
        self.daemons: dict[str, Daemon] = {}
        self._folder = folder
        self._timing = timing or {}
        self._keys = keys or {}
        self._rules = rules
        self._metrics_port = metrics_port
        self._stack = contextlib.ExitStack()
        self._observer: Observer | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.network)
            hosts = {name: namespace.host for name, namespace in self.namespaces.items()}
            self.files = GridFiles(
                self._folder,
                self.plan,
                hosts,
                self._timing,
                self._keys,
                self._rules,
                self._metrics_port,
            )
            self.files.write()
            self._add(BROKER, "broker", self.files.broker_file, stack)
            for router in self.plan.routers:
                self._add(router.name, "router", self.files.router_file(router.name), stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *details: object) -> None:
        self._stack.__exit__(*details)  # type: ignore[arg-type]

    @property
    def namespaces(self) -> dict[str, Namespace]:
        return self.network.namespaces

    def start(self, *, within_s: float = 60.0) -> None:
        """Start the broker, then the routers; return when every router and channel is good."""
        self.daemons[BROKER].start()
        self.daemons[BROKER].wait_ready(within_s=within_s)
        routers = [self.daemons[router.name] for router in self.plan.routers]
        for router in routers:
            router.start()
        for router in routers:
            router.wait_ready(within_s=within_s)
        self.wait_for(self.complaint_of_state, within_s=within_s)

    def restart(self, name: str) -> None:
        """Start a killed daemon again; return when it is ready."""
        self.daemons[name].start()
        self.daemons[name].wait_ready()

    def program(self, name: str, argv: Sequence[str | Path]) -> Daemon:
        """Make the program of an end-point in its namespace, not started; it ends with the grid."""
        made = Daemon(name, self.namespaces[name], argv, self.files.folder(name))
        self.daemons[name] = made
        self._stack.callback(made.close)
        return made

    def gridstat(self, *arguments: str) -> str:
        """Run a `gridstat` command of the operator and return its output."""
        folder = ("--folder", self.files.folder(OPERATOR))
        return self.namespaces[BROKER].run(GRIDSTAT, *arguments, *folder)

    def survey(self) -> dict[str, Any]:
        """Return the facts of the broker, as `gridstat top` shows them."""
        if self._observer is None:
            observer = Observer(self.namespaces[BROKER], self.files.folder(OPERATOR))
            self._observer = self._stack.enter_context(observer)
        return self._observer.survey()

    def complaint_of_state(self) -> str | None:
        """Return None if every router is connected and in step and every channel is up."""
        facts = self.survey()
        if "refused" in facts:
            return str(facts["refused"])
        wrong = [
            f"{router['name']} {fact} is {router[fact]}"
            for router in facts["routers"]
            for fact in ("is_connected", "is_up", "in_step")
            if not router[fact]
        ]
        wrong += [f"{at['label']} is down" for at in facts["channels"] if not at["is_up"]]
        return "; ".join(wrong) or None

    def wait_for(self, complaint: Callable[[], str | None], *, within_s: float = 40.0) -> None:
        """Poll until `complaint` returns None; raise with the last complaint at the deadline."""
        deadline = time.monotonic() + within_s
        while (last := complaint()) is not None:
            if time.monotonic() > deadline:
                raise LabError(last)
            time.sleep(POLL_S)

    def _add(self, name: str, verb: str, file: Path, stack: contextlib.ExitStack) -> None:
        made = Daemon(name, self.namespaces[name], [GRIDSTAT, verb, file], file.parent)
        self.daemons[name] = made
        stack.callback(made.close)
