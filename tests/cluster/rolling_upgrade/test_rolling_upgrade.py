"""Versions change one process at a time, under a stream over two disjoint ways that loses nothing.

north/pmu-0 ── e0 ── i0 ── i1 ── e2 ── centre/view-0
     └──────── e1 ── i2 ── i3 ── e3 ───────┘          rungs i0 ── i2, i1 ── i3
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gridstat.net.command.messages import SCHEMA_VERSION
from lab.errors import LabError
from lab.grid import GRIDSTAT, Grid
from lab.grid_plan import BROKER, EndPointPlan, GridPlan, LinkPlan, RouterPlan, two_ways
from lab.ledger import Window
from lab.load import GridLoad, LoadPlan
from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]
HERE = Path(__file__).parent
BEFORE, PRESENT, SEALED = 1, 2, 3
"""Versions of the datagram; the first is that of the first schema as well."""
NEXT = SCHEMA_VERSION + 1
WAYS = (("e0-i0", "i0-i1", "i1-e2"), ("e1-i2", "i2-i3", "i3-e3"), ("i0-i2", "i1-i3"))
ORDER = ("i3", "e0", "i1", "e3", "i0", "e1", "i2", "e2")


def use_other_router(grid: Grid, name: str, schema_version: int) -> None:
    """Let a router use another schema from its next start on."""
    words = [str(HERE / "other_router.py"), str(grid.files.router_file(name)), str(schema_version)]
    grid.program(name, [sys.executable, *words])


def write_datagram_version(grid: Grid, name: str, version: int) -> None:
    """Limit a router to datagrams of that version from its next start on."""
    file = grid.files.router_file(name)
    lines = file.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if not line.startswith("versions_max")]
    file.write_text("\n".join([f"versions_max = {version}", *kept, ""]), encoding="utf-8")


def upgrade(grid: Grid, name: str) -> None:
    """Drain a router of the versions before, and start one of the present in its place."""
    before = grid.daemons[name]
    assert before.stop() == 0, before.errors
    assert "does not know" not in before.output, "nobody is sent what is newer than his schema"
    write_datagram_version(grid, name, SEALED)
    after = grid.program(name, [GRIDSTAT, "router", grid.files.router_file(name)])
    after.start()
    after.wait_ready()


def versions(grid: Grid) -> dict[str, int]:
    return {each["label"]: each["datagram_version"] for each in grid.survey()["channels"]}


def expected_versions(grid: Grid, of: Mapping[str, int]) -> dict[str, int]:
    """Return the highest datagram version of both ends, for each channel."""
    cloud = grid.plan.cloud
    return {
        f"{cloud}/{near}→{cloud}/{far}": min(of[near], of[far])
        for link in grid.plan.links
        for near, far in ((link.near, link.far), (link.far, link.near))
    }


def await_clean(load: GridLoad, window: Window) -> None:
    """Every event of the window has arrived, once and unaltered."""

    def complaint() -> str | None:
        verdict = load.judge(window)
        return None if verdict.is_clean and verdict.expected else str(verdict)

    eventually(complaint)
    load.forget_before(window.to_ns)


def await_whole(grid: Grid, load: GridLoad) -> None:
    eventually(lambda: grid.complaint_of_state() or load.complaint())


def test_an_upgrade_router_by_router_loses_nothing_and_agrees_on_the_highest_versions(
    tmp_path: Path,
) -> None:
    plan = replace(two_ways(), security="none")
    of = {router.name: BEFORE for router in plan.routers}
    with Grid(plan, tmp_path) as grid:
        for name in of:
            write_datagram_version(grid, name, BEFORE)
            use_other_router(grid, name, BEFORE)
        grid.start()
        load = GridLoad(grid, LoadPlan(variables=2))
        load.start()
        assert set(versions(grid).values()) == {BEFORE}
        from_ns = time.time_ns()
        for name in ORDER:
            upgrade(grid, name)
            of[name] = PRESENT
            await_whole(grid, load)
            assert versions(grid) == expected_versions(grid, of)
            window = Window(from_ns, time.time_ns())
            await_clean(load, window)
            from_ns = window.to_ns
        assert set(versions(grid).values()) == {PRESENT}
        for way in WAYS:
            seal(grid, way)
            await_whole(grid, load)
            window = Window(from_ns, time.time_ns())
            await_clean(load, window)
            from_ns = window.to_ns
        assert set(versions(grid).values()) == {SEALED}


def seal(grid: Grid, way: tuple[str, ...]) -> None:
    """Mark the channels of one way as sealed in the broker's file, and restart the broker."""
    file = grid.files.broker_file
    head, *channels = file.read_text(encoding="utf-8").split("[[channel]]")
    marked = [
        text.replace('security = "none"', 'security = "hop"')
        if any(_joins(text, ends) for ends in way)
        else text
        for text in channels
    ]
    file.write_text("[[channel]]".join([head, *marked]), encoding="utf-8")
    assert grid.daemons[BROKER].stop() == 0, grid.daemons[BROKER].errors
    grid.restart(BROKER)


def _joins(text: str, ends: str) -> bool:
    return all(f'"{end}"' in text for end in ends.split("-"))


