"""The table of checklist rows keeps its form, marks agree with it, and only passed tests count."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from benchmarks.experiments import EXPERIMENTS
from tests.tidy.source import ROOT, assert_none, write_sample
from tools import features
from tools.feature_marks import Mark, marks_in, reach_of
from tools.feature_record import MarkedTest, NoRecordError, read_record, source_digest, write_record
from tools.feature_rows import ROWS_OF, Row, Table, complaints, load

if TYPE_CHECKING:
    from pathlib import Path

EXPERIMENT_NAMES = frozenset(EXPERIMENTS)
CAPABILITY = "web console"
COVERED = Row("S0-1", "a meaning", "covered")


def of_one(row: Row, *, measured: bool = False) -> list[str]:
    """Return the complaints about one row, in a table whose other rows are correct."""
    others = {
        f"{source}-{number}": Row(f"{source}-{number}", "a meaning", "covered")
        for source, count in ROWS_OF.items()
        for number in range(1, count + 1)
    }
    owed = frozenset({row.name}) if measured else frozenset[str]()
    table = Table({**others, row.name: row}, {CAPABILITY: "pages"}, owed)
    return complaints(table, EXPERIMENT_NAMES)


# The table and the marks of this checkout.


def test_the_table_holds_every_row_of_every_checklist() -> None:
    counted = Counter(name.partition("-")[0] for name in load().rows)
    assert counted == {"S0": 150, "S1": 104, "S2": 96, "S3": 112, "S4": 105}
    assert counted.total() == 567


def test_the_table_keeps_its_rules() -> None:
    assert_none(complaints(load(), EXPERIMENT_NAMES))


def test_marks_name_rows_that_the_table_calls_covered_and_each_of_those_has_one() -> None:
    rows = load().rows
    marks = marks_in(ROOT)
    named = {name for mark in marks for name in mark.rows}
    wrong = [
        f"{mark.place} names {name}, which is {rows[name].state if name in rows else 'no row'}"
        for mark in marks
        for name in mark.rows
        if name not in rows or rows[name].state != "covered"
    ]
    wrong += [
        f"{row.name} is called covered, and no test names it"
        for row in rows.values()
        if row.state == "covered" and row.name not in named
    ]
    assert_none(wrong)


# The rules of the table.


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (Row("S0-1", "", "covered"), "has no meaning"),
        (Row("S0-1", "a meaning", "done"), "its state is 'done'"),
        (Row("S0-1", "a meaning", "later", waits_for="luck"), "waits for 'luck'"),
        (Row("S0-1", "a meaning", "later"), "waits for ''"),
        (Row("S0-1", "a meaning", "dropped", by="ADR-0000-nothing.md"), "is no file of docs/adr"),
        (Row("S0-1", "a meaning", "dropped"), "is no file of docs/adr"),
        (Row("S0-1", "a meaning", "dropped", by="index.md"), "is not named by index.md"),
        (Row("S0-1", "a meaning", "covered", experiment="luck", field="x"), "no experiment 'luck'"),
        (Row("S0-1", "a meaning", "covered", experiment="hops", field="x"), "no field 'x'"),
        (Row("S0-1", "a meaning", "covered", experiment="hops"), "no field ''"),
        (Row("S0-151", "a meaning", "covered"), "has 150 rows"),
    ],
)
def test_a_row_that_breaks_a_rule_is_named(row: Row, told: str) -> None:
    (found,) = of_one(row)
    assert found.startswith(row.name)
    assert told in found


def test_a_covered_row_with_a_figure_names_experiment_and_field() -> None:
    assert of_one(COVERED, measured=True) == ["S0-1 names no experiment and field for its figure"]
    shown = Row("S0-1", "a meaning", "covered", experiment="hops", field="r2")
    assert of_one(shown, measured=True) == []
    waiting = Row("S0-1", "a meaning", "later", waits_for=CAPABILITY)
    assert of_one(waiting, measured=True) == []


def test_a_missing_row_is_named() -> None:
    table = load()
    fewer = {name: row for name, row in table.rows.items() if name != "S2-50"}
    found = complaints(Table(fewer, table.capabilities, table.measured), EXPERIMENT_NAMES)
    assert found[:1] == ["S2-50: the checklist of S2 has 96 rows"]


def test_a_key_that_does_not_belong_to_the_state_is_named(tmp_path: Path) -> None:
    text = '[S0.1]\nmeaning = "a"\nstate = "covered"\nwaits_for = "web console"\n[S9.1]\n'
    table = load(write_sample(tmp_path, "features.toml", text))
    assert table.malformed == ("S0-1: waits_for does not belong to covered", "S9 is no source")


def test_every_capability_is_waited_for() -> None:
    table = load()
    assert {row.waits_for for row in table.rows.values()} - {""} == set(table.capabilities)


# Marks in the source.


def test_marks_are_found_on_functions_modules_and_parameters(tmp_path: Path) -> None:
    text = (
        'pytestmark = pytest.mark.feature("S0-1")\n'
        '@pytest.mark.feature("S0-2", "S3-4", reach="file")\n'
        '@pytest.mark.parametrize("a", [pytest.param(1, marks=pytest.mark.feature("S1-7"))])\n'
        "def test_a(a): ...\n"
    )
    write_sample(tmp_path, "tests/unit/test_a.py", text)
    assert sorted(marks_in(tmp_path), key=lambda mark: mark.rows) == [
        Mark("tests/unit/test_a.py:1", ("S0-1",), "internal"),
        Mark("tests/unit/test_a.py:2", ("S0-2", "S3-4"), "file"),
        Mark("tests/unit/test_a.py:3", ("S1-7",), "internal"),
    ]


@pytest.mark.parametrize("given", ["ROW", '"S0-1", reach=WAY', '"S0-1", way="api"', ""])
def test_a_mark_that_is_not_spelled_out_is_refused(tmp_path: Path, given: str) -> None:
    text = f"@pytest.mark.feature({given})\ndef test_a(): ...\n"
    write_sample(tmp_path, "tests/test_a.py", text)
    with pytest.raises(SystemExit, match="plain strings"):
        marks_in(tmp_path)


def test_the_nearest_folder_says_how_a_test_reaches_its_rows_unless_its_mark_does() -> None:
    assert reach_of("tests/cluster/one_cloud/test_a.py") == "api"
    assert reach_of("tests/cluster/walk_through/test_a.py") == "cli"
    assert reach_of("tests/cluster/lab_relay/test_a.py") == "internal"
    assert reach_of("tests/spark/test_a.py") == "file"
    assert reach_of("tests/protocol/test_a.py") == "internal"
    assert reach_of("tests/protocol/test_a.py", "api") == "api"
    with pytest.raises(ValueError, match="reach='luck' is none of api, cli, file, internal"):
        reach_of("tests/protocol/test_a.py", "luck")


# What a run is made into.

CONFTEST = """
from pathlib import Path
from tests.feature_plugin import FeatureRecorder, tell_features

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FeatureRecorder(Path("record.json")))

