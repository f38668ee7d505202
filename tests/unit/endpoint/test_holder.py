"""The newest value, whole; what went wrong; and which derived values are wanted."""

from __future__ import annotations

import threading

import pytest

from gridstat.endpoint.delivery import Delivery
from gridstat.endpoint.holder import DerivedState, Holder
from gridstat.model.identifiers import VariableId
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, DerivedValue, StatusVariable

AVERAGE = DerivedValue("average_4", BuiltinType.FLOAT64)
VOLTAGE = StatusVariable(
    VariableId(1), "c1/a/v", BuiltinType.FLOAT64, Period(1, 10), derived=(AVERAGE,)
)
MS = 1_000_000


def delivery(created_ms: int, value: float = 0.0, *, is_extrapolated: bool = False) -> Delivery:
    at_ns = created_ms * MS
    return Delivery(value, at_ns, at_ns + 5 * MS, is_extrapolated=is_extrapolated)


def described() -> Holder:
    holder = Holder()
    holder.describe(VOLTAGE)
    return holder


@pytest.mark.feature("S0-36", "S1-6")
def test_the_newest_by_stamp_is_held_whatever_came_last() -> None:
    holder = described()
    assert holder.newest is None
    for created_ms in (100, 300, 200):
        holder.put(delivery(created_ms, created_ms))
    assert holder.newest == delivery(300, 300)


def test_a_real_event_replaces_what_was_made_up_for_its_slot() -> None:
    holder = described()
    holder.put(delivery(300, is_extrapolated=True))
    assert holder.put(delivery(290, 7.0))
    assert holder.newest == delivery(290, 7.0)
    assert not holder.put(delivery(300, is_extrapolated=True))


def test_an_older_real_event_does_not_replace_a_newer_guess() -> None:
    holder = described()
    holder.put(delivery(300, is_extrapolated=True))
    assert not holder.put(delivery(200))


def test_an_aperiodic_variable_goes_by_its_stamps() -> None:
    holder = Holder()
    holder.put(delivery(200, 2.0))
    assert not holder.put(delivery(199, 1.0))
    assert holder.newest == delivery(200, 2.0)


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
        holder.put(Delivery(created_ns, created_ns, created_ns))
    is_done.set()
    reader.join()
    assert mixed == []
