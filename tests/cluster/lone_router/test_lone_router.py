"""One router by itself, as a service manager runs it: ready, reloaded, drained."""

from __future__ import annotations

import signal
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gridstat.endpoint import Receiver, Sender
from gridstat.model.rate_law import NS_PER_S, Period, slot_of
from tests.cluster.command import Command
from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPOLOGY = Path(__file__).with_name("topology.toml")
PMU_CHANNEL = 1
FREQUENCY = 1
THIRTY = Period(1, 30)
SLOTS = 60
pytestmark = pytest.mark.cluster


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        receiver.expect(FREQUENCY, THIRTY)
        receiver.start()
        yield receiver


@pytest.fixture
def file(tmp_path: Path, receiver: Receiver) -> Path:
    """The topology with real ports in it."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as data,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as urgent,
    ):
        data.bind(("127.0.0.1", 0))
        urgent.bind(("127.0.0.1", 0))
        ports = [data.getsockname()[1], urgent.getsockname()[1], *receiver.ports]
    text = TOPOLOGY.read_text(encoding="utf-8")
    for place, port in zip(("1001", "1002", "1003", "1004"), ports, strict=True):
        text = text.replace(place, str(port))
    path = tmp_path / "grid.toml"
    path.write_text(text, encoding="utf-8")
    return path


def publish(command: Command, slots: range) -> None:
    _, data_port, urgent_port = command.lines_in("ready")[0]["address"]
    with Sender(PMU_CHANNEL, ("127.0.0.1", data_port, urgent_port)) as sender:
        for slot in slots:
            assert sender.send(FREQUENCY, 60.0, created_ns=slot * NS_PER_S // 30)


def assert_arrive(receiver: Receiver, slots: list[int]) -> None:
    arrived: list[int] = []

    def complaint() -> str | None:
        batch = receiver.read(timeout_s=0.1)
        arrived.extend(slot_of(ns, THIRTY) for ns in batch["created_ns"].tolist())
        return None if len(arrived) >= len(slots) else f"{len(arrived)} of {len(slots)} arrived"

    eventually(complaint)
    assert arrived == slots


def test_it_forwards_is_reloaded_and_drains(tmp_path: Path, file: Path, receiver: Receiver) -> None:
    first = slot_of(time.time_ns(), THIRTY)
    early, middle, late = (range(first + n * SLOTS, first + (n + 1) * SLOTS) for n in range(3))
    with Command.gridstat(tmp_path, "router", file, "west", "--json") as command:
        eventually(lambda: command.complaint_without("ready"))
        publish(command, early)
        assert_arrive(receiver, [slot for slot in early if slot % 3 == 0])

        file.write_text(file.read_text(encoding="utf-8").replace("every = 3", "every = 2"))
        command.signal(signal.SIGHUP)
        eventually(lambda: None if "reloaded: 1 variables" in command.errors else "not reloaded")
        publish(command, middle)
        assert_arrive(receiver, [slot for slot in middle if slot % 2 == 0])

        file.write_text("nonsense")
        command.signal(signal.SIGHUP)
        eventually(lambda: None if "going on as before" in command.errors else "not complained")
        publish(command, late)
        assert_arrive(receiver, [slot for slot in late if slot % 2 == 0])

        command.signal(signal.SIGTERM)
        assert command.exit_code() == 0, command.errors
        [ended] = command.lines_in("ended")
    assert ended["counters"]["in"] == 3 * SLOTS
    assert ended["counters"]["not_due"] + ended["counters"]["dispatched"] == 3 * SLOTS
    assert "Traceback" not in command.errors


def test_it_tells_the_service_manager(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with Command.gridstat(tmp_path, "router", file, "west") as command:
            assert manager.recv(64) == b"READY=1"
            command.signal(signal.SIGINT)
            assert manager.recv(64) == b"STOPPING=1"
            assert command.exit_code() == 0, command.errors
    assert "router west ready on 127.0.0.1" in command.output
    assert "router west ended" in command.output


def test_a_taken_port_is_told_and_ends_it(tmp_path: Path, file: Path, receiver: Receiver) -> None:
    data_port, _ = receiver.ports
    text = file.read_text(encoding="utf-8").replace(f"data_port = {data_port}", "data_port = 9")
    lines = text.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("data_port"))
    lines[at] = f"data_port = {data_port}"
    file.write_text("\n".join(lines), encoding="utf-8")
    with Command.gridstat(tmp_path, "router", file, "west") as command:
        assert command.exit_code() == 1
    assert f"port {data_port}" in command.errors
    assert "Traceback" not in command.errors
