"""Status variables, record types and events: what may be declared, and what may not."""

from __future__ import annotations

from typing import Any

import pytest

from gridstat.model.errors import LayoutError
from gridstat.model.identifiers import VariableId
from gridstat.model.rate_law import Period
from gridstat.model.status import (
    KIND_BYTES,
    REPLAY_SPEED_MAX,
    BuiltinType,
    DerivedValue,
    EventFlag,
    Field,
    FieldKind,
    RecordType,
    StatusEvent,
    StatusVariable,
    TimeQuality,
)

FREQUENCY: dict[str, Any] = {
    "variable_id": VariableId(7),
    "name": "north/line-12/pmu/frequency",
    "value_type": BuiltinType.FLOAT64,
    "period": Period(1, 30),
}
AVERAGE = DerivedValue("average", BuiltinType.FLOAT64)


def record_of(size_bytes: int) -> RecordType:
    return RecordType("blob", (Field("content", FieldKind.BYTES, size_bytes),))


def variable(**changes: Any) -> StatusVariable:
    return StatusVariable(**(FREQUENCY | changes))


def test_a_built_in_value_fits_into_the_event_itself() -> None:
    assert variable().payload_bytes == 8
    assert variable().option_count == 0


@pytest.mark.parametrize(
    ("size_bytes", "derived_count", "option_count"),
    [
        (1, 0, 0),
        (8, 0, 0),
        (9, 0, 1),
        (32, 0, 1),
        (33, 0, 2),
        (3, 3, 1),
        (3, 4, 2),
        (6_128, 0, 255),
    ],
)
def test_the_registered_type_fixes_the_number_of_options(
    size_bytes: int, derived_count: int, option_count: int
) -> None:
    derived = tuple(DerivedValue(f"d{n}", BuiltinType.INT64) for n in range(derived_count))
    assert variable(value_type=record_of(size_bytes), derived=derived).option_count == option_count


def test_a_record_has_the_bytes_of_its_fields_without_gaps() -> None:
    kinds = [Field(kind.value, kind) for kind in KIND_BYTES]
    record = RecordType("all", (*kinds, Field("tag", FieldKind.BYTES, 5)))
    assert record.size_bytes == 4 * 1 + 2 * 2 + 3 * 4 + 3 * 8 + 5 - 1


@pytest.mark.feature("S0-15")
def test_a_record_of_6129_bytes_is_rejected() -> None:
    assert record_of(6_128).size_bytes == 6_128
    with pytest.raises(LayoutError, match="6129 bytes"):
        record_of(6_129)
    with pytest.raises(LayoutError, match="6129 bytes"):
        RecordType("two", (Field("a", FieldKind.BYTES, 6_128), Field("b", FieldKind.BOOL)))


def test_a_record_that_leaves_no_room_for_its_derived_value_is_rejected() -> None:
    assert variable(value_type=record_of(6_120), derived=(AVERAGE,)).payload_bytes == 6_128
    with pytest.raises(LayoutError, match="6129 bytes with its derived values"):
        variable(value_type=record_of(6_121), derived=(AVERAGE,))


def test_an_empty_record_is_rejected() -> None:
    with pytest.raises(LayoutError, match="0 bytes"):
        RecordType("nothing", ())


def test_a_field_named_twice_is_rejected() -> None:
    with pytest.raises(LayoutError, match="twice"):
        RecordType("twice", (Field("a", FieldKind.INT8), Field("a", FieldKind.INT16)))


def test_a_derived_value_named_twice_is_rejected() -> None:
    with pytest.raises(LayoutError, match="twice"):
        variable(derived=(AVERAGE, AVERAGE))


@pytest.mark.parametrize("name", ["", "two words", "1st", "a-b"])
def test_a_field_that_is_not_a_name_is_rejected(name: str) -> None:
    with pytest.raises(LayoutError, match="not a name"):
        Field(name, FieldKind.INT8)


