"""`gridstat up` with its pipeline: from a PMU to tables, and back as status alerts, once each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import gridstat
from gridstat.record.log_reader import LogReader
from gridstat.record.record_kinds import EVENTS
from tests.cluster.command import Command, survivors
from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from gridstat.endpoint.delivery import Delivery

WITHIN_S = 240.0
SMALL = """cloud = "c1"
[[router]]
name = "e0"
role = "edge"
[[pmu]]
name = "hill/pmu"
edges = ["e0"]
rate = "10/s"
quantities = ["frequency", "voltage-magnitude"]
[recorder]
edges = ["e0"]
variables = ["c1/hill/**", "c1/desk/**"]
[pipeline]
edges = ["e0"]
rules = "{rules}"
[[access_rule]]
name = "all"
who = "c1/**"
may = ["publish", "subscribe", "find"]
what = "c1/**"
"""
RULES = """[[rule]]
name = "high"
kind = "threshold"
variables = ["c1/desk/load"]
above = 50.0
"""

pytestmark = [
    pytest.mark.apart,
    pytest.mark.cluster,
    pytest.mark.spark,
    pytest.mark.timeout(600),
]


def progress_of(command: Command) -> dict[str, Any]:
    lines = command.lines_in("running")
    return dict(lines[-1]["pipeline"]["progress"]) if lines else {}


def lacking(command: Command, name: str, least: int) -> str | None:
    """Return a complaint for `eventually` while the pipeline has not come so far."""
    if command.process.poll() is not None:
        raise AssertionError(f"ended with {command.process.returncode}: {command.errors}")
    found = progress_of(command).get(name, 0)
    return None if found >= least else f"{name} is {found}, not {least} yet: {command.errors}"


RECORDS = """
import json, sys
import pyarrow.parquet as pq
from deltalake import DeltaTable
files = [path for table in sys.argv[1:] for path in DeltaTable(table).file_uris()]
tables = [pq.read_table(path, columns=["record"]) for path in files]
print(json.dumps(sorted(n for table in tables for n in table.column("record").to_pylist())))
"""


def records(*tables: Path) -> list[int]:
    """Return the records of all rows, read in another process, since Delta's threads never end."""
    words = [sys.executable, "-c", RECORDS, *map(str, tables)]
    found: list[int] = json.loads(subprocess.check_output(words, text=True, timeout=WITHIN_S))
    return found


class AlertedPublisher:
    """Publisher of a load that the test chooses, which receives the pipeline's alerts."""

    def __init__(self, cloud: Path) -> None:
        self._grid = gridstat.connect(["c1/e0"], name="c1/desk", folder=str(cloud))
        self._load = self._grid.publish("load", gridstat.FLOAT64, rate=10)
        self.value = 10.0
        self.alerts: Counter[tuple[int, int]] = Counter()
        self._grid.subscribe_pattern("c1/pipeline/**", on_event=self._receive)

    def _receive(self, event: Delivery) -> None:
        self.alerts[event.created_ns, event.sequence] += 1

    def lacking_alert(self) -> str | None:
        self._load.send(self.value)
        return None if self.alerts else "no alert has come"

    def lacking(self, grid: Command, name: str, least: int) -> str | None:
        self._load.send(self.value)
        return lacking(grid, name, least)

    def close(self) -> None:
        self._grid.close()


def test_what_is_recorded_is_archived_once_and_an_alarm_comes_once_though_the_driver_is_killed(
    tmp_path: Path,
) -> None:
    (tmp_path / "rules.toml").write_text(RULES)
    (tmp_path / "small.toml").write_text(SMALL.format(rules=tmp_path / "rules.toml"))
    cloud = tmp_path / "cloud"
    with Command.gridstat(tmp_path, "up", tmp_path / "small.toml", "-f", cloud, "--json") as grid:
        eventually(lambda: grid.complaint_without("running"), within_s=WITHIN_S)
        (started,) = grid.lines_in("started")
        publisher = AlertedPublisher(cloud)
        try:
            # An alarm older than a minute makes no alert, so Spark must run before.
            eventually(lambda: publisher.lacking(grid, "batch", 1), within_s=WITHIN_S)
            publisher.value = 100.0
            eventually(publisher.lacking_alert, within_s=WITHIN_S)
            os.kill(started["processes"]["pipeline"], signal.SIGKILL)
            taken = progress_of(grid)["taken"]
            eventually(lambda: publisher.lacking(grid, "taken", taken + 300), within_s=WITHIN_S)
        finally:
            publisher.close()
        shown = grid.lines_in("running")[-1]["pipeline"]
        assert [row["variable"] for row in shown["alarms"]] == ["c1/desk/load"]
        assert shown["rollups"]
        assert grid.end(signal.SIGINT) == 0
    assert list(publisher.alerts.values()) == [1]
    place = cloud / "pipeline"
    recorded = LogReader(place / "log", EVENTS).ends()[1]
    tables = place / "tables"
    assert records(tables / "events", tables / "quarantine") == list(range(recorded))
    assert survivors(started["processes"]) is None
