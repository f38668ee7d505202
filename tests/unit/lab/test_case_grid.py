"""Grids of power cases: lengths that mean something, connected clouds, connected scopes above."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import networkx
import pytest

from benchmarks.tree_case import measure_case
from lab.case_grid import grid_of_case
from lab.errors import LabError
from lab.national_grid import GridSize
from lab.power_case import LENGTH_KM_MAX, read_power_case
from lab.tree_plan import cloud_of

if TYPE_CHECKING:
    from pathlib import Path

    from lab.national_grid import NationalGrid

LINE = ["from_bus", "to_bus", "length_km", "x_ohm_per_km", "in_service"]


def table(columns: list[str], rows: list[list[object]]) -> dict[str, object]:
    """Return a table in pandapower's form: JSON within JSON."""
    held = {"columns": columns, "index": list(range(len(rows))), "data": rows}
    return {"_module": "pandas.core.frame", "_class": "DataFrame", "_object": json.dumps(held)}


def case_file(folder: Path, lines: list[list[object]], kv: float = 138.0) -> Path:
    """Buses as the lines need, and one more that hangs on the first by a transformer."""
    buses = 2 + max(int(str(end)) for line in lines for end in line[:2])
    switches: list[list[object]] = [[0, 1, "b", False], [0, 2, "l", True]]
    tables = {
        "bus": table(["vn_kv", "in_service"], [[kv, True]] * buses),
        "line": table(LINE, lines),
        "trafo": table(["hv_bus", "lv_bus", "in_service"], [[0, buses - 1, True]]),
        "switch": table(["bus", "element", "et", "closed"], switches),
    }
    path = folder / "case.json"
    path.write_text(json.dumps({"_class": "pandapowerNet", "_object": tables}), encoding="utf-8")
    return path


def ladder(count: int) -> list[list[object]]:
    """Two rows of buses, joined like the rungs of a ladder, numbered without any order."""
    name = [number * 7 % (2 * count) for number in range(2 * count)]
    rails = [(at, at + 1) for side in (0, count) for at in range(side, side + count - 1)]
    rungs = [(at, at + count) for at in range(count)]
    return [[name[one], name[other], 1.0, 12.0, True] for one, other in (*rails, *rungs)]


def test_lengths_follow_from_the_reactance_where_the_case_tells_none(tmp_path: Path) -> None:
    lines: list[list[object]] = [[0, 1, 1.0, 20.0, True], [1, 2, 1.0, -4.0, True]]
    assert read_power_case(case_file(tmp_path, lines)).links == (
        (0, 1, 50.0),
        (0, 3, 0.0),
        (1, 2, 10.0),
    )
    bundled = read_power_case(case_file(tmp_path, [[0, 1, 1.0, 30.0, True]], kv=380.0))
    assert bundled.links[0] == (0, 1, 100.0)
    reduced = read_power_case(case_file(tmp_path, [[0, 1, 1.0, 90_000.0, True]]))
    assert reduced.links[0] == (0, 1, LENGTH_KM_MAX)


def test_lengths_that_a_case_tells_are_taken_and_what_is_off_is_left_out(tmp_path: Path) -> None:
    lines: list[list[object]] = [[0, 1, 12.5, 9.0, True], [1, 2, 1.0, 9.0, True]]
    lines.append([0, 2, 3.0, 9.0, False])
    case = read_power_case(case_file(tmp_path, lines))
    assert case.name == "case"
    assert case.buses == (0, 1, 2, 3)
    assert case.links == ((0, 1, 12.5), (0, 3, 0.0), (1, 2, 1.0))


def test_a_case_is_cut_into_connected_clouds_that_its_lines_join(tmp_path: Path) -> None:
    case = read_power_case(case_file(tmp_path, ladder(10)))
    grid = grid_of_case(case, GridSize(clouds=5, levels=2, pmus_per_cloud=2))
    assert grid.router_count == 21
    for cloud in grid.plan.clouds.values():
        inside = networkx.DiGraph((one.from_router, one.to_router) for one in cloud.channels)
        inside.add_nodes_from(router.name for router in cloud.routers)
        assert networkx.is_strongly_connected(inside)


def scope_graph(grid: NationalGrid, broker: str) -> networkx.Graph:
    """The clouds below a broker, and the channels between them that it or a lower one owns."""
    plan = grid.plan
    graph = networkx.Graph()
    graph.add_nodes_from(cloud for cloud in plan.clouds if broker in plan.scope(cloud))
    for name, found in plan.brokers.items():
        if name == broker or broker in found.above:
            graph.add_edges_from(
                (cloud_of(one.from_router), cloud_of(one.to_router)) for one in found.channels
            )
    return graph


def test_the_scope_of_every_broker_of_a_case_is_connected(tmp_path: Path) -> None:
    case = read_power_case(case_file(tmp_path, ladder(50)))
    grid = grid_of_case(case, GridSize(clouds=24, levels=4, branching=3))
    above = [name for name, broker in grid.plan.brokers.items() if broker.children]
    assert {grid.plan.brokers[name].depth for name in above} == {0, 1, 2}
    for name in above:
        assert networkx.is_connected(scope_graph(grid, name)), name


def test_what_is_not_joined_to_the_rest_of_a_case_is_left_out(tmp_path: Path) -> None:
    lines: list[list[object]] = [*ladder(10), [30, 31, 1.0, 5.0, True]]
    case = read_power_case(case_file(tmp_path, lines))
    assert grid_of_case(case, GridSize(clouds=4, levels=2)).router_count == 20 + 1
    with pytest.raises(LabError, match="too few"):
        grid_of_case(case, GridSize(clouds=22, levels=2))


def test_subscriptions_are_granted_all_over_a_case(tmp_path: Path) -> None:
    path = case_file(tmp_path, ladder(20))
    figures = measure_case(path, routers=4, pairs=4, subscriptions=8)
    assert figures["case_clouds"] == 10
    assert figures["case_pairs_refused"] == 0
    assert float(figures["case_latency_ms"]) > 0.0


def test_what_is_no_power_case_is_said_to_be_none(tmp_path: Path) -> None:
    path = tmp_path / "case.json"
    path.write_text('{"bus": []}', encoding="utf-8")
    with pytest.raises(LabError, match="not a case of pandapower"):
        read_power_case(path)
