"""Samples become deliveries by the registered type."""

from __future__ import annotations

import pytest

from gridstat.endpoint.delivery import Delivery, EventDecoder, Row
from gridstat.model.errors import MalformedOption
from gridstat.model.identifiers import VariableId
from gridstat.model.rate_law import Period
from gridstat.model.status import (
    BuiltinType,
    DerivedValue,
    EventFlag,
    Field,
    FieldKind,
    RecordType,
    StatusVariable,
    TimeQuality,
    Value,
    ValueType,
)
from gridstat.net.codec.event import flag_byte
from gridstat.net.codec.value import ValueCodec

PHASOR = RecordType("phasor", (Field("angle", FieldKind.FLOAT32), Field("id", FieldKind.UINT64)))


def variable(value_type: ValueType, *derived: DerivedValue) -> StatusVariable:
    return StatusVariable(VariableId(3), "c1/a/v", value_type, Period(1, 30), derived=derived)


def sample(of: StatusVariable, value: Value, *derived: float, flags: int = 0) -> tuple[Row, bytes]:
    payload = ValueCodec(of).encode(value, derived)
    word = int.from_bytes(payload[:8], "big", signed=True)
    return (1_000_000, 1_250_000, 3, of.option_count, flags, 9, word), payload[8:]


@pytest.mark.feature("S1-5")
@pytest.mark.parametrize(
    ("value_type", "value"),
    [
        (BuiltinType.INT64, -(2**63)),
        (BuiltinType.FLOAT64, 231.4),
        (BuiltinType.BOOL, True),
        (BuiltinType.BOOL, False),
        (PHASOR, {"angle": 0.5, "id": 2**64 - 1}),
    ],
)
def test_a_value_of_each_type_comes_out_as_it_went_in(value_type: ValueType, value: Value) -> None:
    of = variable(value_type)
    found = EventDecoder(of).delivery(*sample(of, value), frozenset())
    assert found.value == value
    assert type(found.value) is type(value)


@pytest.mark.feature("S0-32", "S0-30")
def test_only_the_derived_values_that_are_wanted_are_kept() -> None:
    kinds = [DerivedValue(name, BuiltinType.FLOAT64) for name in ("average_4", "maximum_4")]
    of = variable(BuiltinType.FLOAT64, *kinds)
    row, options = sample(of, 1.0, 2.0, 3.0)
    decoder = EventDecoder(of)
    assert decoder.delivery(row, options, frozenset({"maximum_4"})).derived == {"maximum_4": 3.0}
    plain = decoder.delivery(row, options, frozenset())
    assert (plain.value, plain.derived) == (1.0, {})


@pytest.mark.feature("S0-40")
def test_times_sequence_quality_and_flags_come_along() -> None:
    of = variable(BuiltinType.INT64)
    flags = flag_byte(TimeQuality.DEGRADED, EventFlag.CACHED | EventFlag.TEST)
    found = EventDecoder(of).delivery(*sample(of, 5, flags=flags), frozenset())
    assert (found.created_ns, found.received_ns, found.sequence) == (1_000_000, 1_250_000, 9)
    assert found.latency_us == 250.0
    assert found.time_quality is TimeQuality.DEGRADED
    assert found.flags == EventFlag.CACHED | EventFlag.TEST
    assert found.is_cached
    assert not found.is_extrapolated


def test_an_event_of_another_layout_is_refused() -> None:
    of = variable(BuiltinType.INT64)
    row, _ = sample(of, 5)
    with pytest.raises(MalformedOption):
        EventDecoder(of).delivery(row, bytes(24), frozenset())


@pytest.mark.feature("S0-40")
def test_a_copy_shares_nothing_with_its_original() -> None:
    value: dict[str, float] = {"a": 1.0}
    original = Delivery(value, 1, 2, derived={"x": 1.0})
    copied = original.copy()
    value["a"] = 2.0
    assert copied.value == {"a": 1.0}
    assert copied.derived is not original.derived
