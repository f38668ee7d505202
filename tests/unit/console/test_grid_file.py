"""The file of `gridstat up`: it becomes a grid, and errors name their key."""

from __future__ import annotations

import pytest

from gridstat.console.config.cloud_grid import period_of
from gridstat.console.config.grid_file import DEFAULT_GRID_FILE, default_grid_text, grid_from_text
from gridstat.console.grid import PipelineOptions, Pmu
from gridstat.model.errors import ConfigurationError
from gridstat.model.qos import QosRequest
from gridstat.model.rate_law import Period

CLOUD = (
    'cloud = "c1"\naccess = "observe"\n'
    '[[router]]\nname = "e0"\nrole = "edge"\n[[router]]\nname = "i0"\n'
)
PMU = '[[pmu]]\nname = "hill/pmu-1"\nedges = ["e0"]\nrate = "30/s"\nquantities = ["frequency"]\n'
RECORDER = '[recorder]\nedges = ["e0"]\nvariables = ["c1/**"]\n'
PIPELINE = '[pipeline]\nedges = ["e0"]\n'
SUBSCRIBER = '[[subscriber]]\nname = "desk"\nedges = ["e0"]\nvariables = ["c1/**"]\n'


TREE = """[[broker]]
name = "root"
[[broker]]
name = "north"
parent = "root"
[[cloud]]
name = "c1"
parent = "north"
access = "observe"
[[cloud.router]]
name = "e0"
role = "edge"
[[cloud.router]]
name = "b0"
role = "border"
[[cloud]]
name = "c2"
parent = "north"
[[cloud.router]]
name = "b0"
[[cloud]]
name = "c3"
[[cloud.router]]
name = "b0"
[[channel]]
from = "c1/b0"
to = "c3/b0"
latency_ms = 2
[[channel]]
from = "c1/b0"
to = "c2/b0"
both_ways = true
bandwidth_bytes_per_s = 1_000
"""


def test_the_built_in_grid_has_two_disjoint_ways_and_ends_on_two_edges() -> None:
    grid = grid_from_text(default_grid_text(), file=DEFAULT_GRID_FILE)
    assert len(grid.topology.routers) == 8
    assert [cloud.cloud for cloud in grid.clouds] == ["c1", "c2"]
    assert len({channel.from_router for channel in grid.tree.channels["root"]}) == 4
    assert {len(pmu.edges) for pmu in grid.pmus} == {2}
    assert {subscriber.qos.redundancy for subscriber in grid.subscribers} == {1, 2}
    assert len({subscriber.qos.interval for subscriber in grid.subscribers}) > 2


def test_several_clouds_stand_in_a_tree_and_channels_belong_to_the_lowest_broker() -> None:
    grid = grid_from_text(TREE, file="grid.toml")
    assert grid.tree.brokers == ("root", "north")
    assert grid.tree.parents == {"north": "root", "c1": "north", "c2": "north", "c3": "root"}
    assert grid.tree.children("root") == ("north", "c3")
    owned = {name: [one.label for one in found] for name, found in grid.tree.channels.items()}
    assert owned == {
        "root": ["c1/b0→c3/b0"],
        "north": ["c1/b0→c2/b0", "c2/b0→c1/b0"],
    }
    assert [channel.channel_id for channel in grid.tree.channels["north"]] == [1, 2]
    assert [router.name for router in grid.routers] == ["c1/e0", "c1/b0", "c2/b0", "c3/b0"]
    assert grid.summary().startswith("clouds c1, c2, c3 under root: 4 status routers, 3 event")


def test_a_cloud_of_several_is_written_like_one_that_is_alone() -> None:
    text = TREE.replace(
        '[[cloud]]\nname = "c2"', PMU.replace("[[pmu", "[[cloud.pmu") + '[[cloud]]\nname = "c2"'
    )
    grid = grid_from_text(text, file="grid.toml")
    assert grid.pmus == (Pmu("c1/hill/pmu-1", ("c1/e0",), Period(1, 30), ("frequency",)),)


def test_names_below_the_cloud_become_full() -> None:
    grid = grid_from_text(CLOUD + PMU, file="grid.toml")
    assert grid.pmus == (Pmu("c1/hill/pmu-1", ("c1/e0",), Period(1, 30), ("frequency",)),)
    assert grid.pmus[0].variable_names() == ("c1/hill/pmu-1/frequency",)


def test_a_subscriber_changes_its_preset_by_what_it_says_itself() -> None:
    text = CLOUD + SUBSCRIBER + 'preset = "wide-area"\nrate = "10/s"\nlatency_ms = 7.5\n'
    (subscriber,) = grid_from_text(text, file="grid.toml").subscribers
    assert subscriber.qos == QosRequest(
        interval=Period(1, 10), latency_us=7_500, redundancy=2, redundancy_worst=1, priority=2
    )


def test_the_recorder_is_a_subscriber_and_the_pipeline_says_where_spark_runs() -> None:
    text = CLOUD + RECORDER + "redundancy = 2\n" + PIPELINE + 'master = "spark://one:7077"\n'
    grid = grid_from_text(text, file="grid.toml")
    assert grid.recorder is not None
    assert (grid.recorder.name, grid.recorder.qos.redundancy) == ("c1/recorder", 2)
    assert grid.pipeline == PipelineOptions(("c1/e0",), master="spark://one:7077")


