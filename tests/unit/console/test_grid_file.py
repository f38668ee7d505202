"""The file of `gridstat up`: what it says becomes a grid, and mistakes are told by their key."""

from __future__ import annotations

import pytest

from gridstat.console.config.grid_file import (
    DEFAULT_GRID_FILE,
    default_grid_text,
    grid_from_text,
    period_of,
)
from gridstat.console.grid import PipelineWish, Pmu
from gridstat.model.errors import ConfigurationError
from gridstat.model.qos import QosRequest
from gridstat.model.rate_law import Period

CLOUD = 'cloud = "c1"\n[[router]]\nname = "e0"\nrole = "edge"\n[[router]]\nname = "i0"\n'
PMU = '[[pmu]]\nname = "hill/pmu-1"\nedges = ["e0"]\nrate = "30/s"\nquantities = ["frequency"]\n'
RECORDER = '[recorder]\nedges = ["e0"]\nvariables = ["c1/**"]\n'
PIPELINE = '[pipeline]\nedges = ["e0"]\n'
SUBSCRIBER = '[[subscriber]]\nname = "desk"\nedges = ["e0"]\nvariables = ["c1/**"]\n'


def test_the_built_in_grid_has_two_disjoint_ways_and_ends_on_two_edges() -> None:
    grid = grid_from_text(default_grid_text(), file=DEFAULT_GRID_FILE)
    assert len(grid.topology.routers) == 8
    assert {len(pmu.edges) for pmu in grid.pmus} == {2}
    assert {subscriber.qos.redundancy for subscriber in grid.subscribers} == {1, 2}
    assert len({subscriber.qos.interval for subscriber in grid.subscribers}) > 2


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
    assert grid.pipeline == PipelineWish(("c1/e0",), master="spark://one:7077")


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
}


@pytest.mark.parametrize(("text", "problem"), MISTAKES.items())
def test_a_mistake_is_told_with_its_key_and_a_hint(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as found:
        grid_from_text(text, file="grid.toml")
    assert problem in str(found.value)
    assert found.value.hint
