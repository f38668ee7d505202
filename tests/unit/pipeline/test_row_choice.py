"""A choice of rows: exact at both ends, names by the law of patterns, and the same as options."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gridstat.model.cloud import NAME_BYTES_MAX, check_stored_pattern, matches
from gridstat.model.errors import ConfigurationError
from gridstat.pipeline.log_options import read_options
from gridstat.pipeline.row_choice import INT64_MAX, VARIABLES_MAX, RowChoice, read_choice

PARTS = st.sampled_from(["a", "b", "a.b", "a+", "(x", "Ä", "a,b", "[^/]"])
NAMES = st.lists(PARTS, min_size=1, max_size=4).map("/".join)
PATTERNS = st.builds(
    lambda parts, is_open: "/".join([*parts, "**"] if is_open else parts),
    st.lists(PARTS | st.just("*"), min_size=1, max_size=4),
    st.booleans(),
) | st.just("**")
LETTERS = st.sampled_from("\\,a") | st.characters(
    codec="utf-8", exclude_categories=("C", "Z"), exclude_characters="/*"
)
LEGAL_NAMES = st.lists(st.text(LETTERS, min_size=1, max_size=6), min_size=1, max_size=4).map(
    "/".join
)


@given(names=st.lists(NAMES | st.none(), max_size=8), patterns=st.lists(PATTERNS, min_size=1))
def test_names_are_chosen_by_the_law_of_patterns(
    names: list[str | None], patterns: list[str]
) -> None:
    chosen = RowChoice(variables=tuple(patterns)).are_named(pa.array(names, pa.string()))
    assert chosen.tolist() == [
        name is not None and any(matches(pattern, name) for pattern in patterns) for name in names
    ]


@given(
    times_ns=st.lists(st.integers(-(1 << 63), INT64_MAX)),
    from_ns=st.none() | st.integers(0, INT64_MAX - 1),
    length_ns=st.none() | st.integers(1, 1_000),
)
def test_the_first_instant_is_chosen_and_the_last_one_is_not(
    times_ns: list[int], from_ns: int | None, length_ns: int | None
) -> None:
    to_ns = None if length_ns is None else min(INT64_MAX, (from_ns or 0) + length_ns)
    borders = [one for one in (from_ns, to_ns) if one is not None]
    times = [*times_ns, *borders, *(one - 1 for one in borders)]
    chosen = RowChoice(from_ns, to_ns).are_within(np.array(times, dtype=np.int64))
    assert chosen.tolist() == [
        (from_ns is None or one >= from_ns) and (to_ns is None or one < to_ns) for one in times
    ]


@pytest.mark.parametrize(
    "choice",
    [
        RowChoice(),
        RowChoice(from_ns=0),
        RowChoice(to_ns=INT64_MAX),
        RowChoice(1, 2, ("a/b", "c/*/d", "**")),
    ],
)
def test_a_choice_is_the_same_by_its_options(choice: RowChoice) -> None:
    assert read_choice(choice.options) == choice


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [
        ("0", 0),
        ("1970-01-01T00:00Z", 0),
        ("1970-01-01 01:00:00.5+01:00", 500_000_000),
        ("1970-01-01T00:00:00.000000001Z", 1),
        ("2026-01-01T00:00:00Z", 1_767_225_600_000_000_000),
        ("2262-04-11T23:47:16.854775807Z", INT64_MAX),
        (" 2026-01-01T00:00:00Z ", 1_767_225_600_000_000_000),
    ],
)
def test_a_time_is_taken_to_the_nanosecond(text: str, expected_ns: int) -> None:
    assert read_choice({"from": text}).from_ns == expected_ns


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-01-01",
        "2026-01-01T00:00:00",
        "2026-01-01T00:00:60Z",
        "2026-02-30T00:00:00Z",
        "2026-01-01T00:00:00.0000000001Z",
        "2026-01-01T00:00:00+25:00",
        "٢٠٢٦-01-01T00:00:00Z",
        "1e18",
        "-1",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
        "9223372036854775808",
        "1969-12-31T23:59:59.999999999Z",
    ],
)
def test_a_time_that_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^to ") as told:
        read_choice({"to": text})
    assert told.value.hint


def test_names_and_patterns_may_be_so_many_and_no_more() -> None:
    names = [f"a/{number}" for number in range(VARIABLES_MAX)]
    assert read_choice({"variables": ", ".join(names)}).variables == tuple(names)
    assert read_choice({"variables": ",".join([*names, "a/0"])}).variables == tuple(names)
    with pytest.raises(ConfigurationError, match="1,001 variables"):
        read_choice({"variables": ",".join([*names, "one/more"])})


def test_a_name_with_a_comma_is_chosen_by_an_escape() -> None:
    choice = read_choice({"variables": r"c1/hill/a\,b,c2/**"})
    assert choice.variables == ("c1/hill/a,b", "c2/**")
    assert read_choice(choice.options) == choice


@given(st.lists(LEGAL_NAMES | PATTERNS, min_size=1, max_size=4, unique=True))
@example(["c1/a\\", "c1/b"])
@example(["c1/a\\,b", "\\\\,"])
def test_any_legal_names_are_the_same_by_their_options(names: list[str]) -> None:
    for name in names:
        check_stored_pattern(name)
    choice = RowChoice(variables=tuple(names))
    assert read_choice(choice.options) == choice


def test_as_many_names_as_may_be_and_all_escaped_are_the_same_by_their_options() -> None:
    longest = "\\" * (NAME_BYTES_MAX - 5)
    choice = RowChoice(variables=tuple(f"{longest}/{each:04}" for each in range(VARIABLES_MAX)))
    assert read_choice(choice.options) == choice


@pytest.mark.parametrize("text", ["c1/a\\", "c1/a\\\\\\", "c1/a\\b,c1/c", "c1/a\\ ,c1/c"])
def test_a_backslash_that_escapes_nothing_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^variables: a backslash") as told:
        read_choice({"variables": text})
    assert r"\\" in str(told.value.hint)
    assert r"\," in str(told.value.hint)


@pytest.mark.parametrize("names", ["true", "false"])
def test_names_are_refused_where_there_are_none(names: str) -> None:
    with pytest.raises(ConfigurationError, match="names"):
        read_options({"path": "log", "kind": "ledgers", "names": names})
