"""However a grid ends, it says why, and no process of it is left."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from tests.cluster.command import Command, kill, survivors
from tests.cluster.eventually import eventually

TOPOLOGY = Path(__file__).with_name("topology.toml")
pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order(tmp_path: Path, number: signal.Signals) -> None:
    with Command.gridstat(tmp_path, "up", TOPOLOGY, "--json") as command:
        eventually(lambda: command.complaint_without("running"))
        processes = command.lines()[0]["processes"]
        command.signal(number)
        assert command.exit_code() == 0, command.errors
        assert survivors(processes) is None
        account = command.lines()[-1]
    assert account["state"] == "ended"
    assert [each["missing"] for each in account["subscribers"]] == [0, 0, 0]
    assert "Traceback" not in command.errors


def test_a_signal_while_it_starts_ends_it_too(tmp_path: Path) -> None:
    with Command.gridstat(tmp_path, "up", TOPOLOGY) as command:
        eventually(lambda: None if "starting" in command.output else "it has not begun to start")
        command.signal(signal.SIGINT)
        assert command.exit_code() == 0, command.errors
    assert "Traceback" not in command.errors


def test_a_router_that_dies_is_started_again_once_with_its_table(tmp_path: Path) -> None:
    with Command.gridstat(tmp_path, "up", TOPOLOGY, "--json") as command:
        eventually(lambda: command.complaint_without("running"))
        before = command.lines()[0]["processes"]["router middle"]
        kill(before)

        def complaint() -> str | None:
            line = command.lines()[-1]
            if line["processes"]["router middle"] == before:
                return "the router is not started again"
            rates = [each["in_per_s"] for each in line["routers"] if each["name"] == "middle"]
            if not rates or rates[0] <= 0:
                return "the router forwards nothing"
            got = {each["name"]: each["got_per_s"] for each in line["subscribers"]}
            return None if got["far"] > 0 else "nothing arrives through it"

        eventually(complaint)
        assert "router middle ended (signal SIGKILL)" in command.errors
        assert "runs again, with its table" in command.errors

        processes = command.lines()[-1]["processes"]
        kill(processes["router middle"])
        assert command.exit_code() == 1
        assert "ended a second time" in command.errors
        assert survivors(processes) is None
    assert "Traceback" not in command.errors


def test_its_processes_do_not_outlive_it(tmp_path: Path) -> None:
    with Command.gridstat(tmp_path, "up", TOPOLOGY, "--json") as command:
        eventually(lambda: command.complaint_without("started"))
        processes = command.lines()[0]["processes"]
        kill(command.process.pid)
        command.process.wait()
        eventually(lambda: survivors(processes))


@pytest.mark.parametrize("whose", ["router", "subscriber"])
def test_a_port_that_is_taken_is_told_by_name(tmp_path: Path, whose: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        name = {"router": 'name = "middle"', "subscriber": 'name = "far"'}[whose]
        text = TOPOLOGY.read_text(encoding="utf-8").replace(name, f"{name}\ndata_port = {port}")
        file = tmp_path / "taken.toml"
        file.write_text(text, encoding="utf-8")
        with Command.gridstat(tmp_path, "up", file, "--json") as command:
            assert command.exit_code() == 1
            errors = command.errors
    assert str(port) in errors
    assert {"router": "router middle", "subscriber": '"far"'}[whose] in errors
    assert "hint: choose another" in errors
    assert "Traceback" not in errors


def test_a_bad_file_is_one_message_with_file_key_and_hint(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    text = TOPOLOGY.read_text(encoding="utf-8").replace('to = "middle"', 'to = "mitte"', 1)
    file.write_text(text, encoding="utf-8")
    with Command.gridstat(tmp_path, "up", file) as command:
        assert command.exit_code() == 2
    assert command.output == ""
    assert command.errors.splitlines() == [
        f'error: {file}: channel[0].to: there is no router "mitte" (4100)',
        "hint: routers of this file: west, middle, east; or add a [[router]] of that name",
    ]


def test_into_a_pipe_goes_a_line_a_second_and_the_account(tmp_path: Path) -> None:
    with Command.gridstat(tmp_path, "up", TOPOLOGY, "--seconds", "1") as command:
        assert command.exit_code() == 0, command.output + command.errors
    assert "What to look at" in command.output
    assert "subscribers got" in command.output
    assert "far: " in command.output.splitlines()[-1]
