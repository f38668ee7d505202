"""One router as a service manager runs it: ready, reloaded, drained, killed and rebuilt."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

from gridstat.core.scheduling import ROUTER_PRIORITY, scheduling_granted
from gridstat.net.command.identity import Role
from gridstat.net.command.machine import Received, Send
from gridstat.net.command.messages import ReportRouter, RouterAccepted
from gridstat.net.command.order_table import OrderTable
from gridstat.net.command.router_messages import (
    ChangeTable,
    ChannelOrder,
    TableChanged,
    VariableOrder,
)
from tests.cluster.command import Command
from tests.cluster.eventually import eventually
from tests.protocol.command_parties import BROKER, ROUTER, RecordingMachine, Registry, party, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from gridstat.net.command.machine import Event, Instruction
    from tests.protocol.command_parties import Party

pytestmark = pytest.mark.cluster
EAST = ChannelOrder(channel_id=7, to="c1/e1", host="127.0.0.1", data_port=9, urgent_port=9)


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    registry = Registry(tmp_path / "certificates")
    registry.credentials(ROUTER)
    return registry


def file_in(folder: Path, broker: str, *, level: str = "info") -> Path:
    file = folder / "e0.toml"
    file.write_text(
        f"""
name = "c1/e0"
role = "edge"
metrics_port = 0
[broker]
addresses = ["{broker}"]
[log]
level = "{level}"
json = true
"""
    )
    return file


class StubBroker(RecordingMachine):
    """Broker that wants one table of every router, and sends it to routers that hold another."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.wanted = OrderTable()
        variables = tuple(VariableOrder(variable_id=n, period=None) for n in range(1, 100))
        self.wanted.apply(ChangeTable(term=3, number=0, channels=(EAST,), variables=variables))

    def _answer(self, event: Event) -> Sequence[Instruction]:
        match event:
            case Received(peer, ReportRouter(digest=digest)):
                whole = self.wanted.whole(term=3, number=1) if digest != self.wanted.digest else ()
                return [Send(peer, RouterAccepted(term=3)), *(Send(peer, each) for each in whole)]
            case _:
                return ()

    def reports(self) -> list[ReportRouter]:
        return [each for each in self.messages(ROUTER.peer) if isinstance(each, ReportRouter)]

    def digests(self) -> list[int]:
        messages = self.messages(ROUTER.peer)
        return [each.digest for each in messages if isinstance(each, TableChanged)]


@asynccontextmanager
async def stub_broker(registry: Registry) -> AsyncIterator[tuple[Party, StubBroker]]:
    machine = StubBroker()
    async with party(registry.credentials(BROKER), serves=[Role.ROUTER], machine=machine) as broker:
        yield broker, machine


def ready_line(command: Command) -> dict[str, Any]:
    eventually(lambda: command.complaint_without("ready"))
    return command.lines_in("ready")[0]


@pytest.mark.feature("S3-53", "S0-117", "S0-116")
def test_a_killed_router_is_rebuilt_and_a_drained_one_says_bye(
    tmp_path: Path, registry: Registry
) -> None:
    async def talk() -> None:
        async with stub_broker(registry) as (broker, stub):
            host, port = broker.address
            file = file_in(tmp_path, f"{host}:{port}")
            with Command.gridstat(tmp_path, "router", file, "--json") as command:
                await asyncio.to_thread(ready_line, command)
                await until(lambda: stub.digests() == [stub.wanted.digest])
                command.signal(signal.SIGKILL)
                assert await asyncio.to_thread(command.exit_code) != 0
            await until(lambda: not stub.is_connected(ROUTER.peer))
            with Command.gridstat(tmp_path, "router", file, "--json") as command:
                await asyncio.to_thread(ready_line, command)
                await until(lambda: stub.digests() == [stub.wanted.digest] * 2)
                assert [report.is_first_time for report in stub.reports()] == [True, True]
                assert len({report.data_port for report in stub.reports()}) == 2
                command.signal(signal.SIGTERM)
                assert await asyncio.to_thread(command.exit_code) == 0, command.errors
                assert command.lines_in("ended")[0]["router"] == "c1/e0"
            await until(lambda: not stub.is_connected(ROUTER.peer))
            assert broker.driver.counters.ended["told_bye"] == 1
            assert "Traceback" not in command.errors

    asyncio.run(talk())


@pytest.mark.parametrize("wish", [None, 0, 3])
def test_the_forwarding_thread_is_as_real_time_as_the_machine_lets_it_be(
    tmp_path: Path, registry: Registry, wish: int | None
) -> None:
    assert registry.folder.has_authority
    file = file_in(tmp_path, "127.0.0.1:9")
    if wish is not None:
        file.write_text(f"{file.read_text()}[thread]\nfifo_priority = {wish}\n")
    granted = scheduling_granted(wish, ROUTER_PRIORITY)
    with Command.gridstat(tmp_path, "router", file, "--json") as command:
        host, port = ready_line(command)["metrics"]
        with urlopen(f"http://{host}:{port}/metrics", timeout=10) as page:
            told = page.read().decode()
        assert thread_priorities(command.process.pid) == {granted.fifo_priority, 0}
    assert f"gridstat_router_thread_fifo_priority {granted.fifo_priority:.1f}\n" in told
    assert str(granted) in command.errors


def thread_priorities(pid: int) -> set[int]:
    """The real-time priorities of a process; its Python threads have none."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {os.sched_getparam(int(task.name)).sched_priority for task in tasks}


def test_it_tells_the_service_manager_and_reloads(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert registry.folder.has_authority
    file = file_in(tmp_path, "127.0.0.1:9")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with Command.gridstat(tmp_path, "router", file) as command:
            assert manager.recv(256).splitlines()[0] == b"READY=1"
            assert "edge router c1/e0 ready on 127.0.0.1" in command.output
            file_in(tmp_path, "127.0.0.1:9", level="debug")
            command.signal(signal.SIGHUP)
            eventually(lambda: None if "reloaded: log" in command.errors else command.errors)
            file.write_text("nonsense")
            command.signal(signal.SIGHUP)
            eventually(lambda: None if "going on as before" in command.errors else command.errors)
            command.signal(signal.SIGINT)
            assert manager.recv(256) == b"STOPPING=1"
            assert command.exit_code() == 0, command.errors
    assert "router c1/e0 ended" in command.output
    entries = [line for line in command.errors.splitlines() if line.startswith("{")]
    assert any(json.loads(entry)["event"] == "no_session" for entry in entries)


def test_a_bad_file_is_told_and_ends_it(tmp_path: Path) -> None:
    file = file_in(tmp_path, "127.0.0.1")
    with Command.gridstat(tmp_path, "router", file) as command:
        assert command.exit_code() == 2
    assert "broker.addresses[0]" in command.errors
    assert "hint:" in command.errors
    assert "Traceback" not in command.errors
