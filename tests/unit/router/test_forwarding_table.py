"""Paths become the fewest terms that serve them all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.core.rows import BASELINE, Route, Row, Term, check_row
from gridstat.model.identifiers import ChannelId, VariableId
from gridstat.model.rate_law import Period
from gridstat.router import CarriedVariable, Path
from gridstat.router.forwarding_table import forwarding_rows, terms

VOLTAGE = VariableId(1)
EAST, WEST = ChannelId(7), ChannelId(3)
MODE_1, MODE_2 = 0b10, 0b100
CARRIED = CarriedVariable(VOLTAGE, Period(1, 30), phase_ns=5, source=9)


def path(every: int, modes: int = BASELINE) -> Path:
    return Path(VOLTAGE, EAST, every, modes)


@pytest.mark.feature("S0-60")
def test_a_second_like_subscription_changes_no_row() -> None:
    one = forwarding_rows([CARRIED], [path(2)])
    assert forwarding_rows([CARRIED], [path(2), path(2)]) == one


def test_a_slower_subscription_is_promoted_when_the_faster_one_leaves() -> None:
    """The example of S0 §4.2.2: 90, 90 and 180 ms of a 30 ms variable."""
    assert terms([path(3), path(3), path(6)]) == (Term(3),)
    assert terms([path(3), path(6)]) == (Term(3),)
    assert terms([path(6)]) == (Term(6),)


def test_divisors_that_do_not_divide_each_other_all_stay() -> None:
    assert terms([path(6), path(4), path(12)]) == (Term(4), Term(6))


def test_a_row_carries_what_is_known_of_its_variable_and_routes_in_channel_order() -> None:
    paths = [Path(VOLTAGE, EAST, 2, priority=4), Path(VOLTAGE, WEST), Path(VOLTAGE, EAST, 4)]
    expected = Row(
        variable_id=VOLTAGE,
        period=Period(1, 30),
        phase_ns=5,
        source=9,
        routes=(Route(WEST, (Term(1),)), Route(EAST, (Term(2),), priority=3)),
    )
    assert forwarding_rows([CARRIED], paths) == [expected]


def test_the_most_urgent_priority_of_a_channel_wins() -> None:
    paths = [Path(VOLTAGE, EAST, 1, priority=5), Path(VOLTAGE, EAST, 2, priority=1)]
    [row] = forwarding_rows([CARRIED], paths)
    assert row.routes == (Route(EAST, (Term(1),), priority=1),)


def test_a_mode_does_not_repeat_what_the_baseline_serves() -> None:
    assert terms([path(2), path(4, MODE_1)]) == (Term(2),)
    assert terms([path(4), path(2, MODE_1)]) == (Term(2, MODE_1), Term(4))


def test_modes_that_share_a_divisor_share_a_term() -> None:
    found = terms([path(2, MODE_1), path(2, MODE_2), path(6, MODE_2)])
    assert found == (Term(2, MODE_1 | MODE_2),)


def test_a_variable_without_paths_has_a_row_without_routes() -> None:
    [row] = forwarding_rows([CARRIED], [])
    assert row.routes == ()


EVERY = st.integers(1, 12)
MODES = st.integers(1, 7)


@given(st.lists(st.builds(path, EVERY, MODES), max_size=8), st.integers(0, 1_000), MODES)
def test_the_terms_are_due_exactly_when_some_path_is(
    paths: list[Path], slot: int, switched: int
) -> None:
    active = switched | BASELINE
    wanted = any(each.modes & active and slot % each.every == 0 for each in paths)
    found = any(term.modes & active and slot % term.every == 0 for term in terms(paths))
    assert found == wanted


PRIMES = [n for n in range(2, 6_000) if all(n % prime for prime in range(2, int(n**0.5) + 1))]


def test_odd_divisors_in_many_modes_still_have_a_row_that_is_never_slower_than_asked() -> None:
    paths = [path(PRIMES[number], 2 << number // 12) for number in range(12 * 63)]
    [row] = forwarding_rows([CARRIED], paths)
    check_row(row)
    for each in paths:
        assert any(
            term.modes & (each.modes | BASELINE) and each.every % term.every == 0
            for term in row.routes[0].terms
        )


def test_odd_divisors_on_many_channels_still_have_a_row_that_is_never_slower_than_asked() -> None:
    paths = [Path(VOLTAGE, ChannelId(1 + at), 6 * prime) for at, prime in enumerate(PRIMES[:300])]
    [row] = forwarding_rows([CARRIED], paths)
    check_row(row)
    for each, route in zip(paths, row.routes, strict=True):
        assert route.channel_id == each.channel_id
        [term] = route.terms
        assert each.every % term.every == 0
        assert term.every % 6 == 0


def test_a_row_that_fits_is_not_rounded() -> None:
    paths = [Path(VOLTAGE, ChannelId(1 + at), prime) for at, prime in enumerate(PRIMES[:64])]
    [row] = forwarding_rows([CARRIED], paths)
    assert [route.terms for route in row.routes] == [(Term(prime),) for prime in PRIMES[:64]]


EDGE = CarriedVariable(VOLTAGE, Period(1, 30), keeps_newest=True)


def way(
    contract: int,
    index: int,
    every: int = 1,
    channel_id: ChannelId = EAST,
    modes: int = BASELINE,
) -> Path:
    return Path(VOLTAGE, channel_id, every, modes, contract=contract, index=index)


@pytest.mark.parametrize(
    ("variable", "paths", "expected"),
    [
        pytest.param(EDGE, [way(1, 0), way(1, 1)], 1, id="two paths of a contract meet"),
        pytest.param(EDGE, [way(1, 0, 3), way(1, 1, 3), way(2, 0)], 3, id="at their own rate"),
        pytest.param(EDGE, [way(1, 0), way(2, 0)], 0, id="of two contracts with one path each"),
        pytest.param(EDGE, [way(1, 0), way(1, 1, 1, WEST)], 0, id="to two channels"),
        pytest.param(
            EDGE,
            [way(1, 0, 4), way(1, 1, 4), way(2, 0, 6), way(2, 1, 6)],
            12,
            id="of two contracts at different rates: what is due to both",
        ),
        pytest.param(
            EDGE,
            [way(1, 0), way(1, 1), way(1, 0, 4, modes=MODE_1), way(1, 1, 4, modes=MODE_1)],
            1,
            id="of a contract that is slower in a mode: what is due in all of them",
        ),
        pytest.param(
            EDGE,
            [way(1, 0, 2), way(1, 1, 2), way(2, 0, 3, modes=MODE_1), way(2, 1, 3, modes=MODE_1)],
            2,
            id="beside a contract of a mode only: as if it were not there",
        ),
        pytest.param(
            EDGE,
            [way(2, 0, 3, modes=MODE_1), way(2, 1, 3, modes=MODE_1)],
            3,
            id="of a contract of a mode only: at its rate",
        ),
        pytest.param(CARRIED, [way(1, 0), way(1, 1)], 0, id="nobody is attached here"),
        pytest.param(
            CarriedVariable(VOLTAGE, None, keeps_newest=True),
            [way(1, 0), way(1, 1)],
            0,
            id="without slots",
        ),
    ],
)
def test_copies_are_counted_where_paths_of_one_contract_meet(
    variable: CarriedVariable, paths: list[Path], expected: int
) -> None:
    [row] = forwarding_rows([variable], paths)
    assert row.counted_every == expected
