"""A whole cloud for a measurement: leaf broker and routers as daemons, end-points beside them.

The daemons are those of `gridstat broker` and `gridstat router`, with the files that `gridstat up`
writes; the journal is on a real disk. Everything ends, and the folder goes, with the block.
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.errors import BenchmarkError
from benchmarks.processes import Processes, RoleProcess
from gridstat.console.access import load_access
from gridstat.console.grid import Grid
from gridstat.console.grid_folder import GridFolder
from gridstat.console.operator_session import ask_once
from gridstat.net.command.address import address_text
from gridstat.net.command.identity import Role
from gridstat.net.command.messages import Explain, Survey
from lab.open_access import OPEN_RULE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from gridstat.console.config.cloud_file import Topology
    from gridstat.model.access_rules import AccessRule

LOOPBACK = "127.0.0.1"
START_S_MAX = 120.0
IN_STEP_S_MAX = 60.0
LOOK_AGAIN_S = 0.1
ANSWER_S_MAX = 10.0
NS_PER_S = 1_000_000_000
LATENCY_BUCKETS = "gridstat_router_forwarding_latency_seconds_bucket"
TIMING = "[timing]\nsilent_ms_max = 5000\n"
"""Timing for a busy machine.

Two processors do not always let twenty routers send within the usual 100 ms, and paths around a
channel that is taken for dead would falsify the measurement.
"""

NO_QUOTAS = """[quota]
publications_max = 1000000
subscriptions_max = 10000000
capacity_share = 1.0
commands_per_s = 0
"""
"""A measurement of capacity uses all of it, by few end-points."""

Facts = dict[str, Any]


class CloudRig:
    """One running cloud; every router is connected and in step when the block begins."""

    def __init__(
        self,
        topology: Topology,
        *,
        folder: str = "",
        quotas: str = NO_QUOTAS,
        rules: tuple[AccessRule, ...] = (OPEN_RULE,),
    ) -> None:
        """Take the plan; `quotas` is a section of a broker's file, empty: those of a new cloud."""
        self._topology = replace(topology, rules=rules)
        self._quotas = quotas
        self._stack = ExitStack()
        self._parent = folder or None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _start(self) -> None:
        parent = tempfile.TemporaryDirectory(prefix="gridstat-cloud-", dir=self._parent)
        self.folder = Path(self._stack.enter_context(parent))
        grid = Grid(LOOPBACK, self._topology, pmus=(), subscribers=(), source="benchmarks")
        files = GridFolder(self.folder, grid, "")
        files.write()
        with files.broker_file.open("a", encoding="utf-8") as broker_file:
            broker_file.write(TIMING + self._quotas)
        self.access = load_access(self.folder)
        self._processes = self._stack.enter_context(Processes())
        broker = {"broker": _daemon("broker", files.broker_file)}
        self.broker = self._processes.start_daemons(broker, within_s=START_S_MAX)["broker"]
        self.routers = self._processes.start_daemons(
            {
                router.name: _daemon("router", files.router_file(router.name))
                for router in self._topology.routers
            },
            within_s=START_S_MAX,
        )
        self.await_in_step()

    # Commands of an operator.

    def survey(self) -> Facts:
        return ask_once(self.access, Survey(request_id=0))

    def explain(self, name: str) -> Facts:
        return ask_once(self.access, Explain(request_id=0, name=name))

    def local_latency(self, router: str) -> list[tuple[int, int]]:
        """Return (upper edge in ns, events) of the router's metric from receiving to sending."""
        host, port = self.routers[router].ready["metrics"]
        with urlopen(f"http://{host}:{port}/metrics", timeout=ANSWER_S_MAX) as page:
            return histogram_of(page.read().decode())

    def await_in_step(self) -> None:
        """Wait until every router has confirmed the digest of the wanted table."""
        deadline_s = time.monotonic() + IN_STEP_S_MAX
        while behind := routers_behind(self.survey()):
            if time.monotonic() > deadline_s:
                raise BenchmarkError(
                    f"{', '.join(behind)} did not get in step in {IN_STEP_S_MAX:g} s",
                    hint="the machine is too busy, or a router has died",
                )
            time.sleep(LOOK_AGAIN_S)

    # End-points.

    def end_points(self, places: Mapping[str, Iterable[str]]) -> RoleProcess:
        """Start a process with a connection for each of these end-points, by its edges."""
        for name in places:
            self.access.files_of(Role.ENDPOINT, name)
        plan = {
            "certificates": str(self.access.certificates.path),
            "end_points": {
                name: [f"{edge}@{address_text(self.access.edges[edge])}" for edge in edges]
                for name, edges in places.items()
            },
        }
        self._processes.prepare_roles("end_points", 1)
        return self._processes.start_prepared("end_points", plan, within_s=START_S_MAX)[0]


def histogram_of(metrics: str) -> list[tuple[int, int]]:
    """Return the buckets of a router's forwarding latency, each with the events in it."""
    upto = [
        (round(float(sample.labels["le"]) * NS_PER_S), int(sample.value))
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
        if sample.name == LATENCY_BUCKETS and sample.labels["le"] != "+Inf"
    ]
    below = [0, *(count for _, count in upto)]
    return [(upper, count - less) for (upper, count), less in zip(upto, below, strict=False)]


def routers_behind(survey: Facts) -> list[str]:
    """Return the routers that are absent, or have not confirmed their last change."""
    return [
        str(router["name"])
        for router in survey["routers"]
        if not (router["is_connected"] and router["in_step"])
    ]


def _daemon(kind: str, file: Path) -> list[str]:
    return [sys.executable, "-P", "-m", "gridstat", kind, str(file), "--json"]
