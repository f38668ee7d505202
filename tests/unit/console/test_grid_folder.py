"""The folder of a grid: a file for each daemon that the daemon itself can read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.console.access import load_access
from gridstat.console.cli.attaching import edge_addresses
from gridstat.console.config.cloud_file import load_cloud
from gridstat.console.config.grid_file import DEFAULT_GRID_FILE, default_grid_text, grid_from_text
from gridstat.console.config.router_file import load_router
from gridstat.console.config.tree_file import load_tree
from gridstat.console.grid_folder import GridFolder
from gridstat.console.live.run import jobs
from gridstat.model.errors import Misuse

if TYPE_CHECKING:
    from pathlib import Path

ALONE = 'cloud = "c1"\n[[router]]\nname = "e0"\nrole = "edge"\n'


@pytest.fixture
def built_in(tmp_path: Path) -> GridFolder:
    text = default_grid_text()
    folder = GridFolder(tmp_path, grid_from_text(text, file=DEFAULT_GRID_FILE), text)
    folder.write()
    return folder


def test_each_broker_of_a_tree_finds_its_parent_or_its_children(built_in: GridFolder) -> None:
    root, channels = load_tree(built_in.file_of_broker("root"))
    assert (root.parent, root.children, len(channels)) == (None, ("c1", "c2"), 4)
    journals = {root.journal}
    for cloud in root.children:
        settings, topology = load_cloud(built_in.file_of_broker(cloud))
        assert settings.parent is not None
        assert settings.parent.name == "root"
        assert settings.parent.places() == [("127.0.0.1", root.port)]
        assert topology.cloud == cloud
        journals.add(settings.journal)
    assert len(journals) == 3


def test_routers_of_two_clouds_find_their_own_broker(built_in: GridFolder) -> None:
    for name in ("c1/north-2", "c2/gate-a"):
        cloud = name.partition("/")[0]
        settings, _ = load_cloud(built_in.file_of_broker(cloud))
        assert load_router(built_in.router_file(name)).brokers == (("127.0.0.1", settings.port),)


def test_no_two_routers_share_a_file_whatever_their_clouds_are_called(tmp_path: Path) -> None:
    text = '[[broker]]\nname = "root"\n' + "".join(
        f'[[cloud]]\nname = "{cloud}"\n[[cloud.router]]\nname = "{router}"\nrole = "edge"\n'
        for cloud, router in (("a", "b-c"), ("a-b", "c"))
    )
    folder = GridFolder(tmp_path, grid_from_text(text, file="test"), text)
    folder.write()
    for name in ("a/b-c", "a-b/c"):
        assert load_router(folder.router_file(name)).name == name


def test_commands_find_every_broker_of_the_tree(built_in: GridFolder) -> None:
    access = load_access(built_in.path)
    assert {name: known.parent for name, known in access.tree.items()} == {
        "root": "",
        "c1": "root",
        "c2": "root",
    }
    other = access.beside("c2")
    assert (other.cloud, other.broker) == ("c2", access.tree["c2"].address)
    assert other.name_service == access.tree["c2"].name_service
    assert access.beside("c9") is access
    assert [place.partition("@")[0] for place in edge_addresses(other, None)] == [
        "c2/harbour-a",
        "c2/harbour-b",
    ]


def test_what_joins_two_clouds_is_asked_of_the_lowest_broker_above_both(
    built_in: GridFolder,
) -> None:
    access = load_access(built_in.path)
    assert access.owner_of("c1/a", "c1/b").cloud == "c1"
    assert access.owner_of("c2/a").broker == access.tree["c2"].address
    assert access.owner_of("c1/a", "c2/b").cloud == "root"
    assert access.owner_of("root").broker == access.tree["root"].address
    with pytest.raises(Misuse, match="above both c1/a and c9/b"):
        access.owner_of("c1/a", "c9/b")


def test_processes_start_from_the_root_down(built_in: GridFolder) -> None:
    grid = grid_from_text(default_grid_text(), file=DEFAULT_GRID_FILE)
    names = [[job.name for job in group] for group in jobs(grid, built_in)]
    assert names[:2] == [["broker/root"], ["broker/c1", "broker/c2"]]
    assert (len(names[2]), names[3:]) == (12, [["PMUs"], ["subscribers"]])
    assert built_in.metrics.keys() == {"broker/root", "broker/c1", "broker/c2", *names[2]}


def test_a_lone_cloud_has_the_plain_names(tmp_path: Path) -> None:
    grid = grid_from_text(ALONE, file="grid.toml")
    folder = GridFolder(tmp_path, grid, ALONE)
    folder.write()
    assert {path.name for path in tmp_path.glob("*.toml")} == {
        "access.toml",
        "broker.toml",
        "grid.toml",
        "router-e0.toml",
    }
    assert load_cloud(folder.broker_file)[0].parent is None
    assert load_access(tmp_path).tree == {}
    assert [[job.name for job in group] for group in jobs(grid, folder)] == [["broker"], ["c1/e0"]]
