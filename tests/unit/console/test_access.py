"""Addresses that commands use for a cloud, and for brokers with a stand-by."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from gridstat.console.access import load_access
from gridstat.model.errors import ConfigurationError, Misuse, UnknownName

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """
cloud = "c1"
broker = { host = "192.0.2.1", port = 7100 }
name_service = { host = "192.0.2.1", port = 7101 }
[[tree]]
name = "root"
host = "192.0.2.9"
port = 7000
[[tree]]
name = "c1"
parent = "root"
host = "192.0.2.1"
port = 7100
[[stand_by]]
name = "c1"
host = "192.0.2.2"
port = 7100
"""


def test_a_broker_is_looked_for_where_it_stands_by_too(tmp_path: Path) -> None:
    (tmp_path / "access.toml").write_text(TEXT, encoding="utf-8")
    access = load_access(tmp_path)
    assert access.brokers == [("192.0.2.1", 7100), ("192.0.2.2", 7100)]
    assert access.beside("root").brokers == [("192.0.2.9", 7000)]


def folder_with(tmp_path: Path, *brokers: tuple[str, str], more: str = "") -> Path:
    lines = [
        'cloud = "c1"',
        'broker = { host = "192.0.2.1", port = 7100 }',
        'name_service = { host = "192.0.2.1", port = 7101 }',
    ]
    for name, parent in brokers:
        lines += ["[[tree]]", f'name = "{name}"', 'host = "192.0.2.1"', "port = 7100"]
        lines += [f'parent = "{parent}"'] if parent else []
        lines += ["name_service_port = 7101"] if name.startswith("c") else []
    (tmp_path / "access.toml").write_text("\n".join([*lines, more]), encoding="utf-8")
    return tmp_path


STAND_BY = '[[stand_by]]\nname = "c9"\nhost = "192.0.2.2"\nport = 7100'
EDGE = '[[edge]]\nname = "c1/e0"\nhost = "192.0.2.2"\nport = 7100\n'


@pytest.mark.parametrize(
    ("brokers", "more", "complaint"),
    [
        ((("root", "top"), ("top", "root"), ("c1", "root")), "", 'tree[0].parent ("root")'),
        ((("root", "root"),), "", "stands above itself"),
        ((("root", ""), ("c1", "root"), ("root", "")), "", 'tree[2].name: "root" is already'),
        ((("root", ""), ("c1", "rooot")), "", 'there is no broker "rooot"'),
        ((("root", ""), ("c1", "root")), STAND_BY, 'stand_by[0].name: there is no broker "c9"'),
        ((), EDGE * 2, 'edge[1].name: "c1/e0" is already edge[0]'),
    ],
)
def test_a_tree_that_is_none_is_told_with_file_and_key(
    tmp_path: Path, brokers: tuple[tuple[str, str], ...], more: str, complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(complaint)) as refused:
        load_access(folder_with(tmp_path, *brokers, more=more))
    assert "access.toml" in str(refused.value)
    assert refused.value.hint


TREE = (("root", ""), ("north", "root"), ("c1", "north"), ("c2", "root"))


def test_only_brokers_that_the_folder_tells_of_are_asked(tmp_path: Path) -> None:
    access = load_access(folder_with(tmp_path, *TREE))
    assert access.at("north").cloud == "north"
    assert access.at("c1") is access
    with pytest.raises(UnknownName, match="no broker rooot") as unknown:
        access.at("rooot")
    assert unknown.value.hint == "this folder knows c1, c2, north, root"
    with pytest.raises(UnknownName, match="no broker c9"):
        access.owner_of("c9/x")


def test_a_cloud_has_no_children(tmp_path: Path) -> None:
    access = load_access(folder_with(tmp_path, *TREE))
    assert access.above_clouds("root").cloud == "root"
    for leaf in ("c1", "c2"):
        with pytest.raises(Misuse, match=f"{leaf} is the broker of a cloud") as refused:
            access.above_clouds(leaf)
        assert refused.value.hint == "brokers above clouds: root, north"
