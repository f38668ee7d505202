"""S0's close and sparse tables and our row: the same decisions, by different work."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.errors import BenchmarkError
from benchmarks.micro.layout_library import Layout, LayoutKind, RowTooSmallError, library_path
from benchmarks.micro.table_layouts import (
    CHANNELS,
    SENT,
    Case,
    build,
    cell,
    grid_rates,
    measure,
    scattered,
    summary,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

EVERY = st.sampled_from((1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 18, 20, 24, 30, 36, 42, 60, 90))
PATH = st.tuples(st.integers(0, 5), EVERY)
SLOTS = (*range(-90, 181), 2**62, 50_000_000_040)
KINDS = list(LayoutKind)


@pytest.fixture
def close() -> Iterator[Layout]:
    with Layout(LayoutKind.CLOSE) as table:
        yield table


@pytest.fixture
def sparse() -> Iterator[Layout]:
    with Layout(LayoutKind.SPARSE) as table:
        yield table


def brute_force(paths: Sequence[tuple[int, int]], slot: int) -> list[int]:
    return sorted({channel for channel, every in paths if slot % every == 0})


def decide_alike(table: Layout, paths: Sequence[tuple[int, int]], slots: Sequence[int]) -> bool:
    return all(sorted(table.due(slot)) == brute_force(paths, slot) for slot in slots)


def test_removing_both_equal_paths_promotes_the_slower_one_below_them(close: Layout) -> None:
    for every in (90, 90, 180):
        close.insert(1, every)
    assert close.describe() == "channel 1: 90 same 2 sub 1\n"
    assert close.remove(1, 90)
    assert close.describe() == "channel 1: 90 same 1 sub 1\n"
    assert close.remove(1, 90)
    assert close.describe() == "channel 1: 180 same 1 sub 0\n"
    assert (close.due(90), close.due(180)) == ([], [1])


def test_a_faster_path_pulls_its_multiples_under_itself(close: Layout) -> None:
    for every in (6, 4, 9, 12):
        close.insert(1, every)
    assert close.describe() == "channel 1: 4 same 1 sub 1 6 same 1 sub 0 9 same 1 sub 0\n"
    close.insert(1, 2)
    assert close.describe() == "channel 1: 2 same 1 sub 3 9 same 1 sub 0\n"


def test_paths_below_a_removed_one_find_another_that_serves_them(close: Layout) -> None:
    for every in (4, 6, 12, 8):
        close.insert(1, every)
    assert close.remove(1, 4)
    assert close.describe() == "channel 1: 6 same 1 sub 1 8 same 1 sub 0\n"


def test_the_sparse_table_follows_the_source_in_insertion_and_removal(sparse: Layout) -> None:
    sparse.insert(1, 90)
    assert sparse.describe() == "interval 90: channel 1 at 90 paths 1\nouts: 1\n"
    sparse.insert(1, 180)
    assert sparse.describe() == "interval 90: channel 1 at 90 paths 2\nouts: 1\n"
    sparse.insert(2, 180)
    assert sparse.describe() == (
        "interval 90: channel 1 at 90 paths 2 channel 2 at 180 paths 1\nouts: 1 2\n"
    )
    assert sparse.remove(1, 90)
    assert sparse.remove(1, 180)
    assert sparse.describe() == "interval 180: channel 2 at 180 paths 1\nouts: 2\n"


def test_a_faster_interval_swallows_the_holders_of_its_multiples(sparse: Layout) -> None:
    sparse.insert(1, 4)
    sparse.insert(2, 6)
    sparse.insert(3, 2)
    assert sparse.describe() == (
        "interval 2: channel 3 at 2 paths 1 channel 1 at 4 paths 1 channel 2 at 6 paths 1\n"
        "outs: 1 2 3\n"
    )
    assert sparse.remove(3, 2)
    assert sparse.describe() == (
        "interval 4: channel 1 at 4 paths 1\ninterval 6: channel 2 at 6 paths 1\nouts: 1 2\n"
    )


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)
@given(steps=st.lists(PATH | st.integers(0, 99), max_size=30))
def test_every_layout_decides_like_brute_force_whatever_comes_and_goes(
    kind: LayoutKind, steps: list[tuple[int, int] | int]
) -> None:
    """Insert a path for each pair, and remove a held path for each number."""
    held: list[tuple[int, int]] = []
    with Layout(kind) as table:
        for step in steps:
            if isinstance(step, tuple):
                held.append(step)
                table.insert(*step)
            elif held:
                assert table.remove(*held.pop(step % len(held)))
            assert decide_alike(table, held, range(13))
        assert decide_alike(table, held, SLOTS)
        for path in held:
            assert table.remove(*path)
        assert table.due(0) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_path_that_is_not_there_cannot_be_removed(kind: LayoutKind) -> None:
    with Layout(kind) as table:
        table.insert(1, 2)
        assert not table.remove(2, 2)
        assert not table.remove(1, 4)
        assert table.due(2) == [1]


@settings(max_examples=30)
@given(paths=st.lists(PATH, max_size=40))
def test_the_two_layouts_of_the_source_and_ours_decide_alike(paths: list[tuple[int, int]]) -> None:
    case = Case(("random",), (tuple(paths),), ())
    tables = [build(case, kind)[0] for kind in KINDS]
    for slot in SLOTS:
        decisions = [sorted(table.due(slot)) for table in tables]
        assert decisions == [decisions[0]] * len(KINDS)
    for table in tables:
        table.close()


@settings(max_examples=30)
@given(
    routers=st.lists(st.sampled_from(KINDS), min_size=2, max_size=6),
    ends=st.lists(st.tuples(st.integers(0, 5), EVERY), min_size=1, max_size=12),
)
def test_routers_with_different_layouts_deliver_as_one(
    routers: list[LayoutKind], ends: list[tuple[int, int]]
) -> None:
    """A chain: every router has its own subscribers on channel 1 and its successor on channel 0."""
    subscribers = [(place % len(routers), every) for place, every in ends]
    tables = [Layout(kind) for kind in routers]
    for place, every in subscribers:
        tables[place].insert(1, every)
        for before in tables[:place]:
            before.insert(0, every)
    for slot in range(-60, 181):
        delivered, arrives = [], True
        for place, table in enumerate(tables):
            due = table.due(slot) if arrives else []
            delivered += [place] * due.count(1)
            arrives = 0 in due
        assert delivered == brute_force(subscribers, slot)
    for table in tables:
        table.close()


def row_tests_max(case: Case) -> int:
    """Return the most tests of our row in a decision of this case."""
    with build(case, LayoutKind.OURS)[0] as table:
        return max(table.tests(slot) for slot in case.slots)


@pytest.mark.feature("S3-96")
@pytest.mark.parametrize(("make", "tests_max"), [(grid_rates, 200), (scattered, 400)])
def test_tests_grow_much_slower_than_subscriptions(
    make: Callable[[int], Case], tests_max: int
) -> None:
    tests = [row_tests_max(make(count)) for count in (10, 100, 1_000, 10_000)]
    assert all(after < 8 * before for before, after in pairwise(tests))
    assert tests[-1] <= tests_max


@pytest.mark.feature("S3-96")
@pytest.mark.parametrize("make", [grid_rates, scattered])
def test_ten_thousand_subscriptions_are_decided_like_brute_force(
    make: Callable[[int], Case],
) -> None:
    case = make(10_000)
    (paths,) = case.variables
    for kind in KINDS:
        with build(case, kind)[0] as table:
            assert decide_alike(table, paths, case.slots[:60])


def test_more_divisors_than_a_row_holds_are_refused() -> None:
    with Layout(LayoutKind.OURS) as table:
        for every in range(100, 164):
            table.insert(1, every)
        assert table.due(100) == [1]
        table.insert(1, 164)
        with pytest.raises(RowTooSmallError):
            table.due(100)


@pytest.mark.parametrize("sent", SENT)
def test_a_cell_is_sent_on_as_many_channels_as_it_says(sent: str) -> None:
    case = cell(16, 4, sent=sent, position="average")
    (paths,) = case.variables
    counts = {len(brute_force(paths, slot)) for slot in case.slots}
    assert counts == {{"one": 1, "half": 8, "all": 16}[sent]}


@pytest.mark.parametrize(
    ("sent", "position", "tests"),
    [
        ("one", "worst", 15 * 4 + 4),
        ("half", "worst", 8 * 4 + 8 * 4),
        ("all", "worst", 16 * 4),
        ("one", "best", 15 * 4 + 1),
        ("half", "best", 8 + 8 * 4),
        ("all", "best", 16),
    ],
)
def test_the_close_table_makes_the_tests_of_the_cost_table(
    sent: str, position: str, tests: int
) -> None:
    """S0 Tab 4.1, which leaves out some of the last tests: we count those that are made."""
    case = cell(16, 4, sent=sent, position=position)
    with build(case, LayoutKind.CLOSE)[0] as table:
        assert {table.tests(slot) for slot in case.slots} == {tests}


def test_a_measurement_names_every_ratio() -> None:
    cases = [cell(channels, 1, sent="all", position="best") for channels in CHANNELS]
    results = [measure(case, runs=1, run_ns=1) for case in cases]
    fields = summary(results, {"grid_rates": [measure(grid_rates(10), runs=1, run_ns=1)]})
    for name in ("close", "sparse"):
        assert {f"ours_to_{name}_max", f"grid_rates_10_ours_to_{name}"} <= fields.keys()


def test_without_a_compiler_the_hint_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(BenchmarkError, match="apt-get install gcc"):
        library_path(folder=tmp_path)
