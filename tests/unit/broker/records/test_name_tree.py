"""Names and patterns by their parts: the tree finds exactly what the law of patterns says."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from gridstat.broker.records import name_tree
from gridstat.broker.records.name_tree import NameTree
from gridstat.model.cloud import matches

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

parts = st.sampled_from(["a", "b", "c"])
names = st.lists(parts, min_size=1, max_size=4).map("/".join)
patterns = st.tuples(
    st.lists(st.sampled_from(["a", "b", "*"]), max_size=3), st.sampled_from(["a", "*", "**"])
).map(lambda found: "/".join([*found[0], found[1]]))


@given(st.lists(names, unique=True, max_size=20), patterns)
def test_a_pattern_finds_the_names_that_match_it(given_names: list[str], pattern: str) -> None:
    tree = NameTree()
    for number, name in enumerate(given_names):
        tree.add(name, number)
    found = {given_names[number] for number in tree.matching(pattern)}
    assert found == {name for name in given_names if matches(pattern, name)}


@given(st.lists(names, unique=True, max_size=20), patterns, names)
def test_what_stands_behind_a_name_is_found_in_the_same_order(
    given_names: list[str], pattern: str, after: str
) -> None:
    tree = NameTree()
    for number, name in enumerate(given_names):
        tree.add(name, number)
    whole = [given_names[number] for number in tree.matching(pattern)]
    assert whole == sorted(whole, key=lambda name: name.split("/"))
    behind = [given_names[number] for number in tree.matching(pattern, after=after)]
    assert behind == [name for name in whole if name.split("/") > after.split("/")]


@given(st.lists(names, unique=True, max_size=20), patterns, st.integers(1, 3))
def test_a_walk_that_pauses_and_goes_on_finds_every_name_once(
    given_names: list[str], pattern: str, at_once: int
) -> None:
    tree = NameTree()
    for number, name in enumerate(given_names):
        tree.add(name, number)
    found: list[int] = []
    after, pauses = "", 0
    with patch.object(name_tree, "IN_VAIN_AT_ONCE", at_once + 1):
        is_over = False
        while not is_over:
            is_over = True
            for each in tree.walk(pattern, after=after):
                if isinstance(each, str):
                    after, is_over = each, False
                    pauses += 1
                    break
                found.append(each)
        assert found == list(tree.matching(pattern))
    assert pauses <= len(given_names) * 4


def test_a_walk_that_finds_nothing_pauses_after_so_many_branches() -> None:
    tree = NameTree()
    for number in range(2_000):
        tree.add(f"c1/p{number}/v", number)
    assert list(tree.matching("c1/*/absent")) == []
    assert tree.in_vain == 2_000
    walk = tree.walk("c1/*/absent")
    assert isinstance(next(walk), str)
    assert tree.in_vain == 2_000 + name_tree.IN_VAIN_AT_ONCE


@given(st.lists(patterns, max_size=20), names)
def test_a_name_finds_the_patterns_that_stand_for_it(given: list[str], name: str) -> None:
    tree = NameTree()
    for number, pattern in enumerate(given):
        tree.add(pattern, number)
    wanted = [number for number, pattern in enumerate(given) if matches(pattern, name)]
    assert tree.matching_patterns(name) == wanted


@given(st.lists(names, unique=True, max_size=20))
def test_what_is_discarded_leaves_no_branch_behind(given_names: list[str]) -> None:
    tree = NameTree()
    for number, name in enumerate(given_names):
        tree.add(name, number)
    tree.discard("a/b/c/d/e", 0)
    for number, name in enumerate(given_names):
        tree.discard(name, number)
        assert number not in set(tree.matching("**"))
    assert list(tree.matching("**")) == []
    assert not tree._root.below


def test_names_are_found_in_their_order() -> None:
    tree = NameTree()
    for number, name in enumerate(["c1/b/v", "c1/a/v", "c1/a/b"]):
        tree.add(name, number)
    assert list(tree.matching("c1/**")) == [2, 1, 0]


@given(st.lists(st.tuples(st.booleans(), names), max_size=40))
def test_the_order_is_kept_whatever_comes_and_goes_between_two_walks(
    changes: list[tuple[bool, str]],
) -> None:
    tree = NameTree()
    numbers: dict[str, int] = {}
    for is_new, name in changes:
        if is_new:
            tree.add(name, numbers.setdefault(name, len(numbers)))
        else:
            tree.discard(name, numbers.pop(name, -1))
        there = sorted(numbers, key=lambda name: name.split("/"))
        assert list(tree.matching("**")) == [numbers[name] for name in there]


def test_pages_of_a_flat_node_sort_its_names_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = NameTree()
    count, page = 1_000, 50
    for number in range(count):
        tree.add(f"c1/v{number:05}", number)
    compared = 0

    def counted(found: Iterable[Any]) -> list[Any]:
        nonlocal compared
        listed = list(found)
        compared += len(listed) if len(listed) > 1 else 0
        return sorted(listed)

    monkeypatch.setattr(name_tree, "sorted", counted, raising=False)
    after = ""
    told: list[int] = []
    while len(told) < count:
        told += list(islice(tree.matching("c1/*", after=after), page))
        after = f"c1/v{told[-1]:05}"
    assert told == list(range(count))
    assert compared == count