def test_rates_are_exact() -> None:
    assert period_of("30/s") == Period(1, 30)
    assert period_of("1/5s") == Period(5, 1)


MISTAKES = {
    CLOUD + PMU.replace("e0", "i0"): 'there is no edge router "i0"',
    CLOUD + PMU.replace("30/s", "30 Hz"): "pmu[0].rate",
    CLOUD + PMU.replace("frequency", "colour"): "no such quantity",
    CLOUD + PMU.replace('["e0"]', '["e0", "e0", "e0"]'): "pmu[0].edges",
    CLOUD + PMU + SUBSCRIBER.replace("desk", "hill/pmu-1"): "is already pmu[0]",
    CLOUD + SUBSCRIBER.replace("desk", "recorder") + RECORDER: "is already subscriber[0]",
    CLOUD + RECORDER + 'rate = "1/s"\nevery = 2': 'recorder ("recorder")',
    CLOUD + PIPELINE: "there is no recorder",
    CLOUD + RECORDER + PIPELINE.replace("e0", "i0"): "pipeline.edges[0]",
    CLOUD + RECORDER + PIPELINE + 'driver_memory = "lots"': "pipeline.driver_memory",
    CLOUD + SUBSCRIBER.replace("c1/**", "c1/*x"): "subscriber[0].variables[0]",
    CLOUD + SUBSCRIBER + 'preset = "best"': "no such preset",
    CLOUD + SUBSCRIBER + 'rate = "1/s"\nevery = 2': "say the same thing twice",
    CLOUD + SUBSCRIBER + "redundancy = 9": "subscriber[0].redundancy",
    TREE.replace('"north"\nparent = "root"', '"north"'): "2 brokers have no parent: root, north",
    TREE.replace('"root"\n[[b', '"root"\nparent = "north"\n[[b'): "no root",
    TREE.replace('"c3"', '"c2"'): '"c2" is cloud[1] already',
    TREE.replace(
        'parent = "north"', 'parent = "south"'
    ): 'cloud[0].parent: there is no broker "south"',
    TREE.replace('parent = "north"', 'parent = "root"'): 'broker[1] ("north"): nothing is below it',
    TREE.replace('"c3/b0"', '"c3/b9"'): 'channel[0].to: there is no router "c3/b9"',
    TREE.replace('to = "c2/b0"', 'to = "c1/e0"'): "channel[1].to: both ends are in cloud c1",
    TREE.replace('to = "c2/b0"', 'to = "c3/b0"'): "channel[1]: from",
    TREE.replace('name = "e0"\n', ""): 'cloud[0].router[0].name ("c1"): missing',
    TREE.replace(
        'name = "b0"\nrole', 'name = "e0"\nrole'
    ): '("c1"): router[1].name: "e0" is already',
}


@pytest.mark.parametrize(("text", "problem"), MISTAKES.items())
def test_a_mistake_is_told_with_its_key_and_a_hint(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as found:
        grid_from_text(text, file="grid.toml")
    assert problem in str(found.value)
    assert found.value.hint


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("timing", "timing = { silent_ms_max = 30 }\n"),
        ("quota", "quota = { publications_max = 1 }\n"),
        ("log", 'log = { level = "debug" }\n'),
        ("journal", 'journal = "postgresql://192.0.2.9/gridstat"\n'),
        ("port", "port = 7100\n"),
        ("parent", 'parent = { name = "root", addresses = ["127.0.0.1:7000"] }\n'),
    ],
)
def test_what_would_have_no_effect_is_refused(key: str, line: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"grid\.toml: {key}: .* does not obey it"):
        grid_from_text(line + CLOUD, file="grid.toml")


def test_end_points_without_rules_are_refused_with_the_rules_to_write() -> None:
    text = CLOUD.replace('access = "observe"\n', "") + PMU
    with pytest.raises(ConfigurationError) as found:
        grid_from_text(text, file="grid.toml")
    assert "without rules nobody may publish or subscribe" in str(found.value)
    (_, hint) = found.value.hint.split("\n\n", 1)
    grid = grid_from_text(f"{text}{hint}", file="grid.toml")
    assert [rule.identifier for rule in grid.topology.rules] == ["publishers", "readers"]


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ('name = "a"\nwho = "c1/**/x"\nmay = ["find"]\nwhat = "c1/**"', "c1/**/x"),
        ('name = "a"\nwho = "c1/x"\nmay = ["read"]\nwhat = "c1/**"', "access_rule[0].may"),
        ('name = "a"\nwho = "c1/x"\nmay = ["find"]\nwhat = "c1/**"\nowner = true', "owner"),
        ('name = "a"\nwho = "c1/x"\nmay = ["find"]\nwhat = "**"\nrole = "operator"', "role"),
    ],
)
def test_a_rule_that_means_nothing_is_refused_with_its_place(rule: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as found:
        grid_from_text(f"{CLOUD}[[access_rule]]\n{rule}\n", file="grid.toml")
    assert problem in str(found.value)


def test_two_rules_of_one_name_are_refused() -> None:
    rule = '[[access_rule]]\nname = "a"\nwho = "c1/x"\nmay = ["find"]\nwhat = "c1/**"\n'
    with pytest.raises(ConfigurationError, match="another rule of the file has this name"):
        grid_from_text(f"{CLOUD}{rule}{rule}", file="grid.toml")
