"""The type that a subscriber expects, as its request says it, against the registered one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gridstat.model.errors import LayoutError, TypeMismatch
from gridstat.model.status import BuiltinType, ValueType

if TYPE_CHECKING:
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.endpoint_messages import SubscriptionRequest


def expected_type(asked: SubscriptionRequest) -> ValueType | None:
    """None leaves the type unchecked."""
    if asked.value_type is None:
        return None
    try:
        found: ValueType = msgspec.convert(asked.value_type, ValueType)
    except msgspec.ValidationError as error:
        raise LayoutError(f"the expected type of {asked.name} cannot be read: {error}") from error
    return found


def check_type(variable: StatusVariable, expected: ValueType | None) -> None:
    if expected is not None and expected != variable.value_type:
        raise TypeMismatch(
            f"{variable.name} is {_words(variable.value_type)}, not {_words(expected)}"
        )


def encode_type(expected: ValueType | None) -> bytes:
    return b"" if expected is None else msgspec.msgpack.encode(expected)


def _words(value_type: ValueType) -> str:
    if isinstance(value_type, BuiltinType):
        return value_type.value
    return f"record {value_type.name} of {value_type.size_bytes} bytes"
