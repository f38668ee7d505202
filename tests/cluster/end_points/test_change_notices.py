"""Notices to applications on a real cloud about their edges, contracts and publications."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

import gridstat
from lab.declared_delay import DELAY_MS
from tests.cluster.command import Command
from tests.cluster.end_points.feeding import feeding
from tests.cluster.end_points.local_cloud import LocalCloud
from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gridstat.endpoint.change_stream import ChangeStream

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]
PMU = "c1/north/pmu-1"
WITHIN_S = 40.0
HOUR_NS = 3_600_000_000_000


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[LocalCloud]:
    with LocalCloud(tmp_path) as made:
        yield made


def facts(changes: list[gridstat.Change]) -> list[tuple[str, str]]:
    return [(str(change.kind), change.name) for change in changes]


def becomes(changes: list[gridstat.Change], *wanted: tuple[str, str]) -> None:
    """Wait until all of these changes were notified, in this order; others may lie in between."""

    def complaint() -> str | None:
        found = iter(facts(changes))
        return None if all(each in found for each in wanted) else f"{facts(changes)}"

    eventually(complaint)


def next_of(stream: ChangeStream, kind: gridstat.ChangeKind) -> gridstat.Change:
    while (found := stream.next(timeout_s=WITHIN_S)) is not None:
        if found.kind is kind:
            return found
    raise AssertionError(f"{kind} was not told within {WITHIN_S} s")


def test_a_dead_edge_and_its_return_are_told_to_connection_and_subscription(
    cloud: LocalCloud,
) -> None:
    told: list[gridstat.Change] = []
    own: list[gridstat.Change] = []
    with (
        cloud.connect(PMU) as pmu,
        cloud.connect("c1/reader", on_change=told.append) as reader,
    ):
        voltage = pmu.publish("voltage", gridstat.FLOAT64, rate=10)
        found = reader.subscribe(voltage.name, qos=gridstat.qos(redundancy=2), on_change=own.append)
        cloud.kill("e0")
        becomes(told, ("edge_lost", "c1/e0"), ("lowered", voltage.name))
        becomes(own, ("edge_lost", "c1/e0"), ("lowered", voltage.name))
        lost = next(change for change in told if change.kind is gridstat.ChangeKind.EDGE_LOST)
        assert lost.edges_left == 1
        cloud.start("e0")
        becomes(told, ("edge_lost", "c1/e0"), ("restored", "c1/e0"))
        becomes(own, ("lowered", voltage.name), ("restored", voltage.name))
        back = next(change for change in told if facts([change]) == [("restored", "c1/e0")])
        assert (back.code, back.edges_left) == (4, 2)
        assert own[-1].contract is not None
        assert own[-1].contract.paths_down == found.contract.paths_down == ()


def test_a_router_that_dies_breaks_moves_and_restores_the_contract_over_it(
    cloud: LocalCloud,
) -> None:
    with cloud.connect(PMU, ("e0",)) as pmu, cloud.connect("c1/reader", ("e1",)) as reader:
        voltage = pmu.publish("voltage", gridstat.FLOAT64, rate=10)
        one = reader.subscribe(voltage.name)
        two = reader.subscribe(voltage.name, qos=gridstat.qos(redundancy=2))
        changes, all_changes = two.changes(), reader.changes()
        cloud.kill("i0")
        lowered = next_of(changes, gridstat.ChangeKind.LOWERED)
        assert lowered.contract is not None
        assert len(lowered.contract.paths_down or ()) == 1
        assert "i0" in lowered.reason
        cloud.start("i0")
        restored = next_of(changes, gridstat.ChangeKind.RESTORED)
        assert restored.contract == two.contract
        assert next_of(all_changes, gridstat.ChangeKind.LOWERED).name == voltage.name
        assert one.contract.paths_down in {None, ()}
        pmu.close()
        purged = next_of(changes, gridstat.ChangeKind.PURGED)
        assert (purged.code, purged.is_over) == (1034, True)
        assert changes.next() is None  # It has ended with the subscription.
        assert two.is_over


def test_a_coroutine_is_told_that_a_variable_is_withdrawn(cloud: LocalCloud) -> None:
    with cloud.connect(PMU) as pmu, cloud.connect("c1/reader") as reader:
        voltage = pmu.publish("voltage", gridstat.FLOAT64, rate=10)
        found = reader.subscribe(voltage.name)

        async def follow() -> list[gridstat.Change]:
            stream = found.changes()
            await asyncio.to_thread(voltage.unpublish)
            async with asyncio.timeout(WITHIN_S):
                return [change async for change in stream]

        assert facts(asyncio.run(follow())) == [("purged", voltage.name)]


def test_a_publisher_is_told_that_its_events_are_policed(cloud: LocalCloud) -> None:
    with cloud.connect(PMU, ("e0",)) as pmu:
        voltage = pmu.publish("voltage", gridstat.FLOAT64, rate=1)
        good = pmu.publish("current", gridstat.FLOAT64, rate=1, delay_ms=DELAY_MS)
        changes = voltage.changes()
        assert good.send(1.0)
        sent = 0

        def complaint() -> str | None:
            nonlocal sent
            sent += voltage.send(1.0, created_ns=time.time_ns() - HOUR_NS)
            return None if voltage.policed else "nothing is told"

        eventually(complaint)
        first = next_of(changes, gridstat.ChangeKind.POLICED)
        assert (first.name, first.edge) == (voltage.name, "c1/e0")
        assert 1 <= first.policed["stamp"] <= sent
        before = voltage.policed
        eventually(lambda: complaint() or (None if voltage.policed > before else "no more"))
        later = next_of(changes, gridstat.ChangeKind.POLICED)
        assert first.policed["stamp"] < later.policed["stamp"] == voltage.policed <= sent
        assert good.policed == 0


def test_the_command_line_prints_what_becomes_of_its_contract(
    cloud: LocalCloud, tmp_path: Path
) -> None:
    with cloud.connect(PMU, ("e0",)) as pmu:
        voltage = pmu.publish("voltage", gridstat.FLOAT64, rate=10)
        folder = cloud.files.folder("operator")
        words: list[str | Path] = ["subscribe", voltage.name, "--json"]
        words += ["--folder", folder, "--as", "c1/terminal"]
        with Command.gridstat(tmp_path, *words) as command:
            with feeding(voltage, 10):
                eventually(lambda: None if '"value"' in command.output else command.errors or "-")
            voltage.unpublish()
            eventually(lambda: None if '"purged"' in command.output else command.output[-200:])
        lines = command.lines()
        (purged,) = [line for line in lines if line.get("is") == "change"]
        assert (purged["name"], purged["code"], purged["is_over"]) == (voltage.name, 1034, True)