def test_end_points_move_to_sealed_edges_and_what_was_published_is_lost_nowhere(
    tmp_path: Path,
) -> None:
    """Step 4: all channels between routers are sealed already. A second subscriber takes the same
    variables while the first one connects anew."""
    first, second, publisher = "centre/view-0", "centre/view-1", "north/pmu-0"
    with Grid(replace(two_ways(subscribers=2), security="none"), tmp_path) as grid:
        write_security(grid.files.broker_file, "hop")
        grid.start()
        assert set(versions(grid).values()) == {SEALED}
        plan = LoadPlan(variables=2, idle=(second,), redundancy_of={second: 1}, keep=True)
        load = GridLoad(grid, plan)
        load.start()
        from_ns = time.time_ns()

        seal_end_points(grid, "e2")
        load.begin(second, security="hop")
        grid.wait_for(lambda: load.complaint(of=[second]))
        seal_end_points(grid, "e3")
        load.end(first)
        load.begin(first, security="hop")
        await_whole(grid, load)
        window = Window(from_ns, time.time_ns())
        await_clean_together(load, window)

        seal_end_points(grid, "e0")
        load.end(publisher)
        load.begin(publisher, security="hop")
        grid.wait_for(lambda: load.complaint(of=[second]))
        seal_end_points(grid, "e1")
        await_whole(grid, load)
        await_clean_together(load, Window(window.to_ns, time.time_ns()))


def test_an_end_point_that_does_not_seal_is_refused_by_a_sealed_edge_in_words(
    tmp_path: Path,
) -> None:
    with Grid(small_plan(), tmp_path) as grid:
        grid.start()
        load = GridLoad(grid, LoadPlan(variables=1))
        with pytest.raises(LabError) as found:
            load.begin("north/pmu-0", security="none")
        told = str(found.value)
        assert 'attaches with security "none"' in told
        assert 'connect with security="hop"' in told
        load.start()


def write_security(file: Path, security: str) -> None:
    """Write one security in the place of the other one, wherever a file has it."""
    other = "none" if security == "hop" else "hop"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(f'security = "{other}"', f'security = "{security}"'), "utf-8")


def seal_end_points(grid: Grid, edge: str) -> None:
    """Restart an edge router that seals the channels of its end-points from now on."""
    write_security(grid.files.router_file(edge), "hop")
    assert grid.daemons[edge].stop() == 0, grid.daemons[edge].errors
    grid.restart(edge)
    grid.wait_for(grid.complaint_of_state)


def await_clean_together(load: GridLoad, window: Window) -> None:
    """Every event of the window has come to one of the subscribers, unaltered."""

    def complaint() -> str | None:
        verdict = load.judge_together(window)
        return None if verdict.is_clean and verdict.expected else str(verdict)

    eventually(complaint)
    load.forget_before(window.to_ns)


def test_an_unmarked_channel_to_a_router_that_cannot_seal_stays_closed_in_words(
    tmp_path: Path,
) -> None:
    with Grid(small_plan(), tmp_path) as grid:
        write_datagram_version(grid, "e0", PRESENT)
        file = grid.files.router_file("e0")
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace('endpoint_security = "hop"', 'endpoint_security = "none"'))
        # What is waited for does not come; the reason is there long before.
        with pytest.raises(LabError, match="c1/e0→c1/e2 is down"):
            grid.start(within_s=15.0)
        closed = grid.survey()["keys"]["closed"]
        assert any("c1/e0 cannot seal" in reason for reason in closed)
        found = {each["label"]: each for each in grid.survey()["channels"]}
        assert found["c1/e0→c1/e2"]["datagram_version"] == 0
        assert found["c1/e1→c1/e3"]["datagram_version"] == SEALED


def small_plan() -> GridPlan:
    """Two ways without a common router, of two routers each."""
    edges = [RouterPlan(f"e{number}", is_edge=True) for number in range(4)]
    return GridPlan(
        routers=tuple(edges),
        links=(LinkPlan("e0", "e2"), LinkPlan("e1", "e3")),
        end_points=(
            EndPointPlan("north/pmu-0", ("e0", "e1")),
            EndPointPlan("centre/view-0", ("e2", "e3")),
        ),
    )


def test_a_broker_of_the_next_schema_takes_over_routers_of_three_schemas(tmp_path: Path) -> None:
    with Grid(replace(small_plan(), security="none"), tmp_path) as grid:
        use_other_router(grid, "e0", BEFORE)
        use_other_router(grid, "e3", NEXT)
        grid.start()
        load = GridLoad(grid, LoadPlan(variables=2))
        load.start()
        from_ns = time.time_ns()
        digests = {each["name"]: each["digest"] for each in grid.survey()["routers"]}

        assert grid.daemons[BROKER].stop() == 0, grid.daemons[BROKER].errors
        words = [str(HERE / "newer_broker.py"), str(grid.files.broker_file)]
        grid.program(BROKER, [sys.executable, *words])
        grid.restart(BROKER)
        await_whole(grid, load)
        assert {each["name"]: each["digest"] for each in grid.survey()["routers"]} == digests

        # Orders with fields that no router knows: a table that is rebuilt, and contracts anew.
        grid.daemons["e2"].kill()
        grid.restart("e2")
        await_whole(grid, load)
        await_clean(load, Window(from_ns, time.time_ns()))
        grid.daemons["centre/view-0"].kill()
        grid.restart("centre/view-0")
        await_whole(grid, load)
        advised = {
            line.rpartition("/")[2]
            for line in grid.daemons[BROKER].output.splitlines()
            if line.startswith("advised")
        }
        assert advised == {"e3"}, "only the router of its own schema is told what is new"
        assert "does not know" not in grid.daemons["e0"].output
        assert "does not know Advice" in grid.daemons["e3"].output
