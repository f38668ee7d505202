"""A small cloud of real processes on this machine, and end-points that attach to it.

    c1/e0 ── c1/i0 ── c1/e1        and a direct channel from edge to edge

Every party has an address of its own within 127/8, so that ports need not be negotiated.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, Any, Self, Unpack

from gridstat.console.access import load_access
from gridstat.console.operator_session import open_operator_session
from gridstat.endpoint.connection_setup import connect
from gridstat.model.errors import GridStatError
from gridstat.net.command.certificate_folder import CertificateFolder
from gridstat.net.command.identity import Identity, Role
from gridstat.net.command.messages import Survey
from lab.grid_files import COMMAND_PORT, OPERATOR, GridFiles
from lab.grid_plan import BROKER, GridPlan, LinkPlan, RouterPlan
from tests.cluster.attached import await_edges
from tests.cluster.command import Command
from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from gridstat.endpoint.connection import Connection
    from gridstat.endpoint.connection_setup import ConnectOptions

PLAN = GridPlan(
    routers=(RouterPlan("e0", is_edge=True), RouterPlan("e1", is_edge=True), RouterPlan("i0")),
    links=(LinkPlan("e0", "e1"), LinkPlan("e0", "i0"), LinkPlan("i0", "e1")),
)
BOTH = ("e0", "e1")
SILENT_MS_MAX = 500
"""Limit for a busy machine, where a router may be silent for the usual 100 ms."""
_NETWORK = count(os.getpid() % 200)
SEALED = 'endpoint_security = "hop"'
PLAIN = 'endpoint_security = "none"'


class LocalCloud:
    """Broker and routers run, and are in step, while the `with` block lasts."""

    def __init__(self, folder: Path, *, plain_edges: Iterable[str] = (), **timing: float) -> None:
        network = f"127.{os.getpid() // 256 % 200 + 10}.{next(_NETWORK) % 250}"
        names = [BROKER, *(router.name for router in PLAN.routers)]
        self.hosts = {name: f"{network}.{at}" for at, name in enumerate(names, start=1)}
        timing.setdefault("silent_ms_max", SILENT_MS_MAX)
        self.files = GridFiles(folder, PLAN, self.hosts, timing)
        self._plain_edges = tuple(plain_edges)
        self._daemons: dict[str, Command] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.files.write()
        for edge in self._plain_edges:
            file = self.files.router_file(edge)
            text = file.read_text(encoding="utf-8")
            assert SEALED in text
            file.write_text(text.replace(SEALED, PLAIN), encoding="utf-8")
        for name in self.hosts:
            self.start(name)
        eventually(self.complaint)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def certificates(self) -> Path:
        """Return the folder of the end-points' certificates, into which `certify` puts them."""
        return self.files.folder(OPERATOR) / "certificates"

    def start(self, name: str) -> None:
        is_broker = name == BROKER
        file = self.files.broker_file if is_broker else self.files.router_file(name)
        command = Command.gridstat(file.parent, "broker" if is_broker else "router", file)
        self._daemons[name] = self._stack.enter_context(command)

    def kill(self, name: str) -> None:
        """Kill a daemon by SIGKILL, so that it cannot send anything more."""
        daemon = self._daemons[name]
        daemon.signal(signal.SIGKILL)
        daemon.process.wait()

    def pause(self, name: str) -> None:
        self._daemons[name].signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self._daemons[name].signal(signal.SIGCONT)

    def signal(self, name: str, number: signal.Signals) -> None:
        self._daemons[name].signal(number)

    def errors_of(self, name: str) -> str:
        """Return what a daemon has written on its standard error."""
        return self._daemons[name].errors

    def edge(self, name: str) -> str:
        """Return an edge in the form that `gridstat.connect` takes."""
        return f"c1/{name}@{self.hosts[name]}:{COMMAND_PORT}"

    def certify(self, name: str) -> Path:
        CertificateFolder(self.certificates).ensure(Identity(Role.ENDPOINT, name))
        return self.certificates

    def connect(
        self, name: str, edges: tuple[str, ...] = BOTH, **wishes: Unpack[ConnectOptions]
    ) -> Connection:
        self.certify(name)
        wishes.setdefault("timeout_s", 30.0)
        wishes.setdefault("answer_within_s", 30.0)
        wishes.setdefault("certificates", self.certificates)
        connection = connect([self.edge(edge) for edge in edges], name, **wishes)
        self._stack.callback(connection.close)
        await_edges(connection, len(edges))
        return connection

    def survey(self) -> dict[str, Any]:
        """Return the broker's survey of its cloud; empty while it cannot be asked."""

        async def ask() -> dict[str, Any]:
            async with open_operator_session(load_access(self.files.folder(OPERATOR))) as session:
                return await session.ask(Survey(request_id=0))

        try:
            return asyncio.run(ask())
        except GridStatError:
            return {}

    def complaint(self) -> str | None:
        """Return a complaint for `eventually` while the cloud is not whole."""
        facts = self.survey()
        if not facts:
            return "the broker does not answer"
        routers = [each for each in facts["routers"] if each["is_connected"] and each["in_step"]]
        up = [each for each in facts["channels"] if each["is_up"]]
        if len(routers) != len(PLAN.routers) or len(up) < 2 * len(PLAN.links):
            return f"{len(routers)} routers in step, {len(up)} channels up"
        return None
