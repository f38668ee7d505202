"""A whole cloud in namespaces: it starts, is harmed in every way, and comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lab.errors import LabError
from lab.grid import Grid
from lab.grid_plan import BROKER, EndPointPlan, GridPlan, LinkPlan, Management, RouterPlan
from lab.netns import processes_in
from lab.relay import Direction
from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


def chain(management: Management) -> GridPlan:
    return GridPlan(
        routers=(RouterPlan("e0", is_edge=True), RouterPlan("i0"), RouterPlan("e1", is_edge=True)),
        links=(LinkPlan("e0", "i0"), LinkPlan("i0", "e1")),
        end_points=(EndPointPlan("north/pmu", ("e0", "e1")),),
        management=management,
    )


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grid]:
    with Grid(chain(Management.APART), tmp_path_factory.mktemp("grid")) as made:
        made.start()
        yield made


def whole(grid: Grid) -> None:
    eventually(grid.complaint_of_state)


def channels_down(grid: Grid) -> set[str]:
    return {channel["label"] for channel in grid.survey()["channels"] if not channel["is_up"]}


def router(grid: Grid, name: str) -> dict[str, Any]:
    return next(at for at in grid.survey()["routers"] if at["name"] == f"c1/{name}")


def becomes(question: Callable[[], object], expected: object) -> None:
    def complaint() -> str | None:
        found = question()
        return None if found == expected else f"{found}, not {expected}"

    eventually(complaint)


def test_it_starts_with_every_router_in_step_and_every_channel_up(grid: Grid) -> None:
    whole(grid)
    assert len(grid.survey()["channels"]) == 4


def test_an_operator_watches_it_with_a_command(grid: Grid) -> None:
    assert "c1/i0" in grid.gridstat("top", "--once")


def test_a_wire_cut_one_way_takes_one_channel_and_no_session(grid: Grid) -> None:
    grid.network.cut("e0-i0", direction=Direction.FORWARD)
    becomes(lambda: channels_down(grid), {"c1/e0→c1/i0"})
    assert router(grid, "e0")["is_connected"]
    grid.network.heal("e0-i0")
    whole(grid)


def test_a_stopped_router_is_missed_and_resumes(grid: Grid) -> None:
    grid.daemons["i0"].pause()
    becomes(lambda: "c1/i0→c1/e1" in channels_down(grid), True)
    grid.daemons["i0"].resume()
    whole(grid)


def test_a_daemon_that_ends_instead_of_starting_is_quoted(grid: Grid) -> None:
    lone = grid.program("north/pmu", ["sh", "-c", "echo no such luck >&2; exit 3"])
    lone.start()
    with pytest.raises(LabError, match="north/pmu has ended: no such luck"):
        lone.wait_ready()


def test_a_killed_router_and_a_killed_broker_are_missed_and_come_back(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with Grid(chain(Management.APART), tmp_path_factory.mktemp("killed")) as grid:
        grid.start()
        before = grid.daemons["i0"].pid
        grid.daemons["i0"].kill()
        becomes(lambda: router(grid, "i0")["is_up"], False)
        assert not grid.daemons["i0"].is_running
        grid.restart("i0")
        whole(grid)
        assert grid.daemons["i0"].pid != before
        grid.daemons[BROKER].kill()
        becomes(lambda: "refused" in grid.survey(), True)
        grid.restart(BROKER)
        whole(grid)


def test_in_band_a_cut_wire_takes_the_sessions_behind_it_too(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with Grid(chain(Management.IN_BAND), tmp_path_factory.mktemp("in_band")) as grid:
        grid.start()
        grid.network.cut("i0-e1")
        becomes(lambda: router(grid, "e1")["is_connected"], False)
        assert router(grid, "i0")["is_connected"]
        grid.network.heal("i0-e1")
        whole(grid)


def test_a_grid_in_a_user_namespace_works_and_nothing_is_left_of_running_stopped_and_dead(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("left")
    with Grid(chain(Management.APART), folder, as_user=True) as grid:
        grid.start()
        inodes = [namespace.inode for namespace in grid.namespaces.values()]
        grid.daemons["e0"].pause()
        grid.daemons["e1"].kill()
        assert processes_in(inodes[1])
    assert [processes_in(inode) for inode in inodes] == [[]] * len(inodes)
