"""Values as bytes: built-in types, records of any fields, derived values."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.model.errors import LayoutError, MalformedOption
from gridstat.model.identifiers import VariableId
from gridstat.model.rate_law import Period
from gridstat.model.status import (
    BuiltinType,
    DerivedValue,
    Field,
    FieldKind,
    FieldValue,
    RecordType,
    StatusVariable,
    ValueType,
)
from gridstat.net.codec.value import Reading, ValueCodec

PHASOR = RecordType(
    "phasor",
    (
        Field("magnitude", FieldKind.FLOAT32),
        Field("station", FieldKind.BYTES, 4),
        Field("is_valid", FieldKind.BOOL),
        Field("count", FieldKind.UINT16),
    ),
)
GOOD_PHASOR: dict[str, FieldValue] = {
    "magnitude": 0.5,
    "station": b"N-12",
    "is_valid": True,
    "count": 65_535,
}

FIELD_VALUES: dict[FieldKind, st.SearchStrategy[Any]] = {
    FieldKind.INT8: st.integers(-(2**7), 2**7 - 1),
    FieldKind.INT16: st.integers(-(2**15), 2**15 - 1),
    FieldKind.INT32: st.integers(-(2**31), 2**31 - 1),
    FieldKind.INT64: st.integers(-(2**63), 2**63 - 1),
    FieldKind.UINT8: st.integers(0, 2**8 - 1),
    FieldKind.UINT16: st.integers(0, 2**16 - 1),
    FieldKind.UINT32: st.integers(0, 2**32 - 1),
    FieldKind.UINT64: st.integers(0, 2**64 - 1),
    FieldKind.FLOAT32: st.floats(width=32, allow_nan=False),
    FieldKind.FLOAT64: st.floats(allow_nan=False),
    FieldKind.BOOL: st.booleans(),
}


def codec_of(value_type: ValueType, *derived: BuiltinType) -> ValueCodec:
    named = tuple(DerivedValue(f"d{n}", kind) for n, kind in enumerate(derived))
    return ValueCodec(
        StatusVariable(VariableId(1), "a/b", value_type, Period(1, 30), derived=named)
    )


@st.composite
def records(draw: st.DrawFn) -> tuple[RecordType, dict[str, Any]]:
    """A random record type and a value of it."""
    kinds = draw(st.lists(st.sampled_from(FieldKind), min_size=1, max_size=30))
    fields: list[Field] = []
    value: dict[str, Any] = {}
    for number, kind in enumerate(kinds):
        if kind is FieldKind.BYTES:
            content = draw(st.binary(min_size=1, max_size=100))
            fields.append(Field(f"f{number}", kind, len(content)))
            value[f"f{number}"] = content
        else:
            fields.append(Field(f"f{number}", kind))
            value[f"f{number}"] = draw(FIELD_VALUES[kind])
    return RecordType("random", tuple(fields)), value


@pytest.mark.feature("S0-19")
@given(st.integers(-(2**63), 2**63 - 1))
def test_every_int64_comes_back(value: int) -> None:
    codec = codec_of(BuiltinType.INT64)
    payload = codec.encode(value)
    assert payload == value.to_bytes(8, "big", signed=True)
    assert codec.decode(payload) == Reading(value, {})


@pytest.mark.feature("S0-19")
@given(st.floats())
def test_every_float64_comes_back_bit_by_bit(value: float) -> None:
    codec = codec_of(BuiltinType.FLOAT64)
    decoded = codec.decode(codec.encode(value)).value
    assert isinstance(decoded, float)
    assert struct.pack("=d", decoded) == struct.pack("=d", value)


@pytest.mark.feature("S0-19")
def test_a_bool_comes_back_as_a_bool() -> None:
    codec = codec_of(BuiltinType.BOOL)
    for value in (False, True):
        assert codec.encode(value) == int(value).to_bytes(8, "big")
        assert codec.decode(codec.encode(value)).value is value


@pytest.mark.feature("S0-20")
@given(records(), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=6))
def test_a_record_of_any_fields_comes_back_with_its_derived_values(
    typed: tuple[RecordType, dict[str, Any]], derived: list[int]
) -> None:
    record, value = typed
    codec = codec_of(record, *[BuiltinType.INT64] * len(derived))
    reading = codec.decode(codec.encode(value, derived))
    assert reading.value == value
    assert list(reading.derived.values()) == derived


@pytest.mark.feature("S0-15")
def test_a_user_type_of_every_size_from_1_to_6128_bytes_comes_back() -> None:
    content = bytes(number % 251 + 1 for number in range(6_128))
    for size_bytes in range(1, 6_129):
        record = RecordType("blob", (Field("content", FieldKind.BYTES, size_bytes),))
        codec = codec_of(record)
        payload = codec.encode({"content": content[:size_bytes]})
        assert (len(payload) - 8) % 24 == 0
        assert payload.startswith(content[:size_bytes])
        assert not any(payload[size_bytes:])
        assert codec.decode(payload).value == {"content": content[:size_bytes]}


@pytest.mark.feature("S0-20")
def test_record_fields_lie_back_to_back_and_derived_values_follow() -> None:
    payload = codec_of(PHASOR, BuiltinType.BOOL, BuiltinType.INT64).encode(GOOD_PHASOR, [True, -1])
    assert payload.hex(" ", -4) == (
        "3f000000 4e2d3132 01ffff00 00000000 000001ff ffffffff ffffff00 00000000"
    )


def test_derived_values_are_read_by_name() -> None:
    codec = codec_of(BuiltinType.FLOAT64, BuiltinType.FLOAT64, BuiltinType.BOOL)
    reading = codec.decode(codec.encode(60.0, [59.5, False]))
    assert reading == Reading(60.0, {"d0": 59.5, "d1": False})


def test_a_whole_number_is_a_fine_float() -> None:
    codec = codec_of(BuiltinType.FLOAT64)
    assert codec.decode(codec.encode(60)).value == 60.0


@pytest.mark.parametrize(
    ("value_type", "value"),
    [
        (BuiltinType.INT64, 2**63),
        (BuiltinType.INT64, -(2**63) - 1),
        (BuiltinType.INT64, 1.0),
        (BuiltinType.INT64, True),
        (BuiltinType.INT64, {"magnitude": 1}),
        (BuiltinType.FLOAT64, 10**400),
        (BuiltinType.FLOAT64, True),
        (BuiltinType.FLOAT64, "60"),
        (BuiltinType.BOOL, 1),
        (PHASOR, 1.0),
        (PHASOR, b"abc"),
        (PHASOR, {"magnitude": 0.5}),
        (PHASOR, GOOD_PHASOR | {"more": 1}),
        (PHASOR, GOOD_PHASOR | {"magnitude": 1e300}),
        (PHASOR, GOOD_PHASOR | {"magnitude": b"half"}),
        (PHASOR, GOOD_PHASOR | {"station": b"N-1"}),
        (PHASOR, GOOD_PHASOR | {"station": b"N-123"}),
        (PHASOR, GOOD_PHASOR | {"station": 12}),
        (PHASOR, GOOD_PHASOR | {"is_valid": 1}),
        (PHASOR, GOOD_PHASOR | {"count": 65_536}),
        (PHASOR, GOOD_PHASOR | {"count": -1}),
        (PHASOR, GOOD_PHASOR | {"count": 1.5}),
        (PHASOR, GOOD_PHASOR | {"count": True}),
    ],
)
def test_a_value_of_another_type_or_range_is_never_written(
    value_type: ValueType, value: Any
) -> None:
    with pytest.raises(LayoutError):
        codec_of(value_type).encode(value)


@pytest.mark.parametrize("derived", [[], [1, 2], [1.0], [2**63]])
def test_derived_values_of_another_number_or_type_are_never_written(derived: list[Any]) -> None:
    with pytest.raises(LayoutError):
        codec_of(BuiltinType.INT64, BuiltinType.INT64).encode(1, derived)


@pytest.mark.parametrize("payload_bytes", [0, 8, 31, 33, 56])
def test_a_payload_of_another_length_than_the_registered_type_is_malformed(
    payload_bytes: int,
) -> None:
    with pytest.raises(MalformedOption, match="payloads of 32 bytes"):
        codec_of(PHASOR).decode(bytes(payload_bytes))
