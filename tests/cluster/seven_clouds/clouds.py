"""Seven real clouds in an unbalanced tree of three levels, on loopback; S0 §5.4.2 and one more.

                 root
              /    |    \\
             p     q     g          a … f as in tests/golden/flooding.toml, two routers each;
           / | \\ / | \\              g stands right below the root, and is reached from d alone
          a  b  c d  e  f
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, Final, Self

from gridstat.console.access import load_access
from gridstat.console.config.grid_file import grid_from_text
from gridstat.console.grid_folder import GridFolder
from gridstat.console.operator_session import open_operator_session
from gridstat.endpoint.connection_setup import connect
from gridstat.net.command.address import address_text
from gridstat.net.command.identity import Role
from gridstat.net.command.messages import Survey
from lab.daemon import Daemon, Here
from lab.open_access import CLOUD_TOML
from tests.cluster.eventually import eventually
from tests.golden.load import load_golden

if TYPE_CHECKING:
    from pathlib import Path

    from gridstat.endpoint.connection import Connection
    from gridstat.net.command.messages import OperatorCommand

WITHIN_S: Final = 300.0
GOLDEN: Final[dict[str, Any]] = next(
    topology
    for topology in load_golden("flooding.toml")["topology"]
    if topology["name"] == "six-clouds"
)
PARENTS: Final = {
    **dict.fromkeys("abc", "p"),
    **dict.fromkeys("def", "q"),
    "g": "root",
    "p": "root",
    "q": "root",
}
CLOUDS: Final = tuple("abcdefg")
BROKERS: Final = ("root", "p", "q", *CLOUDS)
ROUTERS: Final = tuple(f"{cloud}/{number}" for cloud in CLOUDS for number in "01")
TIMING: Final = "[timing]\nsilent_ms_max = 2000\n"
"""Limit for one machine that many processes share."""
ALWAYS_GROWS: Final = "heard_or_sent"
"""Counter that differs in every report of a router, to distinguish successive reports."""
Facts = dict[str, Any]


def grid_text() -> str:
    lines = ['[[broker]]\nname = "root"\n']
    lines += [f'[[broker]]\nname = "{name}"\nparent = "root"\n' for name in "pq"]
    for cloud in CLOUDS:
        lines.append(f'[[cloud]]\nname = "{cloud}"\nparent = "{PARENTS[cloud]}"\n')
        for name, role in (("0", "edge"), ("1", "border")):
            lines.append(f'[[cloud.router]]\nname = "{name}"\nrole = "{role}"\n')
        lines.append('[[cloud.channel]]\nfrom = "0"\nto = "1"\n')
        lines.append(CLOUD_TOML)
    ways = [(each["from"], each["to"]) for each in GOLDEN["channels"] if each["level"] < 2]
    for start, end in (*ways, ("d1", "g0")):
        ends = f'from = "{start[0]}/{start[1]}"\nto = "{end[0]}/{end[1]}"\n'
        lines.append(f"[[channel]]\n{ends}")
    return "".join(lines)


class SevenClouds:
    """Seven clouds whose files are all in a folder; they end every process that a test starts."""

    def __init__(self, folder: Path) -> None:
        text = grid_text()
        files = GridFolder(folder, grid_from_text(text, file="test"), text)
        files.write()
        self.access = load_access(folder)
        for cloud in CLOUDS:
            with files.file_of_broker(cloud).open("a", encoding="utf-8") as file:
                file.write(TIMING)
        self._daemons = [
            self._daemon("broker", files.file_of_broker(name), folder) for name in BROKERS
        ]
        self._daemons += [
            self._daemon("router", files.router_file(name), folder) for name in ROUTERS
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in self._daemons:
            daemon.close()

    def start(self) -> None:
        brokers, routers = self._daemons[: len(BROKERS)], self._daemons[len(BROKERS) :]
        for some in (brokers, routers):
            for daemon in some:
                daemon.start()
            for daemon in some:
                daemon.wait_ready(within_s=WITHIN_S)
        eventually(self.complaint, within_s=WITHIN_S)

    def ask(self, broker: str, command: OperatorCommand) -> Facts:
        async def asking() -> Facts:
            async with open_operator_session(self.access.beside(broker)) as desk:
                return await desk.ask(command)

        return asyncio.run(asking())

    def connect(self, name: str, edge: str) -> Connection:
        self.access.files_of(Role.ENDPOINT, name)
        place = f"{edge}@{address_text(self.access.edges[edge])}"
        return connect([place], name, certificates=self.access.certificates.path, timeout_s=30.0)

    def complaint(self) -> str | None:
        """Return None when all brokers have joined, all routers are in step, all channels open."""
        for cloud in CLOUDS:
            late = [
                one["name"]
                for one in self.ask(cloud, Survey(request_id=0))["routers"]
                if not (one["is_up"] and one["in_step"])
            ]
            if late:
                return f"not in step: {late}"
        for broker in ("root", "p", "q"):
            facts = self.ask(broker, Survey(request_id=0))
            away = [one["name"] for one in facts["children"] if not one["is_joined"]]
            shut = [one["channel"] for one in facts["channels"] if not one["is_open"]]
            if away or shut:
                return f"{broker}: away: {away}, not open: {shut}"
        return None

    def reports(self) -> dict[str, dict[str, int]]:
        """Return the counters of each router's last report, and one that always grows."""
        found = {}
        for cloud in CLOUDS:
            facts = self.ask(cloud, Survey(request_id=0))
            # The first router may receive nothing, but it sends to the second, if only probes.
            (channel,) = facts["channels"]
            sent = {f"{cloud}/0": channel["counters"].get("datagrams_out", 0)}
            for one in facts["routers"]:
                heard = one["counters"].get("datagrams_in", 0)
                grows = {ALWAYS_GROWS: heard + sent.get(one["name"], 0)}
                found[one["name"].replace("/", "")] = one["counters"] | grows
        return found

    @staticmethod
    def _daemon(word: str, file: Path, folder: Path) -> Daemon:
        command = (sys.executable, "-m", "gridstat", word, str(file))
        return Daemon(file.stem, Here(), command, folder / file.stem)
