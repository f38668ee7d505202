"""The planted faults of `make mutants` still apply, and are judged as they should be."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.tidy.source import ROOT, assert_none, write_sample
from tools.mutant_core import CORE, BuildError, CoreBuild
from tools.mutant_list import Mutant, complaints, complaints_of, read_mutants
from tools.mutants import Ending, Outcome, State, is_good, planted, verdict

if TYPE_CHECKING:
    from pathlib import Path

AREAS = {
    "core": 8,
    "broker": 10,
    "endpoint": 4,
    "router": 3,
    "net": 3,
    "record": 3,
    "pipeline": 2,
    "model": 4,
    "console": 2,
}
"""Fewest mutants of each area."""

SAMPLE = Mutant(
    name="off-by-one",
    file="gridstat/law.py",
    old="a < b",
    new="a <= b",
    breaks="the bound belongs to the wrong side",
    tests=("tests/test_law.py::test_a_bound",),
)


def sample_repository(root: Path) -> Path:
    write_sample(root, "gridstat/law.py", "def is_less(a, b):\n    return a < b\n")
    write_sample(root, "tests/test_law.py", "def test_a_bound():\n    pass\n")
    return root


def test_every_mutant_still_applies_and_its_tests_exist() -> None:
    assert_none(complaints(read_mutants(), ROOT))


def test_every_area_has_mutants() -> None:
    counts = Counter(mutant.area for mutant in read_mutants())
    assert_none(
        [f"{area}: {counts[area]}" for area, least in AREAS.items() if counts[area] < least]
    )


def test_a_mutant_that_applies_has_no_complaint(tmp_path: Path) -> None:
    assert complaints_of(SAMPLE, sample_repository(tmp_path)) == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (replace(SAMPLE, old="a > b"), "occurs 0 times"),
        (replace(SAMPLE, old="a"), "occurs 2 times"),
        (replace(SAMPLE, new="a <"), "is no Python"),
        (replace(SAMPLE, new="a < b"), "is the old one"),
        (replace(SAMPLE, file="gridstat/gone.py"), "occurs 0 times"),
        (replace(SAMPLE, tests=("tests/test_law.py::test_gone",)), "there is no test"),
        (replace(SAMPLE, tests=("tests/test_gone.py",)), "there is no test"),
        (replace(SAMPLE, tests=()), "either the tests"),
        (replace(SAMPLE, command=("-m", "lab.simulation")), "either the tests"),
    ],
)
def test_a_mutant_that_does_not_apply_is_complained_of(
    tmp_path: Path, changed: Mutant, words: str
) -> None:
    (complaint,) = complaints_of(changed, sample_repository(tmp_path))
    assert words in complaint


def test_two_mutants_of_one_name_are_complained_of(tmp_path: Path) -> None:
    assert complaints([SAMPLE, SAMPLE], sample_repository(tmp_path)) == [
        "two mutants are called off-by-one"
    ]


def test_a_fault_is_planted_and_taken_out_again(tmp_path: Path) -> None:
    path = sample_repository(tmp_path) / SAMPLE.file
    before = path.read_text(encoding="utf-8")
    with planted(SAMPLE, tmp_path):
        assert "a <= b" in path.read_text(encoding="utf-8")
    assert path.read_text(encoding="utf-8") == before


def sample_core(root: Path) -> CoreBuild:
    """A core of two files and a header, compiled without Cython's doors."""
    write_sample(root, f"{CORE}/bound.h", "enum { GS_BOUND = 1 };\n")
    for name in ("first", "second"):
        text = f'#include "bound.h"\nint {name}(void) {{ return GS_BOUND; }}\n'
        write_sample(root, f"{CORE}/{name}.c", text)
    build = CoreBuild(root, root / "objects", doors=())
    build.prepare(jobs=1)
    return build


@pytest.mark.parametrize("changed", ["bound.h", "second.c"])
def test_a_core_that_does_not_compile_leaves_no_objects_to_the_next(
    tmp_path: Path, changed: str
) -> None:
    """The first file has been compiled with the changed header before the second one fails."""
    build = sample_core(tmp_path)
    second = tmp_path / CORE / "second.c"
    second.write_text(second.read_text(encoding="utf-8") + "#error no\n", encoding="utf-8")
    with pytest.raises(BuildError):
        build.build(tmp_path, str(CORE / changed))
    assert_none([path.name for path in (tmp_path / "build").rglob("*.o")])


@pytest.mark.parametrize(
    ("code", "output", "state"),
    [
        (0, "1 passed", State.NOT_NOTICED),
        (1, "FAILED tests/test_law.py::test_a_bound - assert 1", State.NOTICED),
        (1, "no summary", State.NOT_JUDGED),
        (2, "ERROR tests/test_law.py", State.NOTICED),
        (4, "ERROR: file or directory not found: tests/test_law.py", State.NOT_JUDGED),
        (-11, "", State.NOTICED),
    ],
)
def test_only_a_failing_test_or_a_crash_notices_a_fault(
    code: int, output: str, state: State
) -> None:
    assert verdict(SAMPLE, Ending(code, output))[0] is state


@pytest.mark.parametrize(
    ("noticed", "missed", "state", "expected"),
    [
        (9, 1, State.NOT_NOTICED, True),
        (8, 1, State.NOT_NOTICED, False),
        (8, 1, State.OUT_OF_TIME, False),
        (99, 1, State.DOES_NOT_APPLY, False),
    ],
)
def test_nine_of_ten_must_be_noticed_and_all_must_apply(
    noticed: int, missed: int, state: State, *, expected: bool
) -> None:
    states = [State.NOTICED] * noticed + [state] * missed
    assert is_good([Outcome(SAMPLE, each, "", 0) for each in states]) is expected
