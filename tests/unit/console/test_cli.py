"""The command line answers a wrong question with one message, a hint and an exit code."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from benchmarks.errors import BenchmarkError
from benchmarks.experiments import Comparison, Experiment, Parameter, Result
from gridstat.console.cli import experiment
from gridstat.console.cli.main import app
from gridstat.model.error_index import all_errors
from gridstat.model.errors import Misuse

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.experiments.experiment import Options, Progress

COMMANDS = (
    "up",
    "broker",
    "router",
    "publish",
    "subscribe",
    "recorder",
    "find",
    "explain",
    "tree",
    "flood",
    "top",
    "cloud",
    "certificates",
    "host",
    "experiment",
    "error",
)


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner()


def test_without_a_command_the_help_lists_them_all(runner: CliRunner) -> None:
    text = runner.invoke(app, ["--help"]).output
    assert all(command in text for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_an_example(runner: CliRunner, command: str) -> None:
    result = runner.invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert f"gridstat {command}" in result.output


def test_an_unknown_option_is_a_usage_error(runner: CliRunner) -> None:
    assert runner.invoke(app, ["up", "--frobnicate"]).exit_code == 2


def test_a_code_is_explained(runner: CliRunner) -> None:
    result = runner.invoke(app, ["error", "1036"])
    assert result.exit_code == 0
    assert "LatencyNotSatisfiable" in result.output


def test_a_code_of_the_thesis_is_explained(runner: CliRunner) -> None:
    assert "1036" in runner.invoke(app, ["error", "-36"]).output


def test_all_codes_are_listed_as_json(runner: CliRunner) -> None:
    lines = runner.invoke(app, ["error", "--json"]).stdout.splitlines()
    codes = [json.loads(line)["code"] for line in lines]
    assert 4100 in codes
    assert codes == sorted(set(codes))


def test_the_help_of_error_names_every_range_of_codes(runner: CliRunner) -> None:
    text = runner.invoke(app, ["error", "--help"]).output
    ranges = {f"{kind.code // 1_000}xxx" for kind in all_errors() if kind.code}
    assert ranges == set(re.findall(r"\dxxx", text))


def test_an_unknown_code_is_one_message_with_a_hint(runner: CliRunner) -> None:
    result = runner.invoke(app, ["error", "77"])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: no error has the code 77 (4004)\nhint: ")


def test_a_bad_file_is_one_message_and_no_traceback(runner: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text('cloud = "c1"\nport = 70000\n[[router]]\nname = "west"\n')
    result = runner.invoke(app, ["up", str(file)])
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        f"error: {file}: port: 70000 is out of range (4100)",
        "hint: a port is 1 to 65535, or 0 to have one chosen when the grid starts",
    ]


def test_the_built_in_file_can_be_printed_to_begin_from(runner: CliRunner) -> None:
    assert "[[cloud.router]]" in runner.invoke(app, ["up", "--show-default"]).output


def test_a_routers_bad_file_is_one_message_with_a_hint(runner: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / "router.toml"
    file.write_text('name = "c1/e0"\n[broker]\n')
    result = runner.invoke(app, ["router", str(file)])
    assert result.exit_code == 2
    assert "broker: says not where it is" in result.stderr
    assert "hint: " in result.stderr


def test_commands_say_how_to_find_a_cloud(runner: CliRunner, tmp_path: Path) -> None:
    for command in (
        ["top"],
        ["explain", "c1/a/b"],
        ["publish", "c1/a/b"],
        ["subscribe", "c1/a"],
        ["recorder", "c1/a"],
        ["find", "**"],
    ):
        result = runner.invoke(app, [*command, "--folder", str(tmp_path)])
        assert result.exit_code == 2
        assert "gridstat up" in result.stderr


def test_the_host_report_is_json_on_request(runner: CliRunner) -> None:
    found = json.loads(runner.invoke(app, ["host", "--json"]).stdout)["findings"]
    assert {"receive buffer", "clock", "kernel"} <= {finding["name"] for finding in found}


def test_the_host_report_is_a_table_for_people(runner: CliRunner) -> None:
    assert "memory lock" in runner.invoke(app, ["host"]).output


def test_experiments_outside_the_source_tree_are_told_where_to_find(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment, "MODULE", "benchmarks_that_are_not_there.experiments")
    result = runner.invoke(app, ["experiment", "list"])
    assert result.exit_code == 2
    assert "source tree" in result.stderr


def test_an_unknown_experiment_is_told_with_the_known_ones(runner: CliRunner) -> None:
    result = runner.invoke(app, ["experiment", "run", "nonsense"])
    assert result.exit_code == 2
    assert "forwarding" in result.stderr


def test_a_withdrawn_experiment_is_refused_with_the_reason_and_is_not_listed(
    runner: CliRunner,
) -> None:
    result = runner.invoke(app, ["experiment", "run", "split"])
    assert result.exit_code == 2
    assert "withdrawn until it measures the compiled router" in result.stderr
    assert "hint: " in result.stderr
    listed = runner.invoke(app, ["experiment", "list", "--json"]).stdout.splitlines()
    assert "split" not in [json.loads(line)["experiment"] for line in listed]


def example_experiment() -> Experiment:
    def measure(options: Options, progress: Progress) -> Result:
        progress(1.0, "done")
        return Result(
            figures={"p50_us": 12.5, "runs": options.whole("runs")},
            title="a table",
            columns=("cell", "p50"),
            table=(("single", "12.5"),),
            comparisons=(
                Comparison("p50_us", "S0 §8.4", 900.0, 12.5, is_comparable=False, reason="Java"),
                Comparison("p50_us", "S3 §5.2.4", 150.0, 12.5, is_comparable=True, reason="C"),
            ),
        )

    runs = Parameter("runs", 5, "repetitions")
    return Experiment("example", "one cell", (runs,), measure)


@pytest.fixture
def _only_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"example": example_experiment()}
    monkeypatch.setattr(experiment, "load_experiments", lambda: known)


@pytest.mark.usefixtures("_only_the_example")
def test_the_line_of_flat_figures_keeps_what_each_source_printed_for_a_figure(
    runner: CliRunner,
) -> None:
    result = runner.invoke(app, ["experiment", "run", "example", "--json", "--runs", "3"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == {
        "experiment": "example",
        "command": "gridstat experiment run example --runs 3 --json",
        "p50_us": 12.5,
        "runs": 3,
        "p50_us_S0_source": "S0 §8.4",
        "p50_us_S0_theirs": 900.0,
        "p50_us_S0_comparable": "no",
        "p50_us_S0_reason": "Java",
        "p50_us_S3_source": "S3 §5.2.4",
        "p50_us_S3_theirs": 150.0,
        "p50_us_S3_comparable": "yes",
        "p50_us_S3_reason": "C",
    }
    assert "a table" in result.stderr


@pytest.mark.usefixtures("_only_the_example")
def test_an_experiment_is_a_table_for_people(runner: CliRunner) -> None:
    text = runner.invoke(app, ["experiment", "run", "example"]).stdout
    assert "a table" in text
    assert "no (1)" in text
    assert "yes (2)" in text
    assert "(1) Java" in text
    assert "(2) C" in text


@pytest.mark.usefixtures("_only_the_example")
@pytest.mark.parametrize("words", [("--only", "single"), ("--full",)])
def test_a_parameter_that_an_experiment_lacks_is_told(
    runner: CliRunner, words: tuple[str, ...]
) -> None:
    """Try unknown parameters, among them --full, which was once accepted and ignored."""
    result = runner.invoke(app, ["experiment", "run", "example", *words])
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-2:] == [
        f"error: example has no parameter '{words[0].removeprefix('--')}' (4004)",
        "hint: it has runs",
    ]


@pytest.mark.parametrize(
    "words", [("nonsense",), ("hops", "--set", "foo=1"), ("forwarding", "--only", "nonsense")]
)
def test_an_unknown_experiment_parameter_or_cell_ends_alike(
    runner: CliRunner, words: tuple[str, ...]
) -> None:
    result = runner.invoke(app, ["experiment", "run", *words, "--json"])
    assert (result.exit_code, result.stdout) == (2, "")
    message, hint = result.stderr.splitlines()[-2:]
    assert message.startswith("error: ")
    assert message.endswith("(4004)")
    assert hint.startswith("hint: ")


@pytest.mark.usefixtures("_only_the_example")
@pytest.mark.parametrize("value", ["x", "-1"])
def test_a_value_that_a_parameter_cannot_have_is_wrong_usage(runner: CliRunner, value: str) -> None:
    result = runner.invoke(app, ["experiment", "run", "example", "--set", f"runs={value}"])
    assert result.exit_code == 2
    message, hint = result.stderr.splitlines()[-2:]
    assert message.endswith("(4002)")
    assert hint == "hint: repetitions"


def test_a_measurement_that_fails_is_no_wrong_usage(
    runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(_: Options, __: Progress) -> Result:
        raise BenchmarkError("too long", hint="try again")

    failing = {"example": Experiment("example", "one cell", (), measure)}
    monkeypatch.setattr(experiment, "load_experiments", lambda: failing)
    result = runner.invoke(app, ["experiment", "run", "example"])
    assert result.exit_code == 1
    assert "error: too long\nhint: try again\n" in result.stderr


@pytest.mark.usefixtures("_only_the_example")
def test_experiments_are_listed_with_their_parameters(runner: CliRunner) -> None:
    assert "--set runs=5" in runner.invoke(app, ["experiment", "list"]).stdout
    listed = json.loads(runner.invoke(app, ["experiment", "list", "--json"]).stdout)
    assert listed["parameters"] == {"runs": {"default": 5, "summary": "repetitions"}}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, ""),
        ({"full": 1}, "--full "),
        ({"runs": 5, "only": "a,b", "samples": "/there"}, "--runs 5 --only a,b "),
        ({"full": "0", "name": "x y"}, "--set full=0 --set 'name=x y' "),
    ],
)
def test_a_result_says_what_measures_it_again(options: dict[str, float | str], words: str) -> None:
    told = experiment.command_of("tree", options)
    assert told == f"gridstat experiment run tree {words}--json"


def test_options_are_parameters_by_name() -> None:
    options = experiment.options_of(["cells=a, b", "rate=3"], runs=5, seconds=None, only=None)
    assert options == {"runs": 5, "cells": "a, b", "rate": "3"}
    with pytest.raises(Misuse, match="no value"):
        experiment.options_of(["cells"])
