"""What a contract promised against what came."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gridstat.endpoint.ledger import Ledger, ledger_of
from gridstat.endpoint.violation import Terms
from gridstat.model.rate_law import Period
from tests.unit.endpoint.paper_grid import MS, counters

TERMS = Terms(Period(1, 100), 0, 4, 20 * MS)


def test_nothing_is_expected_before_the_first_event() -> None:
    assert ledger_of(counters(), TERMS, 10**18).expected == 0


def test_what_is_passed_over_is_lost() -> None:
    found = ledger_of(
        counters(delivered=7, missing=3, first_slot=400, last_slot=436), TERMS, 4_370 * MS
    )
    assert (found.expected, found.delivered, found.lost) == (10, 7, 3)


def test_silence_counts_once_the_latency_has_passed() -> None:
    counted = counters(delivered=10, first_slot=400, last_slot=436)
    assert ledger_of(counted, TERMS, 4_419 * MS).lost == 0
    assert ledger_of(counted, TERMS, 4_420 * MS).lost == 1
    assert ledger_of(counted, TERMS, 4_459 * MS).lost == 1
    assert ledger_of(counted, TERMS, 4_460 * MS).lost == 2


def test_what_found_no_room_here_is_lost_too() -> None:
    found = ledger_of(counters(delivered=5, ring_full=2, last_slot=400), TERMS, 0)
    assert (found.expected, found.lost) == (7, 2)


def test_an_aperiodic_variable_is_expected_when_it_comes() -> None:
    found = ledger_of(counters(delivered=5, late=1), None, 10**18)
    assert (found.expected, found.lost, found.late) == (5, 0, 1)


@given(
    delivered=st.integers(0, 1_000),
    missing=st.integers(0, 100),
    full=st.integers(0, 100),
    last=st.integers(0, 10_000),
    now_ms=st.integers(0, 200_000),
)
def test_expected_is_always_delivered_and_lost(
    delivered: int, missing: int, full: int, last: int, now_ms: int
) -> None:
    counted = counters(delivered=delivered, missing=missing, ring_full=full, last_slot=last)
    found = ledger_of(counted, TERMS, now_ms * MS)
    assert found.expected == found.delivered + found.lost


def test_ledgers_of_one_subscription_add_up() -> None:
    first = Ledger(expected=5, delivered=4, lost=1, copies=(4,))
    second = Ledger(expected=3, delivered=3, duplicate=3, copies=(3, 3))
    assert first + second == Ledger(expected=8, delivered=7, lost=1, duplicate=3, copies=(7, 3))
