"""Two real clouds under a root broker, on loopback; end-points in the test.

                root
               /    \\
             c1      c2

 c1/e0 ── c1/b0 ════ c2/b0 ── c2/e0      two ways without a common router;
 c1/e1 ── c1/b1 ════ c2/b1 ── c2/e1      what comes to c2/b0 passes a wire that can be cut
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Self

from gridstat.console.access import load_access
from gridstat.console.config.grid_file import grid_from_text
from gridstat.console.grid_folder import GridFolder, free_ports
from gridstat.console.operator_session import open_operator_session
from gridstat.endpoint.connection_setup import connect
from gridstat.net.command.address import address_text
from gridstat.net.command.identity import Role
from gridstat.net.command.messages import Explain, Survey
from lab.daemon import Daemon, Here
from lab.open_access import CLOUD_TOML
from tests.cluster.attached import await_edges
from tests.cluster.eventually import eventually
from tests.cluster.two_clouds.wire import HERE, Wire

if TYPE_CHECKING:
    from pathlib import Path

    from gridstat.endpoint.connection import Connection
    from gridstat.net.command.messages import OperatorCommand
    from gridstat.net.command.operator_messages import TreeCommand

WITHIN_S: Final = 60.0
CLOUDS: Final = ("c1", "c2")
BROKERS: Final = ("root", *CLOUDS)
ROUTERS: Final = tuple(f"{cloud}/{name}" for cloud in CLOUDS for name in ("e0", "e1", "b0", "b1"))
WEST, EAST = ("c1/e0", "c1/e1"), ("c2/e0", "c2/e1")
BAND_BYTES_PER_S: Final = 20_000
TIMING: Final = "[timing]\nsilent_ms_max = 500\n"
"""Limit for a busy machine, where a router may be silent for the usual 100 ms."""
Facts = dict[str, Any]


def grid_text(plain: tuple[str, ...] = (), access: str = CLOUD_TOML, narrow: int = 0) -> str:
    """Return the grid's file; channels between the borders of these names are not sealed.

    `narrow` is the bandwidth of the channels between the edges and borders of c1, if it is not 0.
    """
    lines = ['[[broker]]\nname = "root"\n']
    for cloud in CLOUDS:
        lines.append(f'[[cloud]]\nname = "{cloud}"\n')
        for name in ("e0", "e1", "b0", "b1"):
            role = "edge" if name[0] == "e" else "border"
            lines.append(f'[[cloud.router]]\nname = "{name}"\nrole = "{role}"\n')
        for near, far in (("e0", "b0"), ("e1", "b1"), ("b0", "b1")):
            lines.append(f'[[cloud.channel]]\nfrom = "{near}"\nto = "{far}"\nboth_ways = true\n')
            if narrow and cloud == "c1" and near != "b0":
                lines.append(f"bandwidth_bytes_per_s = {narrow}\n")
        lines.append(access)
    for border in ("b0", "b1"):
        lines.append(f'[[channel]]\nfrom = "c1/{border}"\nto = "c2/{border}"\nboth_ways = true\n')
        lines.append(f"bandwidth_bytes_per_s = {BAND_BYTES_PER_S}\nlatency_ms = 1\n")
        if border in plain:
            lines.append('security = "none"\n')
    return "".join(lines)


class TwoClouds:
    """Two clouds whose files are all in a folder; they end every process that a test starts."""

    def __init__(
        self,
        folder: Path,
        plain: tuple[str, ...] = (),
        access: str = CLOUD_TOML,
        *,
        narrow: int = 0,
        brokers: str = "",
    ) -> None:
        """`brokers` is added to the files of all brokers."""
        self.folder = folder
        text = grid_text(plain, access, narrow)
        self._files = GridFolder(folder, grid_from_text(text, file="test"), text)
        self._files.write()
        self.access = load_access(folder)
        self._stack = ExitStack()
        self._end_points = ExitStack()
        self._attached: list[tuple[Connection, int]] = []
        """End-points, and at how many edges each is to be."""
        self.wire = self._stack.enter_context(self._wire("c2/b0"))
        for cloud in CLOUDS:
            with self._files.file_of_broker(cloud).open("a", encoding="utf-8") as file:
                file.write(TIMING)
        for name in BROKERS:
            with self._files.file_of_broker(name).open("a", encoding="utf-8") as file:
                file.write(brokers)
        self.daemons = {
            name: self._daemon("broker", self._files.file_of_broker(name)) for name in BROKERS
        }
        for name in ROUTERS:
            self.daemons[name] = self._daemon("router", self._files.router_file(name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_connections()
        for daemon in self.daemons.values():
            daemon.close()
        self._stack.close()

    def start(self) -> None:
        for names in (BROKERS, ROUTERS):
            for name in names:
                self.daemons[name].start()
            for name in names:
                self.daemons[name].wait_ready(within_s=WITHIN_S)
        eventually(self.complaint, within_s=WITHIN_S)

    def restart(self, name: str) -> None:
        """Restart a killed daemon; wait until all is whole and end-points are attached."""
        self.daemons[name].start()
        self.daemons[name].wait_ready(within_s=WITHIN_S)
        eventually(self.complaint, within_s=WITHIN_S)
        for connection, edges in self._attached:
            await_edges(connection, edges)

    def _wire(self, router: str) -> Wire:
        """Put a wire in front of the router, so that all datagrams to the router pass it."""
        file = self._files.router_file(router)
        host = self.access.broker[0]
        data_port, urgent_port = free_ports(host, 2)
        listening = f'[listen]\nhost = "{host}"\n'
        ports = (
            f'data_port = {data_port}\nurgent_port = {urgent_port}\nadvertised_host = "{HERE}"\n'
        )
        text = file.read_text(encoding="utf-8")
        assert listening in text
        file.write_text(text.replace(listening, listening + ports), encoding="utf-8")
        return Wire(host, (data_port, urgent_port))

    def _daemon(self, word: str, file: Path) -> Daemon:
        command = (sys.executable, "-m", "gridstat", word, str(file))
        return Daemon(file.stem, Here(), command, self.folder / file.stem)

    # Asking the brokers.

    def ask(self, broker: str, command: OperatorCommand | TreeCommand) -> Facts:
        async def asking() -> Facts:
            async with open_operator_session(self.access.beside(broker)) as session:
                return await session.ask(command)

        return asyncio.run(asking())

    def survey(self, broker: str) -> Facts:
        return self.ask(broker, Survey(request_id=0))

    def explain(self, broker: str, name: str) -> Facts:
        return self.ask(broker, Explain(request_id=0, name=name))

    def gridstat(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command as an operator would type it."""
        return subprocess.run(
            [sys.executable, "-m", "gridstat", *words, "--folder", str(self.folder)],
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )

    def complaint(self) -> str | None:
        """Return None when all brokers have joined, all routers are in step, all channels up."""
        for cloud in CLOUDS:
            facts = self.survey(cloud)
            late = [one["name"] for one in facts["routers"] if not _is_in_step(one)]
            down = [one["label"] for one in facts["channels"] if not one["is_up"]]
            if late or down:
                return f"{cloud}: not in step: {late}, down: {down}"
        facts = self.survey("root")
        away = [one["name"] for one in facts["children"] if not one["is_joined"]]
        down = [one["channel"] for one in facts["channels"] if not is_up(one)]
        return f"root: away: {away}, down: {down}" if away or down else None

    # End-points.

    def close_connections(self) -> None:
        self._end_points.close()
        self._attached.clear()

    def connect(self, name: str, edges: tuple[str, ...]) -> Connection:
        """An end-point that is closed with its test."""
        self.access.files_of(Role.ENDPOINT, name)
        places = [f"{edge}@{address_text(self.access.edges[edge])}" for edge in edges]
        connection = connect(
            places, name, certificates=self.access.certificates.path, timeout_s=30.0
        )
        self._end_points.callback(connection.close)
        await_edges(connection, len(edges))
        self._attached.append((connection, len(edges)))
        return connection


def is_up(channel: Facts) -> bool:
    """Return whether a channel between clouds is up, from its owner's survey."""
    return bool(channel["is_open"] and channel["is_up"])


def _is_in_step(router: Facts) -> bool:
    return bool(router["is_up"] and router["in_step"])