def pytest_collection_modifyitems(items):
    for item in items:
        tell_features(item)
"""
SAMPLE = """
import pytest

@pytest.mark.feature("S0-1")
def test_passes(): ...

@pytest.mark.feature("S0-2", "S0-3", reach="cli")
@pytest.mark.parametrize("number", [1, 2])
def test_fails_once(number):
    assert number == 1

@pytest.mark.feature("S0-4")
def test_is_skipped():
    pytest.skip("not here")

@pytest.fixture
def leaving():
    yield
    raise RuntimeError

@pytest.mark.feature("S0-5")
def test_fails_when_it_is_over(leaving): ...

def test_without_rows(): ...
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_only_tests_that_passed_are_recorded_as_passed(tmp_path: Path, workers: str) -> None:
    write_sample(tmp_path, "conftest.py", CONFTEST)
    write_sample(tmp_path, "pytest.ini", "[pytest]\nmarkers = feature\n")
    write_sample(tmp_path, "tests/cluster/test_a.py", SAMPLE)
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", workers, "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        check=False,
    )
    found = read_record(tmp_path / "record.json")
    place = "tests/cluster/test_a.py::test_"
    assert found == [
        MarkedTest(f"{place}fails_once[1]", ("S0-2", "S0-3"), "cli", has_passed=True),
        MarkedTest(f"{place}fails_once[2]", ("S0-2", "S0-3"), "cli", has_passed=False),
        MarkedTest(f"{place}fails_when_it_is_over", ("S0-5",), "api", has_passed=False),
        MarkedTest(f"{place}is_skipped", ("S0-4",), "api", has_passed=False),
        MarkedTest(f"{place}passes", ("S0-1",), "api", has_passed=True),
    ]


def test_a_row_counts_by_the_tests_that_passed() -> None:
    def outcome(*tests: MarkedTest) -> tuple[str, str]:
        return features.outcome(COVERED, tests)

    inside = MarkedTest("a", ("S0-1",), "internal", has_passed=True)
    reached = MarkedTest("b", ("S0-9", "S0-1"), "api", has_passed=True)
    failed = MarkedTest("c", ("S0-1",), "api", has_passed=False)
    other = MarkedTest("d", ("S0-2",), "api", has_passed=True)
    assert outcome(inside, other) == (features.INTERNAL, "covered by 1 (internal only)")
    assert outcome(inside, reached) == (features.REACHED, "covered by 2 (api)")
    assert outcome(inside, failed) == (features.UNPROVEN, "NOT COVERED: c did not pass")
    assert outcome(other)[0] == features.UNPROVEN
    waiting = Row("S0-1", "a meaning", "later", waits_for=CAPABILITY)
    assert features.outcome(waiting, [inside]) == (features.LATER, "later: web console")
    assert features.misplaced({"S0-1": waiting}, [inside, other]) == [
        "a is marked with S0-1, which is later",
        "d is marked with S0-2, which is no row",
    ]


def test_a_record_that_is_missing_or_of_other_source_is_refused(tmp_path: Path) -> None:
    record = tmp_path / "build" / "features.json"
    with pytest.raises(NoRecordError, match="run `make test` first"):
        read_record(record, tmp_path)
    source = write_sample(tmp_path, "tests/unit/test_a.py", "def test_a(): ...\n")
    write_record(record, source_digest(tmp_path), [])
    assert read_record(record, tmp_path) == []
    source.write_text("def test_b(): ...\n")
    with pytest.raises(NoRecordError, match="run `make test` again"):
        read_record(record, tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "Makefile",
        "gridstat/core/loop.c",
        "pyproject.toml",
        "setup.py",
        "tests/golden/old_journals.msgpack.zlib",
        "tests/unit/console/simulation/andes_files/two_machines_out.lst",
        "tests/unit/console/simulation/andes_files/two_machines_out.npz",
        "tools/constraints.txt",
        "tools/leaks.py",
        "tools/sanitize.sh",
    ],
)
def test_a_record_is_worth_nothing_after_a_change_of_what_tests_depend_on(
    tmp_path: Path, name: str
) -> None:
    source = write_sample(tmp_path, name, "one\n")
    before = source_digest(tmp_path)
    source.write_text("another\n")
    assert source_digest(tmp_path) != before
    source.write_text("one\n")
    write_sample(tmp_path, "tools/notes.md", "read by nobody\n")
    assert source_digest(tmp_path) == before
