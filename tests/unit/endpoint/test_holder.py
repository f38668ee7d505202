"""The newest value, whole; what went wrong; and which derived values are wanted."""

from __future__ import annotations

import threading

import pytest

from gridstat.endpoint.delivery import Delivery
from gridstat.endpoint.holder import DerivedState, Holder
from gridstat.model.identifiers import VariableId
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, DerivedValue, EventFlag, StatusVariable

AVERAGE = DerivedValue("average_4", BuiltinType.FLOAT64)
VOLTAGE = StatusVariable(
    VariableId(1), "c1/a/v", BuiltinType.FLOAT64, Period(1, 10), derived=(AVERAGE,)
)
MS = 1_000_000


def delivery(created_ms: int, value: float = 0.0, *, is_extrapolated: bool = False) -> Delivery:
    at_ns = created_ms * MS
    return Delivery(value, at_ns, at_ns + 5 * MS, is_extrapolated=is_extrapolated)


def put(holder: Holder, found: Delivery) -> bool:
    """Put it when it arrives by its own stamp."""
    return holder.put(found, found.received_ns)


def described() -> Holder:
    holder = Holder()
    holder.describe(VOLTAGE)
    return holder


@pytest.mark.feature("S0-36", "S1-6")
def test_the_newest_by_stamp_is_held_whatever_came_last() -> None:
    holder = described()
    assert holder.newest is None
    for created_ms in (100, 300, 200):
        put(holder, delivery(created_ms, created_ms))
    assert holder.newest == delivery(300, 300)


def test_a_real_event_replaces_what_was_made_up_for_its_slot() -> None:
    holder = described()
    put(holder, delivery(300, is_extrapolated=True))
    assert put(holder, delivery(290, 7.0))
    assert holder.newest == delivery(290, 7.0)
    assert not put(holder, delivery(300, is_extrapolated=True))


def test_an_older_real_event_does_not_replace_a_newer_guess() -> None:
    holder = described()
    put(holder, delivery(300, is_extrapolated=True))
    assert not put(holder, delivery(200))


def test_an_aperiodic_variable_goes_by_its_stamps() -> None:
    holder = Holder()
    put(holder, delivery(200, 2.0))
    assert not put(holder, delivery(199, 1.0))
    assert holder.newest == delivery(200, 2.0)


def test_a_publisher_whose_clock_is_set_back_is_followed_after_a_second() -> None:
    holder = described()
    put(holder, delivery(3_600_000))
    held = [
        holder.put(delivery(ms, float(ms)), (3_600_005 + ms) * MS) for ms in range(100, 3_000, 100)
    ]
    assert held == [False] * 9 + [True] * 20
    assert holder.newest == delivery(2_900, 2_900.0)


def test_a_straggler_after_a_long_silence_is_not_the_newest() -> None:
    holder = described()
    put(holder, delivery(10_000))
    assert not holder.put(delivery(9_900), 20_000 * MS)
    assert not holder.put(delivery(9_950), 20_001 * MS)
    assert holder.newest == delivery(10_000)


def test_a_kept_event_fills_an_empty_holder_and_takes_no_live_ones_place() -> None:
    holder = described()
    kept = delivery(300, 1.0)._replace(flags=EventFlag.CACHED)
    assert holder.fill(kept)
    assert put(holder, delivery(300, 1.0))
    assert not holder.fill(kept)
    assert holder.newest == delivery(300, 1.0)
    assert holder.fill(kept._replace(created_ns=400 * MS))


@pytest.mark.feature("S0-41")
def test_an_error_code_is_read_until_it_is_taken() -> None:
    holder = Holder()
    holder.set_error_code(1034)
    assert holder.error_code == 1034
    assert holder.take_error_code() == 1034
    assert holder.take_error_code() == 0
    assert holder.error_code == 0


@pytest.mark.feature("S0-32")
def test_only_registered_derived_values_are_wanted() -> None:
    holder = described()
    assert holder.derived_names == frozenset()
    assert holder.published_derived() == (AVERAGE,)
    assert holder.register_derived("average_4")
    assert holder.derived_names == {"average_4"}
    assert holder.unregister_derived("average_4")
    assert holder.derived_names == frozenset()
    assert not holder.unregister_derived("average_4")


@pytest.mark.feature("S0-33")
def test_a_derived_value_that_is_not_published_is_refused() -> None:
    holder = described()
    assert not holder.register_derived("maximum_4")
    assert not holder.register_derived("average_4", BuiltinType.INT64)
    assert holder.derived_state("maximum_4") is DerivedState.NOT_PUBLISHED
    assert holder.derived_names == frozenset()


@pytest.mark.feature("S0-33")
def test_a_derived_value_of_an_unknown_variable_is_marked_later() -> None:
    holder = Holder()
    assert holder.register_derived("average_4", BuiltinType.FLOAT64)
    assert holder.register_derived("maximum_4")
    assert holder.register_derived("other", BuiltinType.BOOL)
    assert holder.derived_state("maximum_4") is DerivedState.UNKNOWN
    holder.describe(VOLTAGE)
    assert holder.derived_state("average_4") is DerivedState.PUBLISHED
    assert holder.derived_state("maximum_4") is DerivedState.NOT_PUBLISHED
    assert holder.derived_names == {"average_4"}


def test_a_reader_never_sees_the_value_of_one_event_with_the_stamp_of_another() -> None:
    holder = described()
    mixed: list[Delivery] = []
    is_done = threading.Event()

    def read() -> None:
        while not is_done.is_set():
            found = holder.newest
            if found is not None and found.value != found.created_ns:
                mixed.append(found)

    reader = threading.Thread(target=read)
    reader.start()
    for created_ns in range(0, 20_000 * 100, 100):
        holder.put(Delivery(created_ns, created_ns, created_ns), created_ns)
    is_done.set()
    reader.join()
    assert mixed == []
