"""A cloud on this machine with two broker processes over one database, one as stand-by.

e0 ─┬─ i0 ─┬─ e1
    └─ i1 ─┘
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from gridstat.console.access import ACCESS_FILE, load_access
from gridstat.console.config.grid_file import grid_from_text
from gridstat.console.grid_folder import GridFolder, free_ports
from gridstat.console.operator_session import ask_once, open_operator_session
from gridstat.endpoint.connection_setup import connect
from gridstat.endpoint.options import qos
from gridstat.model.errors import GridStatError
from gridstat.model.status import BuiltinType
from gridstat.net.command.address import address_text
from gridstat.net.command.identity import Role
from gridstat.net.command.messages import Explain, Survey
from lab.daemon import Daemon, Here
from lab.errors import LabError
from lab.open_access import OPEN_TOML
from lab.postgres import DatabaseServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gridstat.endpoint.connection import Connection

CLOUD: Final = "c1"
HOST: Final = "127.0.0.1"
ROUTERS: Final = ("e0", "i0", "i1", "e1")
WAYS: Final = (("e0", "i0"), ("i0", "e1"), ("e0", "i1"), ("i1", "e1"))
BROKERS: Final = ("first", "second")
WITHIN_S: Final = 60.0
POLL_S: Final = 0.02
SILENT_MS_MAX: Final = 500
LEASE_S: Final = 2.0
PATIENT_LEASE_S: Final = 4.0
"""Lease for tests: a busy machine may delay a broker for seconds."""
PORT: Final = re.compile(r"\w*port = \d+$")
MEASURED_RATE: Final = 10


class DoubledCloud:
    """Cloud whose processes run from `start` to the end of the block, unless a test harms them."""

    def __init__(self, folder: Path, url: str, *, lease_s: float = LEASE_S) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        text = _grid_text()
        files = GridFolder(folder, grid_from_text(text, file="lab"), text)
        files.write()
        routers = {name: files.router_file(f"{CLOUD}/{name}") for name in ROUTERS}
        with files.broker_file.open("a") as file:
            file.write(f"[timing]\nsilent_ms_max = {SILENT_MS_MAX}\nlease_s = {lease_s}\n")
        brokers = double(files.broker_file, CLOUD, url, finders=routers.values())
        self.access = load_access(folder)
        self.daemons = {
            name: process_of("broker", file) for name, file in zip(BROKERS, brokers, strict=True)
        }
        self.daemons |= {name: process_of("router", file) for name, file in routers.items()}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_connections()
        for daemon in self.daemons.values():
            daemon.close()

    def start(self) -> None:
        """Start both brokers and the routers; return when the cloud is whole."""
        for name in BROKERS:
            self.daemons[name].start()
            self.await_state(name)
        for name in ROUTERS:
            self.daemons[name].start()
        for name in ROUTERS:
            self.daemons[name].wait_ready(within_s=WITHIN_S)
        _await(self.complaint)

    @property
    def in_charge(self) -> str:
        """Return the name of the running broker that has reported last to be in charge."""
        return next(name for name in BROKERS if self.is_ready(name))

    @property
    def standing_by(self) -> str:
        return next(name for name in BROKERS if stands_by(self.daemons[name]))

    def is_ready(self, name: str) -> bool:
        return is_in_charge(self.daemons[name])

    def await_state(self, name: str) -> None:
        await_state(self.daemons[name])

    def survey(self) -> dict[str, Any]:
        """Return the survey of the broker that answers."""
        return ask_once(self.access, Survey(request_id=0))

    def explain(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Return the contracts over each of these variables."""

        async def asking() -> list[dict[str, Any]]:
            async with open_operator_session(self.access) as session:
                return [await session.ask(Explain(request_id=0, name=name)) for name in names]

        return asyncio.run(asking())

    def complaint(self) -> str | None:
        """Return None when a broker answers, every router is in step and every channel up."""
        try:
            facts = self.survey()
        except GridStatError as error:
            return str(error)
        late = [one["name"] for one in facts["routers"] if not (one["is_up"] and one["in_step"])]
        down = [one["label"] for one in facts["channels"] if not one["is_up"]]
        return f"not in step: {late}, down: {down}" if late or down else None

    def connect(self, name: str, edge: str) -> Connection:
        """Connect an end-point; it is closed with all others."""
        self.access.files_of(Role.ENDPOINT, name)
        place = f"{edge}@{address_text(self.access.edges[edge])}"
        made = connect(
            [place],
            name,
            certificates=self.access.certificates.path,
            timeout_s=WITHIN_S,
            answer_within_s=WITHIN_S,
        )
        self._stack.callback(made.close)
        return made

    def close_connections(self) -> None:
        self._stack.close()


