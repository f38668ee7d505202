"""Sets of a group: complete by slot, given up by deadline, read whole."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.endpoint.delivery import Delivery
from gridstat.endpoint.group_sets import OPEN_SETS_MAX, GroupSet, GroupSets, GroupTerms
from gridstat.model.errors import GroupMismatch, LayoutError
from gridstat.model.group_law import Member
from gridstat.model.rate_law import Period

MS = 1_000_000
TENTH = Period(1, 10)


def group(*names: str, history: int = 3, latency_ms: int = 50) -> GroupSets:
    sets = GroupSets({0: GroupTerms(TENTH, latency_ms * MS)}, history)
    for name in names:
        sets.add(Member(name, Period(1, 50)))
    return sets


def take(sets: GroupSets, name: str, ms: float, at_ms: float | None = None) -> GroupSet | None:
    at_ns = int((ms if at_ms is None else at_ms) * MS)
    created_ns = int(ms * MS)
    found = Delivery(f"{name}@{ms}", created_ns, at_ns)  # type: ignore[arg-type]
    return sets.take(name, found, at_ns, at_ns - created_ns)


@pytest.mark.feature("S0-43")
def test_a_set_is_complete_when_every_member_has_its_event() -> None:
    sets = group("a", "b")
    assert take(sets, "a", 1_000) is None
    complete = take(sets, "b", 1_004)
    assert complete is not None
    assert complete.slot == 10
    assert complete.values == {"a": "a@1000", "b": "b@1004"}
    assert sets.complete == (complete,)


@pytest.mark.feature("S0-43")
def test_a_missing_member_means_no_set() -> None:
    sets = group("a", "b")
    for slot in range(10, 20):
        assert take(sets, "a", slot * 100) is None
    assert sets.expire(10_000 * MS) == list(range(10, 20))
    assert (sets.complete, sets.completed, sets.incomplete) == ((), 0, 10)


def test_an_event_between_two_sets_is_passed_over() -> None:
    sets = group("a")
    assert take(sets, "a", 1_020) is None
    assert take(sets, "a", 1_100) is not None


@pytest.mark.feature("S0-44")
def test_the_history_is_bounded_and_newest_first() -> None:
    sets = group("a", history=3)
    for slot in (10, 12, 11, 14, 13):
        take(sets, "a", slot * 100)
    assert [each.slot for each in sets.complete] == [14, 13, 12]


@pytest.mark.feature("S0-42")
def test_a_new_member_belongs_to_the_sets_that_begin_after_it() -> None:
    sets = group("a", "b")
    take(sets, "a", 1_000)
    sets.add(Member("c", Period(1, 10)))
    assert take(sets, "b", 1_000) is not None
    take(sets, "a", 1_100)
    assert take(sets, "b", 1_100) is None
    assert take(sets, "c", 1_100) is not None


@pytest.mark.feature("S0-42")
def test_a_removed_member_is_not_waited_for() -> None:
    sets = group("a", "b", "c")
    take(sets, "a", 1_000)
    take(sets, "c", 1_000)
    (complete,) = sets.remove("b")
    assert set(complete.deliveries) == {"a", "c"}
    (again,) = [take(sets, name, 1_100) for name in "ac"][1:]
    assert again is not None
    assert sets.members == ("a", "c")


def test_the_last_member_that_goes_leaves_no_empty_set() -> None:
    sets = group("a", "b")
    take(sets, "a", 1_000)
    assert sets.remove("a") == []
    assert sets.remove("b") == []


def test_a_member_that_comes_after_the_deadline_opens_no_second_set() -> None:
    sets = group("a", "b")
    take(sets, "a", 1_000, at_ms=1_005)
    assert sets.next_due_ns == 1_050 * MS
    assert sets.expire(1_050 * MS) == [10]
    assert take(sets, "b", 1_000, at_ms=1_055) is None
    assert sets.next_due_ns is None


def test_a_member_added_late_does_not_reopen_what_is_complete() -> None:
    sets = group("a", history=1)
    take(sets, "a", 1_000)
    take(sets, "a", 1_100)
    sets.add(Member("b", Period(1, 10)))
    assert take(sets, "b", 1_000) is None
    assert sets.next_due_ns is None


def test_an_older_set_may_still_complete_after_a_newer_one_was_given_up() -> None:
    sets = group("a", "b", latency_ms=500)
    take(sets, "a", 1_000)
    take(sets, "a", 1_100, at_ms=1_101)
    assert take(sets, "b", 1_100) is not None
    complete = take(sets, "b", 1_000, at_ms=1_200)
    assert complete is not None
    assert complete.slot == 10


def test_open_sets_are_bounded() -> None:
    sets = group("a", "b")
    for slot in range(OPEN_SETS_MAX + 10):
        take(sets, "a", slot * 100)
    assert sets.incomplete == 10


def test_a_member_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    sets = group("a")
    with pytest.raises(GroupMismatch):
        sets.add(Member("b", Period(1, 25)))
    assert sets.members == ("a",)
    assert take(sets, "a", 1_000) is not None


@pytest.mark.parametrize("history", [0, 10_001])
def test_a_history_is_bounded(history: int) -> None:
    with pytest.raises(LayoutError, match=str(history)):
        GroupSets({0: GroupTerms(TENTH, 1)}, history)


@pytest.mark.feature("S0-43")
@given(
    jitters=st.lists(st.floats(-9.9, 9.9), min_size=30, max_size=30),
    order=st.permutations(range(30)),
)
def test_jittered_members_in_any_order_form_complete_sets(
    jitters: list[float], order: list[int]
) -> None:
    sets = group("a", "b", "c", history=10, latency_ms=10_000)
    for index in order:
        slot, member = divmod(index, 3)
        take(sets, "abc"[member], 1_000 + slot * 100 + jitters[index])
    assert [each.slot for each in sets.complete] == list(range(19, 9, -1))


@pytest.mark.feature("S0-44")
def test_a_reader_never_sees_members_of_different_slots_together() -> None:
    sets = group("a", "b", history=5)
    mixed: list[GroupSet] = []
    is_done = threading.Event()

    def read() -> None:
        while not is_done.is_set():
            for found in sets.complete:
                stamps = {each.created_ns for each in found.deliveries.values()}
                if stamps != {found.slot * 100 * MS} or len(found.deliveries) != 2:
                    mixed.append(found)

    reader = threading.Thread(target=read)
    reader.start()
    for slot in range(3_000):
        take(sets, "a", slot * 100)
        take(sets, "b", slot * 100)
    is_done.set()
    reader.join()
    assert mixed == []
    assert sets.completed == 3_000


def test_a_copy_of_a_set_shares_nothing() -> None:
    value: dict[str, float] = {"x": 1.0}
    found = GroupSet(1, {"a": Delivery(value, 1, 2)})
    copied = found.copy()
    value["x"] = 2.0
    assert copied.values == {"a": {"x": 1.0}}


def test_members_whose_clock_is_set_back_show_their_sets_after_a_second() -> None:
    sets = group("a")
    take(sets, "a", 3_600_000)
    for slot in range(30):
        take(sets, "a", slot * 100, at_ms=3_600_100 + slot * 100)
    assert [each.slot for each in sets.complete] == [29, 28, 27]


FIFTH = Period(1, 5)
BY_MODE = {1: GroupTerms(TENTH, 50 * MS), 2: GroupTerms(FIFTH, 80 * MS)}


def test_sets_come_at_the_interval_of_the_active_mode_only() -> None:
    sets = GroupSets(BY_MODE, history=3)
    sets.add(Member("a", Period(1, 50)))
    assert take(sets, "a", 1_000) is None  # In neither of its modes there is a set.
    sets.set_modes(0b010)
    assert sets.interval == TENTH
    assert [take(sets, "a", ms) is not None for ms in (1_100, 1_200)] == [True, True]
    sets.set_modes(0b100)
    assert sets.interval == FIFTH
    assert sets.complete == ()  # Slots of another interval are not compared with these.
    assert [take(sets, "a", ms) is not None for ms in (1_300, 1_400)] == [False, True]


def test_of_several_modes_the_fastest_counts() -> None:
    sets = GroupSets(BY_MODE)
    sets.set_modes(0b110)
    assert sets.interval == TENTH


def test_a_set_that_was_open_when_the_modes_changed_is_not_held_against_the_cloud() -> None:
    sets = GroupSets({0: GroupTerms(FIFTH, 80 * MS), 1: GroupTerms(TENTH, 50 * MS)})
    for name in ("a", "b"):
        sets.add(Member(name, Period(1, 50)))
    take(sets, "a", 1_000)
    sets.set_modes(0b011)
    assert sets.next_due_ns is None
    assert sets.incomplete == 0


def test_a_member_must_fit_the_interval_of_every_mode() -> None:
    sets = GroupSets({0: GroupTerms(TENTH, MS), 1: GroupTerms(Period(1, 4), MS)})
    with pytest.raises(GroupMismatch):
        sets.add(Member("a", Period(1, 50)))
