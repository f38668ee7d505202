"""Values as bytes: built-in types, user records and derived values (S0 §6.2).

A codec is compiled once from the registered type; after that an event costs one `struct` call.
Nothing in the bytes names a type, so a sender can choose values but never code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError  # noqa: N812 -- it is an exception class.
from typing import TYPE_CHECKING, Final, TypeAlias

from gridstat.model.errors import LayoutError, MalformedOption
from gridstat.model.status import (
    OPTION_BYTES,
    VALUE_BYTES,
    BuiltinType,
    FieldKind,
    RecordType,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gridstat.model.status import Field, FieldValue, StatusVariable, Value

Scalar: TypeAlias = int | float | bool

# A payload: the value field and the options of an event, as one run of bytes:
#
#   offset       size   field
#        0          r   value    built-in: 8 bytes; record: its fields back to back
#        r      8 - r   zeros    only if the record has less than 8 bytes
#   max(r,8)      8*d   derived  8 bytes each, in the order of registration
#      end          …   zeros    up to a whole option
#
# int64 is two's complement, float64 is IEEE 754, bool is an int64 of 0 or 1.
_BUILTIN_CODE: Final[Mapping[BuiltinType, str]] = {
    BuiltinType.INT64: "q",
    BuiltinType.FLOAT64: "d",
    BuiltinType.BOOL: "q",
}
_FIELD_CODE: Final[Mapping[FieldKind, str]] = {
    FieldKind.INT8: "b",
    FieldKind.INT16: "h",
    FieldKind.INT32: "i",
    FieldKind.INT64: "q",
    FieldKind.UINT8: "B",
    FieldKind.UINT16: "H",
    FieldKind.UINT32: "I",
    FieldKind.UINT64: "Q",
    FieldKind.FLOAT32: "f",
    FieldKind.FLOAT64: "d",
    FieldKind.BOOL: "?",
}


@dataclass(frozen=True, slots=True)
class Reading:
    """Contents of an event for a subscriber: the value, and the derived values by name."""

    value: Value
    derived: Mapping[str, Scalar]


class ValueCodec:
    """Encodes the values of one variable; all of its events have `payload_bytes` bytes."""

    def __init__(self, variable: StatusVariable) -> None:
        self._variable = variable
        self._layout = Struct(_layout_code(variable))
        self.payload_bytes = self._layout.size
        assert self.payload_bytes == VALUE_BYTES + OPTION_BYTES * variable.option_count

    def encode(self, value: Value, derived: Sequence[Scalar] = ()) -> bytes:
        """Encode the payload of an event, its derived values in registered order."""
        declared = self._variable.derived
        if len(derived) != len(declared):
            raise LayoutError(f"{len(derived)} derived values, {len(declared)} are registered")
        try:
            numbers = [
                _checked(number, kind.value_type, kind.name)
                for number, kind in zip(derived, declared, strict=True)
            ]
            return self._layout.pack(*self._value_parts(value), *numbers)
        except (StructError, OverflowError) as problem:
            raise LayoutError(f"{self._variable.name}: {problem}") from problem

    def decode(self, payload: bytes | memoryview) -> Reading:
        """Decode a payload of this variable's type."""
        if len(payload) != self.payload_bytes:
            raise MalformedOption(
                f"{self._variable.name} has payloads of {self.payload_bytes} bytes,"
                f" not of {len(payload)}"
            )
        parts = self._layout.unpack(payload)
        value_type = self._variable.value_type
        value: Value
        if isinstance(value_type, RecordType):
            names = [field.name for field in value_type.fields]
            value = dict(zip(names, parts, strict=False))
            numbers = parts[len(names) :]
        else:
            value = _read(parts[0], value_type)
            numbers = parts[1:]
        derived = {
            kind.name: _read(number, kind.value_type)
            for kind, number in zip(self._variable.derived, numbers, strict=True)
        }
        return Reading(value, derived)

    def _value_parts(self, value: Value) -> list[FieldValue]:
        value_type = self._variable.value_type
        if isinstance(value_type, RecordType):
            if not isinstance(value, Mapping) or value.keys() != _names(value_type):
                raise LayoutError(
                    f"{self._variable.name} takes a record {value_type.name}, not {value!r}",
                    hint=f"give its fields by name: {', '.join(sorted(_names(value_type)))}",
                )
            return [_checked_field(field, value[field.name]) for field in value_type.fields]
        if isinstance(value, Mapping):
            raise LayoutError(f"{self._variable.name} takes {value_type.value}, not a record")
        return [_checked(value, value_type, self._variable.name)]


def _layout_code(variable: StatusVariable) -> str:
    value_type = variable.value_type
    if isinstance(value_type, RecordType):
        value = "".join(
            f"{field.length_bytes}s" if field.kind is FieldKind.BYTES else _FIELD_CODE[field.kind]
            for field in value_type.fields
        )
    else:
        value = _BUILTIN_CODE[value_type]
    gap = max(0, VALUE_BYTES - variable.record_bytes)
    derived = "".join(_BUILTIN_CODE[kind.value_type] for kind in variable.derived)
    rest = VALUE_BYTES + OPTION_BYTES * variable.option_count - variable.payload_bytes
    return f">{value}{gap}x{derived}{rest}x"


def _names(record: RecordType) -> set[str]:
    return {field.name for field in record.fields}


def _checked(number: FieldValue, kind: BuiltinType, name: str) -> Scalar:
    """Return a number of the right type; `struct` alone would accept True for 1 and 1 for True."""
    if kind is BuiltinType.BOOL and isinstance(number, bool):
        return number
    if kind is BuiltinType.INT64 and isinstance(number, int) and not isinstance(number, bool):
        return number
    if kind is BuiltinType.FLOAT64 and type(number) in (int, float):
        return float(number)
    raise LayoutError(f"{name} takes {kind.value}, not {number!r}")


def _checked_field(field: Field, value: FieldValue) -> FieldValue:
    is_bytes = isinstance(value, bytes)
    if is_bytes != (field.kind is FieldKind.BYTES):
        raise LayoutError(f"field {field.name} takes {field.kind.value}, not {value!r}")
    # `struct` would pad or cut bytes of another length silently.
    if isinstance(value, bytes) and len(value) != field.length_bytes:
        raise LayoutError(f"field {field.name} takes {field.length_bytes} bytes, not {len(value)}")
    if (field.kind is FieldKind.BOOL) != isinstance(value, bool):
        raise LayoutError(f"field {field.name} takes {field.kind.value}, not {value!r}")
    return value


def _read(number: Scalar, kind: BuiltinType) -> Scalar:
    return bool(number) if kind is BuiltinType.BOOL else number
