"""Golden bytes, read and written by the codec and by a reader that shares nothing with it."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from gridstat.model.errors import Malformed
from gridstat.model.identifiers import VariableId
from gridstat.model.status import (
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
from gridstat.net.codec.datagram import decode_datagram, encode_datagram
from gridstat.net.codec.event import decode_event, encode_event
from gridstat.net.codec.value import ValueCodec
from tests.golden.load import load_golden, octets

GOLDEN = load_golden("event.toml")
every_event = pytest.mark.parametrize("vector", GOLDEN["event"], ids=lambda row: row["name"])
every_datagram = pytest.mark.parametrize("vector", GOLDEN["datagram"], ids=lambda row: row["name"])
every_malformed = pytest.mark.parametrize(
    "vector", GOLDEN["malformed"], ids=lambda row: row["name"]
)


def variable_of(vector: dict[str, Any]) -> StatusVariable:
    """The registration that a golden event presumes."""
    derived = tuple(
        DerivedValue(row["name"], BuiltinType(row["type"])) for row in vector.get("derived", [])
    )
    value_type: BuiltinType | RecordType
    if vector["type"] == "record":
        fields = [
            Field(row["name"], FieldKind(row["kind"]), row.get("length_bytes", 0))
            for row in vector["fields"]
        ]
        value_type = RecordType("golden", tuple(fields))
    else:
        value_type = BuiltinType(vector["type"])
    identifier = VariableId(vector["variable_id"])
    return StatusVariable(identifier, "golden", value_type, None, derived=derived)


def value_of(vector: dict[str, Any]) -> Any:
    """The golden value; TOML has no bytes, so those stand in hexadecimal."""
    if vector["type"] != "record":
        return vector["value"]
    kinds = {row["name"]: row["kind"] for row in vector["fields"]}
    return {
        name: bytes.fromhex(value) if kinds[name] == "bytes" else value
        for name, value in vector["value"].items()
    }


def event_of(vector: dict[str, Any]) -> StatusEvent:
    derived = [row["value"] for row in vector.get("derived", [])]
    flags = EventFlag.NONE
    for name in vector["flags"]:
        flags |= EventFlag[name]
    return StatusEvent(
        created_ns=int(vector["created_ns"]),
        variable_id=VariableId(vector["variable_id"]),
        payload=ValueCodec(variable_of(vector)).encode(value_of(vector), derived),
        sequence=vector["sequence"],
        time_quality=TimeQuality[vector["time_quality"]],
        flags=flags,
    )


@pytest.mark.feature("S0-14", "S3-18")
@every_event
def test_a_golden_event_is_written_byte_by_byte(vector: dict[str, Any]) -> None:
    assert encode_event(event_of(vector)).hex(" ", 8) == octets(vector["bytes"]).hex(" ", 8)


@pytest.mark.feature("S0-14", "S3-18")
@every_event
def test_golden_bytes_are_read_as_their_event_and_value(vector: dict[str, Any]) -> None:
    event = decode_event(octets(vector["bytes"]))
    assert event == event_of(vector)
    assert event.option_count == vector["option_count"]
    reading = ValueCodec(variable_of(vector)).decode(event.payload)
    assert reading.value == value_of(vector)
    assert reading.derived == {row["name"]: row["value"] for row in vector.get("derived", [])}


@every_datagram
def test_a_golden_datagram_is_read_and_written_again(vector: dict[str, Any]) -> None:
    raw = octets(vector["bytes"])
    datagram = decode_datagram(raw)
    assert datagram.channel_id == vector["channel_id"]
    assert datagram.counter == vector["counter"]
    assert datagram.length == vector["length"]
    assert len(datagram.events) == vector["events"]
    assert datagram.version == vector.get("version", 1)
    assert datagram.is_probe == (vector["events"] == 0)
    again = encode_datagram(
        datagram.channel_id,
        datagram.counter,
        events=[event.raw for event in datagram.events],
        version=datagram.version,
    )
    assert again == raw[: vector["length"]]


@pytest.mark.feature("S0-16")
@every_malformed
def test_a_golden_lie_is_malformed_for_its_one_reason(vector: dict[str, Any]) -> None:
    with pytest.raises(Malformed) as complaint:
        decode_datagram(octets(vector["bytes"]))
    assert complaint.value.reason == vector["reason"]


def foreign_number(raw: bytes, at: int, size: int, order: Literal["big", "little"]) -> int:
    """A field as a machine of that byte order would load it into a register, and then turn it.

    Written without the codec's `struct`: bytes and shifts, as in any other language.
    """
    register = 0
    for step in range(size):
        place = size - 1 - step if order == "big" else step
        register |= raw[at + step] << (8 * place)
    if order == "little":
        turned = 0
        for _ in range(size):
            turned = turned << 8 | register & 0xFF
            register >>= 8
        return turned
    return register


@pytest.mark.feature("S3-31")
@pytest.mark.parametrize("order", ["big", "little"])
@every_event
def test_a_foreign_reader_of_either_byte_order_finds_the_golden_fields(
    vector: dict[str, Any], order: Literal["big", "little"]
) -> None:
    raw = encode_event(event_of(vector))
    assert foreign_number(raw, 0, 8, order) == int(vector["created_ns"])
    assert foreign_number(raw, 8, 4, order) == vector["variable_id"]
    assert foreign_number(raw, 12, 1, order) == vector["option_count"]
    assert foreign_number(raw, 13, 1, order) & 0b11 == TimeQuality[vector["time_quality"]].value
    assert foreign_number(raw, 14, 2, order) == vector["sequence"]
    assert len(raw) == 24 + 24 * vector["option_count"]
    if vector["type"] == "int64":
        assert foreign_number(raw, 16, 8, order) == vector["value"] % 2**64
    if vector["type"] == "bool":
        assert foreign_number(raw, 16, 8, order) == int(vector["value"])
    if vector["type"] == "float64":
        assert foreign_float64(foreign_number(raw, 16, 8, order)) == vector["value"]


@pytest.mark.feature("S3-31")
@pytest.mark.parametrize("order", ["big", "little"])
@every_datagram
def test_a_foreign_reader_of_either_byte_order_finds_the_golden_header(
    vector: dict[str, Any], order: Literal["big", "little"]
) -> None:
    raw = octets(vector["bytes"])
    assert foreign_number(raw, 0, 1, order) == vector.get("version", 1)
    assert foreign_number(raw, 1, 1, order) == 0
    assert foreign_number(raw, 2, 2, order) == vector["length"]
    assert foreign_number(raw, 4, 4, order) == vector["channel_id"]
    assert foreign_number(raw, 8, 8, order) == vector["counter"]


def foreign_float64(bits: int) -> float:
    """An IEEE 754 double from its bits, by arithmetic; enough for normal numbers."""
    sign = -1.0 if bits >> 63 else 1.0
    exponent = (bits >> 52 & 0x7FF) - 1_023
    return float(sign * (1 + (bits & (1 << 52) - 1) / (1 << 52)) * 2.0**exponent)
