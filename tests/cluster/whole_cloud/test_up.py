"""`gridstat up`: the built-in cloud from its first line to its closing account."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gridstat.console.grid_folder import locked
from tests.cluster.command import GRIDSTAT, Command, survivors
from tests.cluster.eventually import eventually
from tests.tidy.source import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

WITHIN_S = 120.0
ROOT_OF_PROCESSES = Path("/proc")
CONTRACTS_BETWEEN = 3
"""One of `coast-watch` for c2's frequency, two of `harbour-desk` for c1's; none is recorded."""
BETWEEN_CLOUDS = {"c1/coast-watch", "c2/harbour-desk"}

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


@pytest.mark.feature("S0-2", "S1-2", "S3-106")
def test_a_cloud_loses_nothing_redundant_by_a_killed_router_and_ends_with_an_account(
    tmp_path: Path,
) -> None:
    words = ("up", "--folder", tmp_path / "cloud", "--json", "--without-pipeline")
    with Command.gridstat(tmp_path, *words) as command:
        eventually(lambda: command.complaint_without("running"), within_s=WITHIN_S)
        (started,) = command.lines_in("started")
        roles = {
            router["name"]: router["role"]
            for router in command.lines_in("running")[0]["survey"]["routers"]
        }
        assert len(roles) == 8
        edges = ["c1/east-a", "c1/east-b", "c1/west-a", "c1/west-b"]
        assert sorted(name for name, role in roles.items() if role == "edge") == edges
        eventually(lambda: complaint_without_contracts(command), within_s=WITHIN_S)
        assert_the_guide_is_refused(tmp_path / "cloud")
        os.kill(started["processes"]["c1/north-1"], signal.SIGKILL)
        os.kill(started["processes"]["broker/root"], signal.SIGKILL)
        seen = len(command.lines_in("running"))
        eventually(lambda: command.complaint_without("running", count=seen + 4), within_s=WITHIN_S)
        assert command.end(signal.SIGINT) == 0
        (account,) = command.lines_in("ended")
    assert account["published"] > 0
    redundant = [
        (one["missing"], one["duplicates"])
        for one in account["subscriptions"]
        if one["subscriber"] in {"c1/protection", "c1/stability"} | BETWEEN_CLOUDS
    ]
    assert redundant == [(0, 0)] * 10
    assert survivors(started["processes"]) is None


def assert_the_guide_is_refused(folder: Path) -> None:
    """Check that the request that `docs/start.md` calls too much is refused with a reason."""
    text = (ROOT / "docs/start.md").read_text(encoding="utf-8")
    (words,) = re.findall(r"Ask for too much\s+\(`gridstat ([^`]+)`\)", text)
    asked = subprocess.run(
        [GRIDSTAT, *shlex.split(words), "--seconds", "1", "--folder", str(folder)],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert asked.returncode == 1, asked.stdout
    assert "(1038)" in asked.stderr


def complaint_without_contracts(command: Command) -> str | None:
    """Return None when the root owns a contract for each variable taken from the other cloud.

    Each on two paths that work, of which each takes one channel between the clouds: a busy machine
    may have kept a router silent for the tenth of a second that is too long.
    """
    others = command.lines_in("running")[-1]["others"]
    if "root" not in others:
        return "nothing is heard of the root"
    root = others["root"]
    paths = sum(channel["contracts"] for channel in root["channels"])
    found = (root["contracts"], paths, root["broken"])
    if found == (CONTRACTS_BETWEEN, 2 * CONTRACTS_BETWEEN, 0):
        return None
    return "the root owns {} contracts on {} paths, of which {} are broken".format(*found)


SMALL = """cloud = "c1"
[[router]]
name = "e0"
role = "edge"
[[pmu]]
name = "hill/pmu"
edges = ["e0"]
rate = "10/s"
quantities = ["frequency"]
[[subscriber]]
name = "desk"
edges = ["e0"]
variables = ["c1/hill/*/frequency"]
[[access_rule]]
name = "all"
who = "c1/**"
may = ["publish", "subscribe", "find"]
what = "c1/**"
"""


@pytest.fixture
def small(tmp_path: Path) -> Iterator[tuple[Command, dict[str, int]]]:
    """A cloud of one router, running; and its processes."""
    (tmp_path / "small.toml").write_text(SMALL)
    words = ("up", tmp_path / "small.toml", "--folder", tmp_path / "cloud", "--json")
    with Command.gridstat(tmp_path, *words) as command:
        eventually(lambda: command.complaint_without("running"), within_s=WITHIN_S)
        (started,) = command.lines_in("started")
        yield command, started["processes"]


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL])
def test_no_process_outlives_a_closed_terminal_or_a_kill(
    small: tuple[Command, dict[str, int]], number: signal.Signals
) -> None:
    command, processes = small
    assert len(processes) == 4
    assert command.end(number) == (0 if number is signal.SIGHUP else -signal.SIGKILL)
    eventually(lambda: survivors(processes), within_s=WITHIN_S)


def test_a_second_ctrl_c_ends_everything_at_once_and_starts_nothing_again(
    small: tuple[Command, dict[str, int]],
) -> None:
    command, processes = small
    os.kill(processes["subscribers"], signal.SIGSTOP)  # So that settling lasts.
    command.signal(signal.SIGINT)
    eventually(lambda: None if "Ctrl-C again" in command.errors else "it is not ending yet")
    assert command.end(signal.SIGINT) == 130
    assert "starting it again" not in command.errors
    assert command.lines_in("ended") == []
    assert survivors(processes) is None


def test_a_second_cloud_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    with locked(tmp_path / "cloud"):
        second = subprocess.run(
            [GRIDSTAT, "up", "--folder", str(tmp_path / "cloud")],
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
    assert second.returncode == 2
    assert "already" in second.stderr
    assert "hint: " in second.stderr


def test_a_router_that_dies_again_and_again_is_given_up_and_the_grid_runs_on(
    tmp_path: Path,
) -> None:
    (tmp_path / "two.toml").write_text(SMALL + '[[router]]\nname = "i0"\nrole = "inner"\n')
    words = ("up", tmp_path / "two.toml", "--folder", tmp_path / "cloud", "--json")
    with Command.gridstat(tmp_path, *words, "--without-pipeline") as command:
        eventually(lambda: command.complaint_without("running"), within_s=WITHIN_S)

        def complaint() -> str | None:
            for process_id in processes_of(command.process.pid, "router-i0.toml"):
                os.kill(process_id, signal.SIGKILL)
            return None if "c1/i0 is given up" in command.errors else command.errors

        eventually(complaint, within_s=WITHIN_S)
        seen = len(command.lines_in("running"))
        eventually(lambda: command.complaint_without("running", count=seen + 3), within_s=WITHIN_S)
        assert command.end(signal.SIGINT) == 0
        (account,) = command.lines_in("ended")
    assert account["given_up"] == ["c1/i0"]
    assert account["missing"] == 0
    assert "the rest of the grid runs on" in command.errors
    assert "gridstat router" in command.errors


def processes_of(parent: int, word: str) -> list[int]:
    """Children of a process that have a word in their command."""
    children = (ROOT_OF_PROCESSES / str(parent) / "task" / str(parent) / "children").read_text()
    found = []
    for child in map(int, children.split()):
        with suppress(FileNotFoundError):
            if word.encode() in (ROOT_OF_PROCESSES / str(child) / "cmdline").read_bytes():
                found.append(child)
    return found
