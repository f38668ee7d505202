"""A tree as lines: every broker at its place, and absent ones marked."""

from __future__ import annotations

from typing import Any

from gridstat.console.live.grid_survey import GridSurvey
from gridstat.console.live.tree_view import tree_facts, tree_lines

CHANNEL = {
    "channel": "c1/b0→c2/b0",
    "level": 0,
    "is_open": True,
    "is_up": True,
    "is_pressed": False,
    "contracts": 3,
    "promised_bytes_per_s": 1_500.0,
    "bandwidth_bytes_per_s": 20_000,
}
ROOT = {
    "broker": "root",
    "depth": 0,
    "term": 3,
    "children": [
        {"name": "north", "is_joined": True, "term": 1},
        {"name": "c3", "is_joined": False, "term": 5},
    ],
    "channels": [CHANNEL, {**CHANNEL, "channel": "c2/b0→c1/b0", "is_up": False}],
    "contracts": 12,
    "segments": 0,
    "broken": 1,
    "transactions": 2,
    "releases": 1,
}
NORTH = {
    "broker": "north",
    "depth": 1,
    "term": 2,
    "children": [{"name": "c1", "is_joined": True, "term": 4}],
    "channels": [],
    "contracts": 1,
    "segments": 7,
    "broken": 0,
    "transactions": 0,
    "releases": 0,
}
PARENTS = {"north": "root", "c1": "north", "c3": "root"}


def cloud(name: str, depth: int | None = 2) -> dict[str, Any]:
    return {
        "cloud": name,
        "depth": depth,
        "term": 4,
        "routers": [{"is_up": True}, {"is_up": False}],
        "totals": {"routers": 2, "subscriptions": 1_200, "segments": 3},
    }


def test_brokers_are_drawn_below_their_parents_with_the_channels_that_they_own() -> None:
    surveys = {"c1": cloud("c1"), "root": ROOT, "north": NORTH}
    grid_survey = GridSurvey(surveys, {"c3": "c3 has not answered yet"}, values={})
    assert list(tree_lines(grid_survey, PARENTS)) == [
        "root: root, depth 0, term 3; 12 contracts owned, 1 of them impaired, 3 being settled",
        "│  c1/b0→c2/b0: level 0, up, 3 contracts, 1,500 bytes/s promised of 20,000",
        "│  c2/b0→c1/b0: level 0, DOWN, 3 contracts, 1,500 bytes/s promised of 20,000",
        "├─ north: broker, depth 1, term 2; joined, known at term 1; 1 contract owned, "
        "7 segments for its parent",
        "│  └─ c1: cloud, depth 2, term 4; joined; 1 of 2 routers up, 1,200 subscriptions, "
        "3 segments",
        "└─ c3: AWAY, c3 has not answered yet; NOT JOINED",
    ]


def test_a_tree_is_drawn_as_the_folder_tells_while_its_root_is_away() -> None:
    grid_survey = GridSurvey(
        {"c1": cloud("c1")}, {"root": "no answer", "north": "no answer"}, values={}
    )
    head, middle, *_ = tree_lines(grid_survey, PARENTS)
    assert head == "root: AWAY, no answer"
    assert middle == "├─ north: AWAY, no answer"


def test_children_are_drawn_though_the_folder_does_not_tell_of_them() -> None:
    lines = list(tree_lines(GridSurvey({"root": ROOT}, {}, values={})))
    assert lines[-1] == "└─ c3: AWAY, the folder has no address of it; NOT JOINED"


def test_a_lone_cloud_is_a_tree_of_one() -> None:
    (line,) = tree_lines(GridSurvey({"c1": cloud("c1", depth=None)}, {}, values={}))
    assert line.startswith("c1: cloud, term 4; 1 of 2 routers up")


def test_programs_are_told_the_same() -> None:
    facts = tree_facts(GridSurvey({"root": ROOT, "c1": cloud("c1")}, {"c3": "gone"}, {}), PARENTS)
    assert [(one["name"], one["parent"], one["kind"]) for one in facts["brokers"]] == [
        ("root", "", "qos"),
        ("c1", "north", "leaf"),
    ]
    assert facts["away"] == [{"name": "c3", "parent": "root", "reason": "gone"}]
    assert [one["is_up"] for one in facts["brokers"][0]["channels"]] == [True, False]
