"""Commands of several terminals at once: each has a name of its own, and none ends another."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from gridstat import FLOAT64
from gridstat.console.terminals import terminal_names
from lab.grid_files import OPERATOR
from tests.cluster.command import GRIDSTAT, Command
from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from gridstat.endpoint.connection import Connection
    from tests.cluster.end_points.local_cloud import LocalCloud

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
WITHIN_S = 60.0
VOLTAGE = "c1/north/pmu-1/voltage"


def gridstat(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [GRIDSTAT, *(str(word) for word in words)],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )


def other_host(cloud: LocalCloud, folder: Path, *, first: int = 1) -> Path:
    """The folder of another host: addresses, and terminals issued beforehand; no authority."""
    authority = cloud.certificates
    words = ("terminals", "c1", "--first", str(first), "--folder", str(authority))
    assert gridstat("certificates", *words).returncode == 0
    (folder / "certificates").mkdir(parents=True)
    shutil.copy(cloud.files.folder(OPERATOR) / "access.toml", folder)
    shutil.copy(authority / "ca.pem", folder / "certificates")
    for name in terminal_names("c1", first=first):
        for pair in authority.glob(f"endpoint-{name.replace('/', '__')}.*"):
            shutil.copy(pair, folder / "certificates")
    return folder


def subscribers(cloud: LocalCloud) -> list[str]:
    return sorted(one["subscriber"] for one in cloud.survey()["subscriptions"])


def start_subscribe(folder: Path, place: Path, stack: ExitStack) -> Command:
    place.mkdir()
    command = Command.gridstat(place, "subscribe", VOLTAGE, "--folder", folder, "--json")
    return stack.enter_context(command)


def test_commands_at_once_take_terminals_in_turn_and_none_ends_another(
    cloud: LocalCloud, pmu: Connection, tmp_path: Path
) -> None:
    pmu.publish(VOLTAGE, FLOAT64, rate=10)
    folder = other_host(cloud, tmp_path / "host")
    with ExitStack() as stack:
        three = [start_subscribe(folder, tmp_path / f"{n}", stack) for n in range(3)]

        def complaint() -> str | None:
            found = subscribers(cloud)
            errors = " ".join(one.errors for one in three)
            return None if found == terminal_names("c1", count=3) else f"{found} {errors}"

        eventually(complaint, within_s=WITHIN_S)
        found = gridstat("find", "c1/**", "--folder", folder, "--json")
        assert found.returncode == 0, found.stderr
        assert [json.loads(line)["name"] for line in found.stdout.splitlines()] == [VOLTAGE]
        assert [one.process.poll() for one in three] == [None] * 3
        three[0].process.kill()
        three[0].process.wait()
        found = gridstat("find", "c1/**", "--folder", folder, "--json")
        assert found.returncode == 0, found.stderr
        assert [one.end(signal.SIGTERM) for one in three[1:]] == [0, 0]


def test_a_terminal_that_another_host_uses_is_passed_over(
    cloud: LocalCloud, pmu: Connection, tmp_path: Path
) -> None:
    pmu.publish(VOLTAGE, FLOAT64, rate=10)
    here = other_host(cloud, tmp_path / "here")
    there = other_host(cloud, tmp_path / "there")
    with ExitStack() as stack:
        one = start_subscribe(here, tmp_path / "a", stack)
        eventually(
            lambda: None if "c1/terminal-1" in subscribers(cloud) else one.errors or "none yet",
            within_s=WITHIN_S,
        )
        two = start_subscribe(there, tmp_path / "b", stack)
        eventually(
            lambda: None if "c1/terminal-2" in subscribers(cloud) else two.errors or "none yet",
            within_s=WITHIN_S,
        )
        assert "c1/terminal-1" in subscribers(cloud), "the first was not ended"
        assert [each.end(signal.SIGTERM) for each in (one, two)] == [0, 0]
