"""The worst gap: the longest run of slots lost one after the other, hour by hour."""

from __future__ import annotations

from gridstat.endpoint.ledger import HOUR_NS
from gridstat.endpoint.tally import LossRuns
from gridstat.endpoint.violation import Terms
from gridstat.model.rate_law import Period

HOUR_SLOTS = 360_000


def runs(every: int = 1, phase_ns: int = 0) -> LossRuns:
    found = LossRuns()
    found.renew(Terms(Period(1, 100), phase_ns, every, 0))
    return found


def test_slots_lost_one_after_the_other_are_one_gap() -> None:
    found = runs()
    for slot in (5, 6, 7, 20, 21):
        found.add(slot)
    assert (found.slots_max, found.ended_ns) == (3, 80_000_000)


def test_a_gap_ends_where_the_next_due_slot_is() -> None:
    found = runs(every=3, phase_ns=7)
    found.add(30)
    found.add(33, 2)
    assert (found.slots_max, found.ended_ns) == (3, 390_000_007)


def test_of_two_gaps_as_long_the_newer_one_is_told() -> None:
    found = runs()
    found.add(10, 2)
    found.add(50, 2)
    assert found.ended_ns == 520_000_000


def test_the_worst_gap_of_an_hour_gives_way_to_any_of_the_next() -> None:
    found = runs()
    found.add(100, 50)
    found.add(HOUR_SLOTS + 1)
    assert (found.slots_max, found.ended_ns) == (1, HOUR_NS + 20_000_000)


def test_a_gap_across_the_border_of_an_hour_is_one() -> None:
    found = runs()
    found.add(HOUR_SLOTS - 3, 2)
    found.add(HOUR_SLOTS - 1, 9)
    assert (found.slots_max, found.ended_ns) == (11, HOUR_NS + 80_000_000)


def test_no_gap_goes_on_across_a_change_of_terms() -> None:
    found = runs()
    found.add(1, 4)
    found.renew(Terms(Period(1, 100), 0, 5, 0))
    found.add(5)
    assert found.slots_max == 4