def double(file: Path, broker: str, url: str, *, finders: Iterable[Path]) -> tuple[Path, Path]:
    """Write a broker's file twice, over one database, and both addresses into `finders`.

    The second one has other ports. `finders` are the files of those who connect to the broker.
    """
    lines = file.read_text().splitlines()
    head = [f'journal = "{url}"', *(line for line in lines if not line.startswith("journal = "))]
    file.write_text("\n".join(head) + "\n")
    ports = {line: int(line.rpartition(" ")[2]) for line in lines if PORT.match(line)}
    # The ports of the first one are free as long as it is not started.
    found = free_ports(HOST, 2 * len(ports))
    others = dict(zip(ports, (port for port in found if port not in ports.values()), strict=False))
    renamed = {line: f"{line.rpartition(' ')[0]} {other}" for line, other in others.items()}
    second = file.with_name(f"{file.stem}-second.toml")
    second.write_text("".join(f"{renamed.get(line, line)}\n" for line in head))
    ((port, other),) = ((ports[line], others[line]) for line in ports if line.startswith("port "))
    address = f'"{HOST}:{port}"'
    for finder in finders:
        text = finder.read_text()
        assert address in text, f"{finder.name} does not look for {broker}"
        finder.write_text(text.replace(address, f'{address}, "{HOST}:{other}"'))
    with (file.parent / ACCESS_FILE).open("a") as access:
        place = f'host = "{HOST}"\nport = {other}\n'
        access.write(f'[[stand_by]]\nname = "{broker}"\n{place}')
    return file, second


def process_of(command: str, file: Path) -> Daemon:
    """Return the daemon of `gridstat COMMAND FILE`, with its own folder beside the file."""
    argv = (sys.executable, "-m", "gridstat", command, str(file))
    return Daemon(file.stem, Here(), argv, file.with_suffix(""))


def is_in_charge(broker: Daemon) -> bool:
    return broker.is_running and " ready " in broker.output


def stands_by(broker: Daemon) -> bool:
    return broker.is_running and "stands by" in broker.output and not is_in_charge(broker)


def await_state(broker: Daemon) -> None:
    """Wait until a broker's process has reported whether it is in charge or stands by."""

    def complaint() -> str | None:
        if not broker.is_running:
            raise LabError(f"{broker.name} has ended: {broker.errors[-1_000:]}")
        is_known = is_in_charge(broker) or stands_by(broker)
        return None if is_known else f"{broker.name} has not reported its state"

    _await(complaint)


def measure_takeover() -> float:
    """Return the seconds from a broker's kill until the other has granted a subscription."""
    with (
        tempfile.TemporaryDirectory(prefix="gridstat-") as folder,
        DatabaseServer() as server,
        DoubledCloud(Path(folder), server.url()) as cloud,
    ):
        cloud.start()
        publisher = cloud.connect(f"{CLOUD}/measured/pmu", f"{CLOUD}/e0")
        subscriber = cloud.connect(f"{CLOUD}/measured/view", f"{CLOUD}/e1")
        variable = publisher.publish("value", BuiltinType.FLOAT64, rate=MEASURED_RATE)
        cloud.daemons[cloud.in_charge].kill()
        killed_s = time.monotonic()
        subscriber.subscribe(variable.name, qos=qos(latency_ms=1_000))
        return time.monotonic() - killed_s


def _await(condition: Callable[[], str | None]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while (complaint := condition()) is not None:
        if time.monotonic() > deadline:
            raise LabError(complaint)
        time.sleep(POLL_S)


def _grid_text() -> str:
    routers = "".join(
        f'[[router]]\nname = "{name}"\nrole = "{"edge" if name[0] == "e" else "inner"}"\n'
        for name in ROUTERS
    )
    channels = "".join(
        f'[[channel]]\nfrom = "{a}"\nto = "{b}"\nboth_ways = true\n'
        "bandwidth_bytes_per_s = 1000000\n"
        for a, b in WAYS
    )
    return f'cloud = "{CLOUD}"\n{routers}{channels}{OPEN_TOML}'
