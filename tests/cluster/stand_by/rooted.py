"""Two clouds under a root; one of the brokers is two processes over a database.

           root
        /        \\
      c1          c2          the one that is doubled has a second process, standing by

    c1/e0 ═══════ c2/e0       no way round: what a take-over disturbed would be missed;
    c1/e1 ═══════ c2/e1       with two edges a second way without a common router
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Self

from gridstat.console.access import load_access
from gridstat.console.config.grid_file import grid_from_text
from gridstat.console.grid_folder import GridFolder
from gridstat.console.live.grid_survey import watched_brokers
from gridstat.endpoint.connection_setup import connect
from gridstat.model.errors import GridStatError
from gridstat.net.command.address import address_text
from gridstat.net.command.identity import Role
from gridstat.net.command.messages import Survey
from lab.open_access import CLOUD_TOML
from lab.stand_by import PATIENT_LEASE_S, await_state, double, process_of
from lab.tree_plan import cloud_of
from tests.cluster.attached import await_edges
from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from gridstat.endpoint.connection import Connection

CLOUDS: Final = ("c1", "c2")
WEST, EAST = (f"{cloud}/e0" for cloud in CLOUDS)
TIMING: Final = "[timing]\nsilent_ms_max = 1000\n"
"""Limit for a busy machine, where a router may be silent for long."""
WITHIN_S: Final = 60.0


def grid_text(edges: int) -> str:
    lines = ['[[broker]]\nname = "root"\n']
    for cloud in CLOUDS:
        lines.append(f'[[cloud]]\nname = "{cloud}"\n')
        lines += [f'[[cloud.router]]\nname = "e{at}"\nrole = "edge"\n' for at in range(edges)]
        lines.append(CLOUD_TOML)
    for at in range(edges):
        ends = f'from = "c1/e{at}"\nto = "c2/e{at}"\nboth_ways = true\n'
        lines.append(f"[[channel]]\n{ends}bandwidth_bytes_per_s = 100000\n")
    return "".join(lines)


class RootedClouds:
    """Clouds below a root whose files are all in a folder; every process ends with the block.

    The first process of the `doubled` broker has the broker's own name.
    """

    def __init__(self, folder: Path, url: str, *, doubled: str = "root", edges: int = 1) -> None:
        text = grid_text(edges)
        self.routers = tuple(f"{cloud}/e{at}" for cloud in CLOUDS for at in range(edges))
        self._files = GridFolder(folder, grid_from_text(text, file="test"), text)
        self._files.write()
        files = {name: self._files.file_of_broker(name) for name in ("root", *CLOUDS)}
        for cloud in CLOUDS:
            with files[cloud].open("a") as file:
                file.write(TIMING)
        self.doubled = doubled
        self.standing_by = f"second {doubled}"
        files[doubled], files[self.standing_by] = self._double(files[doubled], url)
        self._access = load_access(folder)
        self.daemons = {name: process_of("broker", file) for name, file in files.items()}
        for router in self.routers:
            self.daemons[router] = process_of("router", self._files.router_file(router))
        self._stack = ExitStack()

    def _double(self, file: Path, url: str) -> tuple[Path, Path]:
        """Double the broker, with the files of its clients: clouds or routers."""
        lease = f"lease_s = {PATIENT_LEASE_S}\n"
        if self.doubled == "root":
            file.write_text(f"{lease}{file.read_text()}")
            finders = [self._files.file_of_broker(cloud) for cloud in CLOUDS]
        else:
            file.write_text(f"{file.read_text()}{lease}")  # The timing is what comes last.
            own = [one for one in self.routers if cloud_of(one) == self.doubled]
            finders = [self._files.router_file(one) for one in own]
        return double(file, self.doubled, url, finders=finders)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        for daemon in self.daemons.values():
            daemon.close()

    def start(self) -> None:
        """All at once but for the second process, so that it is the one to stand by."""
        for name, daemon in self.daemons.items():
            if name != self.standing_by:
                daemon.start()
        await_state(self.daemons[self.doubled])
        self.daemons[self.standing_by].start()
        eventually(self.complaint, within_s=WITHIN_S)
        await_state(self.daemons[self.standing_by])

    def survey(self, brokers: Iterable[str] = ("root",)) -> dict[str, Any]:
        """Surveys by broker; raises why there is none."""

        async def asking() -> dict[str, Any]:
            async with watched_brokers(self._access, brokers) as watched:
                found, away = await watched.ask(Survey(request_id=0))
            for error in away.values():
                raise error
            return found

        return asyncio.run(asking())

    def complaint(self) -> str | None:
        """Return None when both clouds have joined and the channels between them are up."""
        try:
            facts = self.survey(("root", *CLOUDS))
        except GridStatError as error:
            return str(error)
        root = facts.pop("root")
        late = [one["name"] for one in root["children"] if not one["is_joined"]]
        routers = [one for cloud in facts.values() for one in cloud["routers"]]
        late += [one["name"] for one in routers if not (one["is_up"] and one["in_step"])]
        ups = [one["is_open"] and one["is_up"] for one in root["channels"]]
        is_whole = len(ups) == len(self.routers) and all(ups)
        return None if is_whole and not late else f"late: {late}, channels up: {ups}"

    def connect(self, name: str, *edges: str) -> Connection:
        """An end-point that is closed with the block."""
        self._access.files_of(Role.ENDPOINT, name)
        connection = connect(
            [f"{edge}@{address_text(self._access.edges[edge])}" for edge in edges],
            name,
            certificates=self._access.certificates.path,
            timeout_s=WITHIN_S,
            answer_within_s=WITHIN_S,
        )
        self._stack.callback(connection.close)
        await_edges(connection, len(edges))
        return connection