def test_only_a_field_of_bytes_has_a_length() -> None:
    with pytest.raises(LayoutError, match="cannot be given a length"):
        Field("a", FieldKind.INT8, 1)
    with pytest.raises(LayoutError, match="0 bytes"):
        Field("a", FieldKind.BYTES)


@pytest.mark.parametrize("name", ["", "north//pmu", "/north", "north/", "north/line 12", " "])
def test_a_variable_name_with_empty_parts_or_blanks_is_rejected(name: str) -> None:
    with pytest.raises(LayoutError, match="not hierarchical"):
        variable(name=name)


@pytest.mark.parametrize(
    "change",
    [
        {"variable_id": -1},
        {"variable_id": 2**32},
        {"phase_ns": -1},
        {"phase_ns": 2**64},
        {"interval_ns_min": -1, "period": None},
    ],
)
def test_a_number_that_does_not_fit_the_wire_is_rejected(change: dict[str, Any]) -> None:
    with pytest.raises(LayoutError, match="outside 0 to"):
        variable(**change)


def test_an_alert_is_aperiodic_and_declares_a_minimum_interval() -> None:
    assert variable(period=None, is_alert=True, interval_ns_min=1_000_000).is_alert
    with pytest.raises(LayoutError, match="must be aperiodic"):
        variable(is_alert=True, interval_ns_min=1_000_000)
    with pytest.raises(LayoutError, match="minimum interval"):
        variable(period=None, is_alert=True)


def test_a_periodic_variable_has_no_minimum_interval() -> None:
    with pytest.raises(LayoutError, match="periodic"):
        variable(interval_ns_min=1)


def test_record_types_are_equal_by_value() -> None:
    assert record_of(12) == record_of(12)
    assert record_of(12) != record_of(13)


def test_a_plain_event_has_good_time_and_no_flags() -> None:
    event = StatusEvent(1, VariableId(1), bytes(8))
    assert event.time_quality is TimeQuality.GOOD
    assert event.flags is EventFlag.NONE
    assert event.option_count == 0


@pytest.mark.parametrize("payload_bytes", [0, 7, 9, 24, 31, 33, 6_127, 6_129, 6_152])
def test_a_payload_that_is_no_whole_number_of_options_is_rejected(payload_bytes: int) -> None:
    with pytest.raises(LayoutError, match="does not fill an event"):
        StatusEvent(1, VariableId(1), bytes(payload_bytes))


@pytest.mark.parametrize(
    "change", [{"created_ns": -1}, {"created_ns": 2**64}, {"sequence": 2**16}, {"variable_id": -1}]
)
def test_an_event_that_the_wire_cannot_hold_is_rejected(change: dict[str, int]) -> None:
    fields: dict[str, Any] = {"created_ns": 1, "variable_id": 1, "payload": bytes(8)}
    with pytest.raises(LayoutError, match="outside 0 to"):
        StatusEvent(**(fields | change))


def test_names_within_a_type_are_bounded() -> None:
    long = "x" * 129
    with pytest.raises(LayoutError, match="129 characters"):
        Field(long, FieldKind.BOOL)
    with pytest.raises(LayoutError, match="129 characters"):
        RecordType(long, (Field("x" * 128, FieldKind.BOOL),))
    with pytest.raises(LayoutError, match="129 characters"):
        DerivedValue(long, BuiltinType.BOOL)


def test_a_replayed_variable_is_periodic_and_says_how_fast_it_may_come() -> None:
    replayed = variable(period=Period(1, 30), replay_speed=10)
    assert replayed.is_replay
    assert replayed.replay_interval_ns == 3_333_333
    assert not variable().is_replay
    assert variable().replay_interval_ns == 0
    with pytest.raises(LayoutError, match="aperiodic"):
        variable(period=None, interval_ns_min=5, replay_speed=1)
    with pytest.raises(LayoutError, match="replay_speed"):
        variable(replay_speed=REPLAY_SPEED_MAX + 1)
