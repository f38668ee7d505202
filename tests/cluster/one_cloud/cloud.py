"""A real cloud on loopback for tests: broker and routers as processes, end-points in the test.

e0 ── i0 ── e2
e1 ── i1 ── e3        two ways without a common router
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Self

from gridstat.console.access import load_access
from gridstat.console.config.grid_file import grid_from_text
from gridstat.console.grid_folder import GridFolder
from gridstat.console.operator_session import open_operator_session
from gridstat.endpoint.connection_setup import connect
from gridstat.model.channel_security import HOP
from gridstat.net.command.address import address_text
from gridstat.net.command.identity import Role
from gridstat.net.command.messages import Explain, Survey
from lab.daemon import Daemon, Here
from lab.open_access import OPEN_TOML
from tests.cluster.attached import await_edges
from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gridstat.endpoint.connection import Connection
    from gridstat.model.channel_security import Security
    from gridstat.net.command.messages import OperatorCommand

READY_WITHIN_S = 60.0
ROUTERS = ("e0", "e1", "i0", "i1", "e2", "e3")
WEST, EAST = ("c1/e0", "c1/e1"), ("c1/e2", "c1/e3")
TIMING = "[timing]\nsilent_ms_max = 500\nchange_lead_ms = 5000\n"
"""Timing for a busy machine, where a router may be silent for the usual 100 ms, and a write of the
journal may take longer than the usual 200 ms before a new period holds."""


def cloud_text(bandwidth_bytes_per_s: int = 200_000) -> str:
    routers = "".join(
        f'[[router]]\nname = "{name}"\nrole = "{"edge" if name[0] == "e" else "inner"}"\n'
        for name in ROUTERS
    )
    ways = (("e0", "i0"), ("i0", "e2"), ("e1", "i1"), ("i1", "e3"))
    channels = "".join(
        f'[[channel]]\nfrom = "{a}"\nto = "{b}"\nboth_ways = true\n'
        f"bandwidth_bytes_per_s = {bandwidth_bytes_per_s}\n"
        for a, b in ways
    )
    return f'cloud = "c1"\n{routers}{channels}{OPEN_TOML}'


class Cloud:
    """Cloud whose files are all in a folder; it ends every process that a test starts."""

    def __init__(self, folder: Path, text: str, *, more: str = "", broker: str = "") -> None:
        """`more` is added to the files of the broker and of edge routers, `broker` to its own."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._files = GridFolder(folder, grid_from_text(text, file="test"), text)
        self._files.write()
        with self._files.broker_file.open("a", encoding="utf-8") as file:
            file.write(TIMING + more + broker)
        for name in (each for each in ROUTERS if each.startswith("e")):
            with self._files.router_file(f"c1/{name}").open("a", encoding="utf-8") as file:
                file.write(more)
        self.access = load_access(folder)
        self._stack = ExitStack()
        self.daemons = {"broker": self._daemon("broker", self._files.broker_file)}
        for name in ROUTERS:
            self.daemons[name] = self._daemon("router", self._files.router_file(f"c1/{name}"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_connections()
        for daemon in self.daemons.values():
            daemon.close()

    def start(self) -> None:
        self.daemons["broker"].start()
        self.daemons["broker"].wait_ready()
        for name in ROUTERS:
            self.daemons[name].start()
        for name in ROUTERS:
            self.daemons[name].wait_ready(within_s=READY_WITHIN_S)
        eventually(self.complaint, within_s=READY_WITHIN_S)

    def _daemon(self, word: str, file: Path) -> Daemon:
        command = (sys.executable, "-m", "gridstat", word, str(file))
        return Daemon(file.stem, Here(), command, self.folder / file.stem)

    @contextmanager
    def further_router(self, name: str) -> Iterator[None]:
        """A router that the files do not know, while the block lasts."""
        self.access.files_of(Role.ROUTER, f"c1/{name}")
        host, port = self.access.broker
        file = self.folder / f"router-{name}.toml"
        file.write_text(
            f'name = "c1/{name}"\nrole = "inner"\n[broker]\naddresses = ["{host}:{port}"]\n'
            f'[listen]\nhost = "{host}"\n'
        )
        daemon = self._daemon("router", file)
        try:
            daemon.start()
            daemon.wait_ready(within_s=READY_WITHIN_S)
            yield
        finally:
            daemon.close()

    # Asking the broker.

    def command(self, *words: str) -> None:
        """`gridstat cloud ...`, as an operator would type it."""
        done = subprocess.run(
            [sys.executable, "-m", "gridstat", "cloud", *words, "--folder", str(self.folder)],
            capture_output=True,
            text=True,
            timeout=READY_WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def ask(self, command: OperatorCommand) -> dict[str, Any]:
        async def asking() -> dict[str, Any]:
            async with open_operator_session(self.access) as session:
                return await session.ask(command)

        return asyncio.run(asking())

    def survey(self) -> dict[str, Any]:
        return self.ask(Survey(request_id=0))

    def explain(self, name: str) -> dict[str, Any]:
        return self.ask(Explain(request_id=0, name=name))

    def complaint(self) -> str | None:
        """Return None when every router is in step and every channel up."""
        facts = self.survey()
        late = [one["name"] for one in facts["routers"] if not (one["is_up"] and one["in_step"])]
        down = [one["label"] for one in facts["channels"] if not one["is_up"]]
        return f"not in step: {late}, down: {down}" if late or down else None

    # End-points.

    def close_connections(self) -> None:
        self._stack.close()

    def connect(self, name: str, edges: tuple[str, ...], *, security: Security = HOP) -> Connection:
        """An end-point that is closed with its test."""
        self.access.files_of(Role.ENDPOINT, name)
        places = [f"{edge}@{address_text(self.access.edges[edge])}" for edge in edges]
        connection = connect(
            places,
            name,
            certificates=self.access.certificates.path,
            timeout_s=30.0,
            security=security,
        )
        self._stack.callback(connection.close)
        await_edges(connection, len(edges))
        return connection


def connections_to(port: int) -> list[str]:
    """This process's established connections to a local port, as the kernel lists them."""
    wanted = f":{port:04X}"
    own = {
        os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_there(fd)
    }
    found = []
    with open("/proc/self/net/tcp", encoding="ascii") as table:
        for line in list(table)[1:]:
            columns = line.split()
            if columns[2].endswith(wanted) and f"socket:[{columns[9]}]" in own:
                found.append(columns[2])
    return found


def _is_there(descriptor: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{descriptor}")
